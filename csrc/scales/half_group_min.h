// One f16 scale and one f16 minimum for 32 columns of a row: value = scale * code + minimum. In both parts 16 numbers
// of the first half, then 16 more; the activations have a scale for every 32 columns.
struct HalfGroupMinScales {
  static constexpr int kNumParts = 2, kDots = 2, kInputScales = 2;
  static constexpr int kPartBytes[2] = {64, 64}, kPartGroups[2] = {1, 1};

  struct Group {
    f32x16 scale[2], minimum[2];
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(parts[0] + 64 * static_cast<std::int64_t>(g));
    const auto* minima = reinterpret_cast<const std::uint16_t*>(parts[1] + 64 * static_cast<std::int64_t>(g));
    return {{load_f16(scales), load_f16(scales + 16)}, {load_f16(minima), load_f16(minima + 16)}};
  }
  template <class Dot>
  static inline f32x16 apply(const Group& group, const Dot (&dots)[kDots], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    for (int half = 0; half < 2; ++half) {
      const f32x16 step_x = splat(scale_x[half]);
      acc = fma(to_float(dots[half]), mul(group.scale[half], step_x), acc);
      acc = fma(splat(static_cast<float>(sums.of32[half])), mul(group.minimum[half], step_x), acc);
    }
    return acc;
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int column, int code) {
    const std::int64_t at = 64 * static_cast<std::int64_t>(g) + 32 * (column / 32) + 2 * lane;
    std::uint16_t scale, minimum;
    __builtin_memcpy(&scale, parts[0] + at, 2);
    __builtin_memcpy(&minimum, parts[1] + at, 2);
    return float_from_f16(scale) * static_cast<float>(code) + float_from_f16(minimum);
  }
  static inline void put(std::uint8_t* const parts[], int g, int half, int lane, std::uint16_t scale,
                         std::uint16_t minimum) {
    const std::int64_t at = 64 * static_cast<std::int64_t>(g) + 32 * half + 2 * lane;
    __builtin_memcpy(parts[0] + at, &scale, 2);
    __builtin_memcpy(parts[1] + at, &minimum, 2);
  }
};
