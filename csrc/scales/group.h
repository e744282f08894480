// One bf16 scale for 64 columns of a row: value = scale * (kFactor * code - kOffset).
template <int kFactor, int kOffset>
struct GroupScales {
  static constexpr int kNumParts = 1, kDots = 1, kInputScales = 1;
  static constexpr int kPartBytes[1] = {32}, kPartGroups[1] = {1};

  struct Group {
    f32x16 scale;
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    return {load_bf16(reinterpret_cast<const std::uint16_t*>(parts[0] + 32 * static_cast<std::int64_t>(g)))};
  }
  template <class Dot>
  static inline f32x16 apply(const Group& group, const Dot (&dots)[kDots], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    Dot dot = dots[0];
    if constexpr (kFactor == 2) dot = add(dot, dot);
    if constexpr (kOffset != 0) dot = sub(dot, splat_int(kOffset * sums.of64));
    return fma(to_float(dot), mul(group.scale, splat(*scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int, int code) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, parts[0] + 32 * static_cast<std::int64_t>(g) + 2 * lane, 2);
    return float_from_bf16(scale) * static_cast<float>(kFactor * code - kOffset);
  }
};
