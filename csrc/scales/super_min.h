// Two levels with a minimum (q4_k, q5_k): per 32 columns a 6-bit sub-scale and sub-minimum, per 256 columns d and dmin
// in f16. value = (d * subscale) * code - (dmin * submin)
struct SuperMinScales {
  static constexpr int kNumParts = 3, kDots = 2, kInputScales = 1;
  static constexpr int kPartBytes[3] = {64, 32, 32}, kPartGroups[3] = {4, 1, 1};

  struct Group {
    f32x16 scale, minimum;
    i32x16 subscale[2];
    IntPairs submins;
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(parts[0] + 64 * static_cast<std::int64_t>(g / 4));
    const std::uint8_t* subscales = parts[1] + 32 * static_cast<std::int64_t>(g);
    const std::uint8_t* submins = parts[2] + 32 * static_cast<std::int64_t>(g);
    return {load_f16(scales),
            load_f16(scales + 16),
            {load_u8(subscales), load_u8(subscales + 16)},
            pair(load_u8(submins), load_u8(submins + 16))};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    const i32x16 scaled = add(mul(group.subscale[0], dots[0]), mul(group.subscale[1], dots[1]));
    acc = fma(to_float(scaled), mul(group.scale, splat(*scale_x)), acc);
    return subtract_minima(group.minimum, group.submins, *scale_x, sums, acc);
  }

  // Minus the minimum times the sum of the activations: the sums enter negated.
  static inline f32x16 subtract_minima(f32x16 minimum, IntPairs submins, float scale_x, const GroupSums& sums,
                                       f32x16 acc) {
    return fma(to_float(pair_dot(submins, sums.minus32)), mul(minimum, splat(scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int column, int code) {
    std::uint16_t scale, minimum;
    const std::uint8_t* super = parts[0] + 64 * static_cast<std::int64_t>(g / 4) + 2 * lane;
    __builtin_memcpy(&scale, super, 2);
    __builtin_memcpy(&minimum, super + 32, 2);
    const std::int64_t sub = 32 * static_cast<std::int64_t>(g) + 16 * (column / 32) + lane;
    const float step = float_from_f16(scale) * static_cast<float>(parts[1][sub]);
    const float offset = float_from_f16(minimum) * static_cast<float>(parts[2][sub]);
    return step * static_cast<float>(code) - offset;
  }

  // From a block of 256 columns. Runs 0 to 3 have their six bits in bytes 0..3 (scales) and 4..7 (minima) of b; of runs
  // 4 to 7 the low four bits are in bytes 8..11 and the high two on top of the first eight bytes.
  static inline void put(std::uint8_t* const parts[], int index, int lane, std::uint16_t scale, std::uint16_t minimum,
                         const std::uint8_t (&b)[12]) {
    std::uint8_t* super = parts[0] + 64 * static_cast<std::int64_t>(index) + 2 * lane;
    __builtin_memcpy(super, &scale, 2);
    __builtin_memcpy(super + 32, &minimum, 2);
    for (int run = 0; run < 8; ++run) {
      const int sub = run < 4 ? b[run] & 63 : (b[run + 4] & 0x0f) | ((b[run - 4] >> 6) << 4);
      const int min = run < 4 ? b[run + 4] & 63 : (b[run + 4] >> 4) | ((b[run] >> 6) << 4);
      const std::int64_t at = 16 * (8 * static_cast<std::int64_t>(index) + run) + lane;
      parts[1][at] = static_cast<std::uint8_t>(sub);
      parts[2][at] = static_cast<std::uint8_t>(min);
    }
  }
};
