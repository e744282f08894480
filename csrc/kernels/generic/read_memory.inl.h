// Reads memory and does next to nothing with it: the measure that other kernels are held against.

// The or of every 8-byte word of num_bytes, a multiple of 256; p is aligned to 64. Four accumulators, so that the loads
// do not wait for each other; the vector type takes the widest registers that the file's flags allow.
static std::uint64_t read_memory(const std::uint8_t* p, std::size_t num_bytes) {
  typedef std::uint64_t Line __attribute__((vector_size(64)));
  constexpr std::size_t kLines = 4, kPrefetchBytes = 2048;
  Line sums[kLines] = {};
  for (std::size_t i = 0; i + kLines * sizeof(Line) <= num_bytes; i += kLines * sizeof(Line)) {
    for (std::size_t line = 0; line < kLines; ++line) {
      const std::uint8_t* at = p + i + line * sizeof(Line);
      __builtin_prefetch(at + kPrefetchBytes);
      sums[line] |= *reinterpret_cast<const Line*>(at);
    }
  }
  const Line all = (sums[0] | sums[1]) | (sums[2] | sums[3]);
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= all[i];
  return bits;
}
