#include "graph/rope.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/math.h"

namespace edgert {
namespace {

constexpr double kPi = 3.14159265358979323846;

double scalar_or(const RopeSpec& spec, const char* name, double fallback) {
  const auto it = spec.scalars.find(name);
  return it == spec.scalars.end() ? fallback : it->second;
}

double scalar(const RopeSpec& spec, const char* name) {
  const auto it = spec.scalars.find(name);
  if (it == spec.scalars.end())
    throw std::invalid_argument("rope scaling " + spec.type + ": found no " + name + ", expected a number");
  return it->second;
}

const std::vector<double>& factors(const RopeSpec& spec, const char* name) {
  const auto it = spec.lists.find(name);
  const std::size_t expected = static_cast<std::size_t>(spec.rotary_dim / 2);
  if (it == spec.lists.end() || it->second.size() != expected)
    throw std::invalid_argument("rope scaling " + spec.type + ": expected " + std::to_string(expected) + " values in " +
                                name);
  return it->second;
}

double original_positions(const RopeSpec& spec) {
  return scalar_or(spec, "original_max_position_embeddings", static_cast<double>(spec.max_position_embeddings));
}

// theta^(-2i / rotary_dim)
std::vector<double> plain_frequencies(const RopeSpec& spec, double theta) {
  std::vector<double> out(static_cast<std::size_t>(spec.rotary_dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = 1.0 / math::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(spec.rotary_dim));
  return out;
}

// Peng et al. 2023 (YaRN), equations 17 to 22.
std::vector<double> yarn_frequencies(const RopeSpec& spec, double& attention_factor) {
  const double positions = original_positions(spec);
  const double factor = scalar_or(spec, "factor", static_cast<double>(spec.max_position_embeddings) / positions);
  const auto mscale = [](double scale, double m) { return scale <= 1 ? 1.0 : 0.1 * m * math::log(scale) + 1.0; };
  const double m = scalar_or(spec, "mscale", 0), m_all = scalar_or(spec, "mscale_all_dim", 0);
  const double inferred = m != 0 && m_all != 0 ? mscale(factor, m) / mscale(factor, m_all) : mscale(factor, 1);
  attention_factor = scalar_or(spec, "attention_factor", inferred);
  const double dim = spec.rotary_dim;
  const auto correction = [&](double rotations) {
    return dim * math::log(positions / (rotations * 2 * kPi)) / (2 * math::log(spec.theta));
  };
  double low = correction(scalar_or(spec, "beta_fast", 32)), high = correction(scalar_or(spec, "beta_slow", 1));
  if (scalar_or(spec, "truncate", 1) != 0) {
    low = std::floor(low);
    high = -std::floor(-high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  std::vector<double> out = plain_frequencies(spec, spec.theta);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    out[i] = out[i] / factor * ramp + out[i] * (1 - ramp);
  }
  return out;
}

// Dubey et al. 2024 (Llama 3): long waves are stretched, short ones kept, those between blended.
std::vector<double> llama3_frequencies(const RopeSpec& spec) {
  const double factor = scalar(spec, "factor"), low = scalar(spec, "low_freq_factor"),
               high = scalar(spec, "high_freq_factor");
  const double positions = original_positions(spec);
  std::vector<double> out = plain_frequencies(spec, spec.theta);
  for (double& f : out) {
    const double wavelength = 2 * kPi / f;
    if (wavelength < positions / high) continue;
    if (wavelength > positions / low) {
      f /= factor;
      continue;
    }
    const double smooth = (positions / wavelength - low) / (high - low);
    f = (1 - smooth) * f / factor + smooth * f;
  }
  return out;
}

std::vector<double> divided_frequencies(const RopeSpec& spec, const std::vector<double>& divisors) {
  std::vector<double> out = plain_frequencies(spec, spec.theta);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] /= divisors[i];
  return out;
}

// Ding et al. 2024 (LongRoPE).
std::vector<double> longrope_frequencies(const RopeSpec& spec, std::int64_t context, double& attention_factor) {
  const double positions = original_positions(spec);
  const double factor = scalar_or(spec, "factor", static_cast<double>(spec.max_position_embeddings) / positions);
  const double inferred = factor <= 1 ? 1.0 : std::sqrt(1 + math::log(factor) / math::log(positions));
  attention_factor = scalar_or(spec, "attention_factor", inferred);
  return divided_frequencies(spec,
                             factors(spec, static_cast<double>(context) > positions ? "long_factor" : "short_factor"));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeSpec& spec, std::int64_t context) {
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0 || spec.rotary_dim > spec.head_dim || !(spec.theta > 0))
    throw std::invalid_argument("rope: found rotary_dim " + std::to_string(spec.rotary_dim) +
                                ", expected an even number up to head_dim " + std::to_string(spec.head_dim));
  RopeFrequencies out;
  std::vector<double> f;
  if (spec.type == "default") {
    f = plain_frequencies(spec, spec.theta);
  } else if (spec.type == "linear") {
    f = divided_frequencies(spec,
                            std::vector<double>(static_cast<std::size_t>(spec.rotary_dim / 2), scalar(spec, "factor")));
  } else if (spec.type == "dynamic") {
    const double factor = scalar(spec, "factor"), dim = spec.rotary_dim;
    const double trained = static_cast<double>(spec.max_position_embeddings);
    const double length = std::max(static_cast<double>(context), trained);
    f = plain_frequencies(spec, spec.theta * math::pow(factor * length / trained - (factor - 1), dim / (dim - 2)));
  } else if (spec.type == "yarn") {
    f = yarn_frequencies(spec, out.attention_factor);
  } else if (spec.type == "llama3") {
    f = llama3_frequencies(spec);
  } else if (spec.type == "longrope") {
    f = longrope_frequencies(spec, context, out.attention_factor);
  } else {
    throw std::invalid_argument("rope scaling: found type '" + spec.type +
                                "', expected default, linear, dynamic, yarn, llama3 or longrope");
  }
  for (const double x : f) out.inv_freq.push_back(static_cast<float>(x));
  return out;
}

void rope_angles(const RopeFrequencies& frequencies, std::int32_t position, float* cos, float* sin) {
  for (std::size_t i = 0; i < frequencies.inv_freq.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies.inv_freq[i];
    cos[i] = static_cast<float>(math::cos(angle) * frequencies.attention_factor);
    sin[i] = static_cast<float>(math::sin(angle) * frequencies.attention_factor);
  }
}

}  // namespace edgert
