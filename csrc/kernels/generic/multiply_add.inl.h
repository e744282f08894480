// Multiplies and adds in registers: the measure of the float32 peak that attention is held against.

// `rounds` times sum = fma(sum, factor, term) for as many independent sums as attention keeps in registers; values:
// [16], the terms, and their total on return. Returns how many multiply-adds that were.
static std::int64_t multiply_add(float* values, std::int64_t rounds) {
  const f32x16 factor = splat(0.5f), term = load(values);
  f32x16 sums[kAttentionRows][kAttentionVectors];
  for (int r = 0; r < kAttentionRows; ++r) {
    for (int i = 0; i < kAttentionVectors; ++i) sums[r][i] = splat(static_cast<float>(r * kAttentionVectors + i));
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int r = 0; r < kAttentionRows; ++r) {
      for (int i = 0; i < kAttentionVectors; ++i) sums[r][i] = fma(sums[r][i], factor, term);
    }
  }
  f32x16 total = zero();
  for (int r = 0; r < kAttentionRows; ++r) {
    for (int i = 0; i < kAttentionVectors; ++i) total = add(total, sums[r][i]);
  }
  store(values, total);
  return rounds * kAttentionRows * kAttentionVectors * 16;
}
