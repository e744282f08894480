// One f16 scale for 32 columns of a row: value = scale * (code - kOffset). 16 scales of the first half, then 16 more.
// The float line runs for every 32 columns, so the activations have a scale for every 32 too.
template <int kOffset>
struct HalfGroupScales {
  static constexpr int kNumParts = 1, kDots = 2, kInputScales = 2;
  static constexpr int kPartBytes[1] = {64}, kPartGroups[1] = {1};

  struct Group {
    f32x16 scale[2];
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(parts[0] + 64 * static_cast<std::int64_t>(g));
    return {{load_f16(scales), load_f16(scales + 16)}};
  }
  template <class Dot>
  static inline f32x16 apply(const Group& group, const Dot (&dots)[kDots], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    for (int half = 0; half < 2; ++half) {
      Dot dot = dots[half];
      if constexpr (kOffset != 0) dot = sub(dot, splat_int(kOffset * sums.of32[half]));
      acc = fma(to_float(dot), mul(group.scale[half], splat(scale_x[half])), acc);
    }
    return acc;
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int column, int code) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, parts[0] + 64 * static_cast<std::int64_t>(g) + 32 * (column / 32) + 2 * lane, 2);
    return float_from_f16(scale) * static_cast<float>(code - kOffset);
  }
  static inline void put(std::uint8_t* const parts[], int g, int half, int lane, std::uint16_t scale) {
    __builtin_memcpy(parts[0] + 64 * static_cast<std::int64_t>(g) + 32 * half + 2 * lane, &scale, 2);
  }
};
