// Matrix products that read only the columns of active neurons: those whose activation is not 0 for some token. The
// integer dot of a group is the same in any order and without its zeros, so these are the bits of linear.inl.h.
#include "codes/neuron.h"

// Formats whose codes may lie neuron by neuron: plain codes, one scale for a row and a group.
template <class F>
constexpr bool has_neurons() {
  if constexpr (requires { F::Codes::kCodeBits; }) {
    return F::Scales::kNumParts == 1 && F::Scales::kDots == 1 && F::Scales::kPartGroups[0] == 1;
  } else {
    return false;
  }
}

// The dot of 16 rows with num_quads quads of columns.
template <class Codes>
static inline i32x16 neuron_dot(const Bytes* quads, int num_quads, const std::int8_t* x, std::int32_t activation_sum) {
  if constexpr (Codes::kIsSigned) {
    i32x16 sum = signed_start(activation_sum);
    for (int q = 0; q < num_quads; ++q) sum = signed_dot(sum, quads[q], x + 4 * q);
    return sum;
  } else {
    constexpr int kSafe = kDotCapacity / Codes::kMaxCode;
    static_assert(kSafe >= 1);
    i32x16 total = splat_int(0);
    for (int q = 0; q < num_quads;) {
      const int end = num_quads - q < kSafe ? num_quads : q + kSafe;
      DotSum sum = no_sum();
      for (; q < end; ++q) sum = dot(sum, quads[q], x + 4 * q);
      total = add(total, widen(sum));
    }
    return total;
  }
}

// The active columns of one group: their records, and the codes of a tile of tokens, in quads. What fills up the last
// quad is multiplied by 0.
struct ActiveGroup {
  const std::uint8_t* records[kGroupColumns];
  alignas(64) std::int8_t codes[kTileTokens][kGroupColumns];
  int num_quads;

  ActiveGroup(const ActiveNeurons& neurons, int g, const TokenInput* tokens, int num_tokens, std::int64_t step) {
    const int first = neurons.group_starts[g], num = neurons.group_starts[g + 1] - first;
    num_quads = (num + 3) / 4;
    for (int i = 0; i < 4 * num_quads; ++i) records[i] = neurons.records[first + (i < num ? i : 0)];
    for (int t = 0; t < num_tokens; ++t) {
      const std::int8_t* all = tokens[t].codes + g * step;
      for (int i = 0; i < 4 * num_quads; ++i) {
        codes[t][i] = i < num ? all[neurons.columns[first + i] % kGroupColumns] : static_cast<std::int8_t>(0);
      }
    }
  }
};

template <class F>
static void linear_neurons(const WeightView& w, const LinearInput& x, const LinearOutput& y,
                           const ActiveNeurons& neurons, int first_group, int last_group, int first_strip,
                           int last_strip) {
  using Codes = typename F::Codes;
  using Scales = typename F::Scales;
  const std::int64_t step = codes_step(x.tile_vectors);
  const std::uint8_t* const tables[] = {w.parts[Scales::kNumParts]};
  for (int first = 0; first < x.tokens; first += kTileTokens) {
    const int num_tokens = x.tokens - first < kTileTokens ? x.tokens - first : kTileTokens;
    TokenInput tokens[kTileTokens];
    for (int t = 0; t < num_tokens; ++t) tokens[t] = token_input<F>(x, first + t);
    float* out = y.y + first * y.stride;
    if (first_group == 0) {
      for (int t = 0; t < num_tokens; ++t) {
        for (int s = first_strip; s < last_strip; ++s) store(out + t * y.stride + s * kStripRows, zero());
      }
    }
    for (int g = first_group; g < last_group; ++g) {
      const ActiveGroup active(neurons, g, tokens, num_tokens, step);
      for (int s = first_strip; s < last_strip; ++s) {
        Bytes quads[kGroupColumns / 4];
        for (int q = 0; q < active.num_quads; ++q) {
          alignas(64) std::uint32_t codes[kStripRows];
          unpack_neurons(active.records + 4 * q, std::int64_t{s} * 2 * neurons.bits, neurons.bits,
                         neurons.bits - Codes::kCodeBits, codes);
          quads[q] = Codes::quad(tables, load_bytes(reinterpret_cast<const std::uint8_t*>(codes)));
        }
        const std::uint8_t* const scales[] = {w.parts[0] + std::int64_t{s} * w.groups * Scales::kPartBytes[0]};
        const typename Scales::Group group = Scales::load_group(scales, g);
        for (int t = 0; t < num_tokens; ++t) {
          // Also where no neuron is active: a scale that is infinite makes its rows NaN.
          const GroupSums& sums = tokens[t].sums[g];
          const i32x16 dots[1] = {neuron_dot<Codes>(quads, active.num_quads, active.codes[t], sums.of64)};
          float* rows = out + t * y.stride + s * kStripRows;
          store(rows, Scales::apply(group, dots, tokens[t].scales + g, sums, load(rows)));
        }
      }
    }
  }
  if (last_group < w.groups) return;
  for (int s = first_strip; s < last_strip; ++s) {
    for (int t = 0; t < x.tokens; ++t) finish_rows(w, x, y, s, t);
  }
}
