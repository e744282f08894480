// How a scale of 16 bits is widened.
struct HalfFloats {
  static inline f32x16 load(const std::uint16_t* p) { return load_f16(p); }
  static inline float widen(std::uint16_t bits) { return float_from_f16(bits); }
};
struct BrainFloats {
  static inline f32x16 load(const std::uint16_t* p) { return load_bf16(p); }
  static inline float widen(std::uint16_t bits) { return float_from_bf16(bits); }
};

// One scale for 256 columns of a row: value = scale * (code - kOffset).
template <class Floats, int kOffset>
struct FourGroupScales {
  static constexpr int kNumParts = 1, kDots = 1, kInputScales = 1;
  static constexpr int kPartBytes[1] = {32}, kPartGroups[1] = {4};

  struct Group {
    f32x16 scale;
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    return {Floats::load(reinterpret_cast<const std::uint16_t*>(parts[0] + 32 * static_cast<std::int64_t>(g / 4)))};
  }
  template <class Dot>
  static inline f32x16 apply(const Group& group, const Dot (&dots)[kDots], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    Dot dot = dots[0];
    if constexpr (kOffset != 0) dot = sub(dot, splat_int(kOffset * sums.of64));
    return fma(to_float(dot), mul(group.scale, splat(*scale_x)), acc);
  }

  static inline float value(const std::uint8_t* const parts[], int g, int lane, int, int code) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, parts[0] + 32 * static_cast<std::int64_t>(g / 4) + 2 * lane, 2);
    return Floats::widen(scale) * static_cast<float>(code - kOffset);
  }
  static inline void put(std::uint8_t* const parts[], int index, int lane, std::uint16_t scale) {
    __builtin_memcpy(parts[0] + 32 * static_cast<std::int64_t>(index) + 2 * lane, &scale, 2);
  }
};
