// One f16 scale for 256 columns of a row: value = scale * (code - kOffset).
template <int kOffset>
struct FourGroupScales {
  static constexpr int kNumParts = 1, kDots = 1, kInputScales = 1;
  static constexpr int kPartBytes[1] = {32}, kPartGroups[1] = {4};

  struct Group {
    f32x16 scale;
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    return {load_f16(reinterpret_cast<const std::uint16_t*>(parts[0] + 32 * static_cast<std::int64_t>(g / 4)))};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    const i32x16 dot = sub(dots[0], splat_int(kOffset * sums.of64));
    return fma(to_float(dot), mul(group.scale, splat(*scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int, int code) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, parts[0] + 32 * static_cast<std::int64_t>(g / 4) + 2 * lane, 2);
    return float_from_f16(scale) * static_cast<float>(code - kOffset);
  }
  static inline void put(std::uint8_t* const parts[], int index, int lane, std::uint16_t scale) {
    __builtin_memcpy(parts[0] + 32 * static_cast<std::int64_t>(index) + 2 * lane, &scale, 2);
  }
};
