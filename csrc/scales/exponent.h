// A power of two for 32 columns of a row, as its exponent in a byte: value = 2^(exponent - 128) * (code - kOffset).
// 16 exponents of the first half, then 16 more; the activations have a scale for every 32 columns.
template <int kOffset>
struct ExponentScales {
  static constexpr int kNumParts = 1, kDots = 2, kInputScales = 2;
  static constexpr int kPartBytes[1] = {32}, kPartGroups[1] = {1};

  struct Group {
    f32x16 scale[2];
  };
  static inline Group load_group(const std::uint8_t* const parts[], int g) {
    const std::uint8_t* exponents = parts[0] + 32 * static_cast<std::int64_t>(g);
    return {{power(load_u8(exponents)), power(load_u8(exponents + 16))}};
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
    const std::uint32_t exponent = parts[0][32 * static_cast<std::int64_t>(g) + 16 * (column / 32) + lane];
    const float scale = float_from_bits(exponent < 2 ? kSmallest << exponent : (exponent - 1) << 23);
    return scale * static_cast<float>(code - kOffset);
  }
  static inline void put(std::uint8_t* const parts[], int g, int half, int lane, std::uint8_t exponent) {
    parts[0][32 * static_cast<std::int64_t>(g) + 16 * half + lane] = exponent;
  }

 private:
  static constexpr std::uint32_t kSmallest = 0x00200000;  // 2^-128 is subnormal, and so is 2^-127

  // The exponent moved into place; the second line is the larger one for the two subnormal powers only.
  static inline f32x16 power(i32x16 exponent) {
    const i32x16 normal = sub(shift_left<23>(exponent), splat_int(1 << 23));
    const i32x16 subnormal = add(shift_left<21>(exponent), splat_int(kSmallest));
    return from_bits(max(normal, subnormal));
  }
};
