// Conversions between float32 and the 16-bit floats, by integer arithmetic: exact, the same bits on every machine.
#pragma once
#include <cstdint>

namespace edgert {

// Static, not inline: a file compiled for a newer instruction set must never lend its copy to the others.
static inline float float_from_bits(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

static inline std::uint32_t bits_from_float(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

static inline float float_from_bf16(std::uint16_t bits) {
  return float_from_bits(static_cast<std::uint32_t>(bits) << 16);
}

static inline float float_from_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return float_from_bits(bits_from_float(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 31 ? 255u : exponent + 112u;
  return float_from_bits(sign | (wide_exponent << 23) | (mantissa << 13));
}

// Rounds to nearest, ties to even; overflow gives infinity, NaN stays a quiet NaN.
static inline std::uint16_t f16_from_float(float value) {
  const std::uint32_t bits = bits_from_float(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  std::uint32_t kept, dropped, half;
  if (magnitude >= 0x38800000u) {  // 2^-14 and above: normal
    kept = (magnitude - 0x38000000u) >> 13;
    dropped = magnitude & 0x1fffu;
    half = 0x1000u;
  } else {
    const std::uint32_t shift = 126u - (magnitude >> 23);  // 14..., so that the result counts units of 2^-24
    if (shift > 24u) return static_cast<std::uint16_t>(sign);
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    kept = mantissa >> shift;
    dropped = mantissa & ((1u << shift) - 1u);
    half = 1u << (shift - 1u);
  }
  if (dropped > half || (dropped == half && (kept & 1u))) ++kept;
  return static_cast<std::uint16_t>(sign | kept);
}

}  // namespace edgert
