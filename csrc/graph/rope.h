// Rotary position tables (Su et al. 2021, RoFormer), made in double by our own functions: the same bits everywhere.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace edgert {

// `type`, `scalars` and `lists` hold config.json's rope_parameters.
struct RopeSpec {
  std::int32_t head_dim = 0, rotary_dim = 0;
  double theta = 10000.0;
  std::int64_t max_position_embeddings = 0;
  std::string type = "default";
  std::map<std::string, double> scalars;
  std::map<std::string, std::vector<double>> lists;
};

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  double attention_factor = 1.0;
};

// Scaling types as in transformers: default, linear, dynamic, yarn, llama3, longrope.
// Types that depend on the length take `context`. Throws std::invalid_argument for an unknown type or a missing
// value.
RopeFrequencies rope_frequencies(const RopeSpec& spec, std::int64_t context);

// cos and sin of position * inv_freq, times the attention factor; each [rotary_dim / 2].
void rope_angles(const RopeFrequencies& frequencies, std::int32_t position, float* cos, float* sin);

}  // namespace edgert
