// Two levels with a minimum (q2_k): per 16 columns a byte with a 4-bit sub-scale (low) and sub-minimum (high), per 256
// columns d and dmin in f16. value = (d * subscale) * code - (dmin * submin)
struct SuperMinNibbleScales {
  static constexpr int kNumParts = 2, kDots = 4, kInputScales = 1;
  static constexpr int kPartBytes[2] = {64, 64}, kPartGroups[2] = {4, 1};

  struct Group {
    f32x16 scale, minimum;
    i32x16 subscale[4];
    IntPairs submins[2];
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(parts[0] + 64 * static_cast<std::int64_t>(g / 4));
    Group group;
    group.scale = load_f16(scales);
    group.minimum = load_f16(scales + 16);
    i32x16 submin[4];
    for (int i = 0; i < 4; ++i) {
      const i32x16 both = load_u8(parts[1] + 64 * static_cast<std::int64_t>(g) + 16 * i);
      group.subscale[i] = and_int(both, 0x0f);
      submin[i] = shift_right<4>(both);
    }
    for (int i = 0; i < 2; ++i) group.submins[i] = pair(submin[2 * i], submin[2 * i + 1]);
    return group;
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    i32x16 scaled = splat_int(0);
    for (int i = 0; i < 4; ++i) scaled = add(scaled, mul(group.subscale[i], dots[i]));
    acc = fma(to_float(scaled), mul(group.scale, splat(*scale_x)), acc);
    return subtract_minima(group.minimum, group.submins, *scale_x, sums, acc);
  }
  // Minus the minimum times the sum of the activations: the sums enter negated.
  static inline f32x16 subtract_minima(f32x16 minimum, const IntPairs (&submins)[2], float scale_x,
                                       const GroupSums& sums, f32x16 acc) {
    const i32x16 minima = add(pair_dot(submins[0], pair_of(-sums.of16[0], -sums.of16[1])),
                              pair_dot(submins[1], pair_of(-sums.of16[2], -sums.of16[3])));
    return fma(to_float(minima), mul(minimum, splat(scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int column, int code) {
    std::uint16_t scale, minimum;
    const std::uint8_t* super = parts[0] + 64 * static_cast<std::int64_t>(g / 4) + 2 * lane;
    __builtin_memcpy(&scale, super, 2);
    __builtin_memcpy(&minimum, super + 32, 2);
    const std::uint8_t both = parts[1][64 * static_cast<std::int64_t>(g) + 16 * (column / 16) + lane];
    const float step = float_from_f16(scale) * static_cast<float>(both & 0x0f);
    const float offset = float_from_f16(minimum) * static_cast<float>(both >> 4);
    return step * static_cast<float>(code) - offset;
  }
};
