// Two levels (q3_k, q6_k): per 16 columns a signed 8-bit sub-scale, per 256 columns d in f16.
// value = (d * subscale) * (code - kOffset)
template <int kOffset>
struct SuperScales {
  static constexpr int kNumParts = 2, kDots = 4, kInputScales = 1;
  static constexpr int kPartBytes[2] = {32, 64}, kPartGroups[2] = {4, 1};

  struct Group {
    f32x16 scale;
    i32x16 subscale[4];
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    const std::uint8_t* sub = parts[1] + 64 * static_cast<std::int64_t>(g);
    return {load_f16(reinterpret_cast<const std::uint16_t*>(parts[0] + 32 * static_cast<std::int64_t>(g / 4))),
            {load_s8(sub), load_s8(sub + 16), load_s8(sub + 32), load_s8(sub + 48)}};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    i32x16 total = splat_int(0);
    for (int i = 0; i < 4; ++i) {
      total = add(total, mul(group.subscale[i], sub(dots[i], splat_int(kOffset * sums.of16[i]))));
    }
    return fma(to_float(total), mul(group.scale, splat(*scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int column, int code) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, parts[0] + 32 * static_cast<std::int64_t>(g / 4) + 2 * lane, 2);
    const std::uint8_t sub = parts[1][64 * static_cast<std::int64_t>(g) + 16 * (column / 16) + lane];
    const float step = float_from_f16(scale) * static_cast<float>(static_cast<std::int8_t>(sub));
    return step * static_cast<float>(code - kOffset);
  }
};
