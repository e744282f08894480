// Two levels: a signed 8-bit sub-scale for each of the kRuns runs of a group (q3_k, q6_k: 4 runs of 16 columns; iq4_xs:
// 2 of 32), d in f16 per 256 columns. value = (d * subscale) * (code - kOffset)
template <int kRuns, int kOffset>
struct SuperScales {
  static constexpr int kNumParts = 2, kDots = kRuns, kInputScales = 1;
  static constexpr int kPartBytes[2] = {32, 16 * kRuns}, kPartGroups[2] = {4, 1};

  struct Group {
    f32x16 scale;
    i32x16 subscale[kRuns];
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    Group group;
    group.scale = load_f16(reinterpret_cast<const std::uint16_t*>(parts[0] + 32 * static_cast<std::int64_t>(g / 4)));
    const std::uint8_t* sub = parts[1] + kPartBytes[1] * static_cast<std::int64_t>(g);
    for (int i = 0; i < kRuns; ++i) group.subscale[i] = load_s8(sub + 16 * i);
    return group;
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    i32x16 total = splat_int(0);
    for (int i = 0; i < kRuns; ++i) {
      i32x16 dot = dots[i];
      if constexpr (kOffset != 0) dot = sub(dot, splat_int(kOffset * activation_sum<kRuns>(sums, i)));
      total = add(total, mul(group.subscale[i], dot));
    }
    return fma(to_float(total), mul(group.scale, splat(*scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int column, int code) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, parts[0] + 32 * static_cast<std::int64_t>(g / 4) + 2 * lane, 2);
    const std::uint8_t sub =
        parts[1][kPartBytes[1] * static_cast<std::int64_t>(g) + 16 * (column / (kGroupColumns / kRuns)) + lane];
    const float step = float_from_f16(scale) * static_cast<float>(static_cast<std::int8_t>(sub));
    return step * static_cast<float>(code - kOffset);
  }
};
