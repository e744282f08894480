// How keys and values lie in the KV cache.
#pragma once
#include <cstdint>

namespace edgert {

enum class KVFormat : std::uint8_t { f32, f16 };
inline constexpr int kPageTokens = 64;  // positions of a KV page, and of a block of attention

// 64 positions of one KV head. k: [4 tiles][head_dim][16 positions]; v: [64 positions][head_dim].
struct KVBlock {
  const void* k;
  const void* v;
};

}  // namespace edgert
