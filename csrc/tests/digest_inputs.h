// Inputs and hashes of the digest program: integers first, so that they are the same everywhere.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/float16.h"

namespace edgert {

// xorshift64* (Vigna 2016).
class DigestIntegers {
 public:
  explicit DigestIntegers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 2685821657736338717ull;
  }
  // A sum of four 16-bit integers, scaled by 2^exponent: bell-shaped, exact in float32.
  float value(int exponent) {
    const std::uint64_t x = next();
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int16_t>(x >> (16 * i));
    return static_cast<float>(sum) * float_from_bits(static_cast<std::uint32_t>(exponent + 127) << 23);
  }
  std::vector<float> values(std::int64_t n, int exponent) {
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& v : out) v = value(exponent);
    return out;
  }
  std::vector<std::uint8_t> bytes(std::int64_t n) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n));
    for (std::uint8_t& b : out) b = static_cast<std::uint8_t>(next() >> 56);
    return out;
  }

 private:
  std::uint64_t state_;
};

// FNV-1a over 32-bit words.
class DigestHash {
 public:
  void add_bytes(const void* data, std::size_t num_bytes) {
    const auto* p = static_cast<const std::uint8_t*>(data);
    for (std::size_t i = 0; i < num_bytes; ++i) add(p[i]);
  }
  void add(std::uint64_t word) { state_ = (state_ ^ word) * 1099511628211ull; }
  void add_floats(const float* p, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) add(bits_from_float(p[i]));
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 14695981039346656037ull;
};

}  // namespace edgert
