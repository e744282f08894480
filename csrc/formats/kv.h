// How keys and values lie in the KV cache (docs/numerics.md, section 5).
#pragma once
#include <cstdint>

namespace edgert {

enum class KVFormat : std::uint8_t { f32, f16, q8_0 };
inline constexpr const char* kKVFormatNames[] = {"f32", "f16", "q8_0"};
inline constexpr int kNumKVFormats = 3;
inline constexpr int kPageTokens = 64;  // positions of a KV page, and of a block of attention
inline constexpr int kKVRun = 32;  // q8_0: values of the head dimension that share a scale; the last run may be short

// 64 positions of one KV head. k: [4 tiles][head_dim][16 positions]; v: [64 positions][head_dim].
// q8_0: int8 codes in this order, then the f16 scales [runs of the head dimension][64 positions].
struct KVBlock {
  const void* k;
  const void* v;
};

inline constexpr std::int64_t kv_runs(std::int64_t head_dim) { return (head_dim + kKVRun - 1) / kKVRun; }

// Bytes of the keys, or of the values, of a block.
inline constexpr std::int64_t kv_block_bytes(KVFormat format, std::int64_t head_dim) {
  switch (format) {
    case KVFormat::f32:
      return kPageTokens * head_dim * 4;
    case KVFormat::f16:
      return kPageTokens * head_dim * 2;
    default:
      return kPageTokens * (head_dim + 2 * kv_runs(head_dim));
  }
}

}  // namespace edgert
