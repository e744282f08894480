#include "graph/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/memory.h"
#include "kernels/kernel_table.h"

namespace edgert {
namespace {

constexpr std::int64_t kBufferAlignment = 64;

StepKind elementwise_kind(Op op) {
  switch (op) {
    case Op::silu_mul:
      return StepKind::silu_mul;
    case Op::gelu_mul:
      return StepKind::gelu_mul;
    case Op::relu2:
      return StepKind::relu2;
    case Op::scale:
      return StepKind::scale;
    case Op::soft_cap:
      return StepKind::soft_cap;
    default:
      return StepKind::add;
  }
}

class Compiler {
 public:
  Compiler(const Graph& graph, const WeightStore& store, const KernelTable& kernels, std::int32_t round_rows,
           std::int32_t max_rows)
      : graph_(graph), store_(store), kernels_(kernels) {
    plan_.round_rows = round_rows;
    plan_.max_rows = max_rows;
  }

  Plan run() {
    find_last_uses();
    if (!graph_.ropes.empty()) push({.kind = StepKind::rope_tables});
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) add_node(i);
    measure_lives();
    find_segments();
    place_buffers();
    plan_.barrier = find_barriers(false);
    plan_.barrier_alone = find_barriers(true);
    return std::move(plan_);
  }

 private:
  void find_last_uses() {
    const auto num_nodes = static_cast<std::int32_t>(graph_.nodes.size());
    last_use_.assign(graph_.nodes.size(), -1);
    for (std::int32_t i = 0; i < num_nodes; ++i) {
      const Node& n = graph_.nodes[static_cast<std::size_t>(i)];
      for (const std::int32_t input : n.inputs) last_use_[static_cast<std::size_t>(input)] = i;
      if (n.op == Op::attention) last_attention_ = i;
    }
    last_use_[static_cast<std::size_t>(graph_.output)] = num_nodes;
    value_.assign(graph_.nodes.size(), -1);
    find_logits();
  }

  // The output, and what becomes it in place: a buffer of the arena for them would be as large as the logits.
  void find_logits() {
    is_logits_.assign(graph_.nodes.size(), 0);
    for (std::int32_t i = graph_.output;;) {
      is_logits_[static_cast<std::size_t>(i)] = 1;
      const Node& n = graph_.nodes[static_cast<std::size_t>(i)];
      if (n.op != Op::scale && n.op != Op::soft_cap) return;
      const std::int32_t input = n.inputs[0];
      if (input <= last_attention_ || last_use_[static_cast<std::size_t>(input)] != i) return;
      i = input;
    }
  }

  Step& push(const Step& step) {
    plan_.steps.push_back(step);
    return plan_.steps.back();
  }

  std::int64_t row_count(Rows rows, std::int32_t top_k) const {
    const bool by_expert = rows == Rows::token_experts || rows == Rows::logit_experts;
    return std::int64_t{plan_.round_rows} * (by_expert ? top_k : 1);
  }

  std::int32_t add(const Buffer& b) {
    plan_.buffers.push_back(b);
    return static_cast<std::int32_t>(plan_.buffers.size()) - 1;
  }

  std::int32_t add_buffer(Rows rows, std::int32_t width, std::int32_t top_k = 1) {
    Buffer b{.rows = rows, .width = width, .stride = static_cast<std::int32_t>(round_up(width, kGroupColumns))};
    set_rows(b, row_count(rows, top_k));
    return add(b);
  }

  // Integers that belong to no row.
  std::int32_t add_list(std::int64_t num_ints) { return add({.num_bytes = num_ints * 4}); }

  // Room for so many rows; tables stay behind them.
  static void set_rows(Buffer& b, std::int64_t count) {
    if (b.scale_columns == 0) {
      b.num_bytes = count * b.stride * 4;
      return;
    }
    const std::int64_t tables_bytes = b.tables_offset == 0 ? 0 : b.num_bytes - b.tables_offset;
    count = round_up(count, kTileVectors);
    b.scales_offset = round_up(count * b.stride, kBufferAlignment);
    b.sums_offset = b.scales_offset + round_up(count * (b.stride / b.scale_columns) * 4, kBufferAlignment);
    b.num_bytes = b.sums_offset + count * (b.stride / kGroupColumns) * static_cast<std::int64_t>(sizeof(GroupSums));
    if (tables_bytes > 0) place_tables(b, tables_bytes);
  }

  static void place_tables(Buffer& b, std::int64_t num_bytes) {
    b.tables_offset = round_up(b.num_bytes, kBufferAlignment);
    b.num_bytes = b.tables_offset + num_bytes;
  }

  std::int32_t add_quantized_buffer(Rows rows, std::int32_t width, int index, std::int32_t top_k = 1) {
    Buffer b{.rows = rows, .width = width, .stride = static_cast<std::int32_t>(padded_columns(width))};
    b.scale_columns = index == 0 ? kGroupColumns : kGroupColumns / 2;
    set_rows(b, row_count(rows, top_k));
    return add(b);
  }

  // Gives the codes of an input tables, if the weight may be multiplied through them.
  void add_tables(WeightId id, std::int32_t codes, std::int32_t top_k = 1) {
    Buffer& b = plan_.buffers[static_cast<std::size_t>(codes)];
    if (b.tables_offset != 0 || !needs_tables(kernels_.linear[static_cast<int>(store_.describe(id).format)])) return;
    place_tables(b, std::int64_t{top_k} * (b.stride / kGroupColumns) * static_cast<std::int64_t>(sizeof(LutTables)));
  }

  int reads(WeightId id) const { return codes_index(store_.describe(id).format); }

  // The codes of a value, made once for all the matrices that read it.
  std::int32_t quantized(std::int32_t buffer, int index) {
    const auto it = codes_.find({buffer, index});
    if (it != codes_.end()) return it->second;
    const Rows rows = plan_.buffers[static_cast<std::size_t>(buffer)].rows;
    const std::int32_t codes = add_quantized_buffer(rows, plan_.buffers[static_cast<std::size_t>(buffer)].width, index);
    push({.kind = StepKind::quantize, .in = {buffer, -1, -1}, .out = codes, .rows = rows});
    codes_[{buffer, index}] = codes;
    return codes;
  }

  // The buffer of an input. Behind the last attention only the rows whose logits are asked for go on.
  std::int32_t input(std::int32_t node, std::size_t i) {
    const std::int32_t from = graph_.nodes[static_cast<std::size_t>(node)].inputs[i];
    if (node <= last_attention_ || from > last_attention_) return value_[static_cast<std::size_t>(from)];
    const auto it = gathered_.find(from);
    if (it != gathered_.end()) return it->second;
    const std::int32_t out = add_buffer(Rows::logits, graph_.nodes[static_cast<std::size_t>(from)].width);
    push({.kind = StepKind::gather,
          .in = {value_[static_cast<std::size_t>(from)], -1, -1},
          .out = out,
          .rows = Rows::logits});
    gathered_[from] = out;
    return out;
  }

  // The output may take the input's place when nobody reads the input later.
  std::int32_t output(std::int32_t node, Rows rows, std::int32_t reusable = -1, std::int32_t reusable_node = -1) {
    if (is_logits_[static_cast<std::size_t>(node)] != 0) return kLogits;
    if (reusable >= 0 && last_use_[static_cast<std::size_t>(reusable_node)] == node) {
      codes_.erase({reusable, 0});
      codes_.erase({reusable, 1});
      return reusable;
    }
    return add_buffer(rows, graph_.nodes[static_cast<std::size_t>(node)].width);
  }

  void add_node(std::int32_t index) {
    const Node& n = graph_.nodes[static_cast<std::size_t>(index)];
    const Rows rows = index > last_attention_ ? Rows::logits : Rows::tokens;
    Step step{.node = index, .rows = rows};
    for (std::size_t i = 0; i < n.inputs.size(); ++i) step.in[i] = input(index, i);
    const std::int32_t first = n.inputs.empty() ? -1 : n.inputs[0];
    switch (n.op) {
      case Op::embed:
        step.kind = StepKind::embed;
        step.out = output(index, rows);
        break;
      case Op::rms_norm:
        step.kind = StepKind::rms_norm;
        step.out = output(index, rows, step.in[0], first);
        break;
      case Op::rope:
        step.kind = StepKind::rope;
        step.out = output(index, rows, step.in[0], first);
        break;
      case Op::add:
      case Op::silu_mul:
      case Op::gelu_mul:
      case Op::relu2:
      case Op::scale:
      case Op::soft_cap:
        step.kind = elementwise_kind(n.op);
        step.out = output(index, rows, step.in[0], first);
        break;
      case Op::linear:
        step.kind = StepKind::linear;
        step.is_parallel_alone = true;
        if (const int i = reads(n.weights[0]); i >= 0) {
          step.quantized[i] = quantized(step.in[0], i);
          add_tables(n.weights[0], step.quantized[i]);
        }
        step.out = output(index, rows);
        break;
      case Op::attention: {
        push({.kind = StepKind::store_kv, .node = index, .in = {step.in[1], step.in[2], -1}});
        step.kind = StepKind::attention;
        step.is_parallel_alone = true;
        step.in[1] = step.in[2] = -1;
        step.out = output(index, rows);
        break;
      }
      case Op::moe:
        add_moe(index, step);
        value_[static_cast<std::size_t>(index)] = plan_.steps.back().out;
        return;
    }
    push(step);
    value_[static_cast<std::size_t>(index)] = step.out;
  }

  void add_moe(std::int32_t index, Step step) {
    const Node& n = graph_.nodes[static_cast<std::size_t>(index)];
    const std::int32_t k = n.attributes.top_k, size = n.attributes.intermediate_size;
    const Rows rows = step.rows;
    const Rows slots = rows == Rows::tokens ? Rows::token_experts : Rows::logit_experts;
    MoePlan moe;
    moe.experts = add_buffer(rows, k);
    moe.weights = add_buffer(rows, k);
    moe.slots = add_buffer(rows, k);
    moe.slot_rows = add_list(row_count(slots, k));
    moe.ranges = add_list(2 * n.attributes.num_experts + 2);
    moe.gate = add_buffer(slots, size, k);
    moe.up = add_buffer(slots, size, k);
    moe.down = add_buffer(slots, n.width, k);
    for (std::size_t w = 0; w < n.weights.size(); ++w) {
      const int i = reads(n.weights[w]);
      if (w % 3 != 2) moe.reads_values |= i < 0 || store_.has_outliers(n.weights[w]);
      if (i < 0) continue;
      if (w % 3 != 2) step.quantized[i] = quantized(step.in[0], i);
      if (w % 3 == 2 && moe.act[i] < 0) moe.act[i] = add_quantized_buffer(slots, size, i, k);
      w % 3 == 2 ? add_tables(n.weights[w], moe.act[i], k) : add_tables(n.weights[w], step.quantized[i]);
    }
    step.moe = static_cast<std::int32_t>(plan_.moes.size());
    plan_.moes.push_back(moe);
    const std::int32_t out = output(index, rows);
    for (const StepKind kind : {StepKind::moe_route, StepKind::moe_sort, StepKind::moe_gate_up, StepKind::moe_act,
                                StepKind::moe_down, StepKind::moe_combine}) {
      step.kind = kind;
      step.is_parallel_alone = kind == StepKind::moe_gate_up || kind == StepKind::moe_down;
      step.out = kind == StepKind::moe_combine ? out : -1;
      push(step);
    }
  }

  // A range of memory that a step touches. The KV cache is one range behind the arena.
  struct Access {
    std::int32_t buffer;
    bool is_write;
  };
  static constexpr std::int32_t kKV = -3, kRopeTables = -4;

  std::vector<Access> accesses(const Step& s) const {
    std::vector<Access> out;
    const auto read = [&](std::int32_t b) {
      if (b != -1) out.push_back({b, false});
    };
    const auto write = [&](std::int32_t b) {
      if (b != -1) out.push_back({b, true});
    };
    if (s.moe >= 0) {
      const MoePlan& m = plan_.moes[static_cast<std::size_t>(s.moe)];
      switch (s.kind) {
        case StepKind::moe_route:
          read(s.in[1]), write(m.experts), write(m.weights);
          break;
        case StepKind::moe_sort:
          // The input: for the next layer's router, which predicts.
          read(s.in[0]), read(m.experts), write(m.slots), write(m.slot_rows), write(m.ranges);
          break;
        case StepKind::moe_gate_up:
          if (m.reads_values) read(s.in[0]);
          read(s.quantized[0]), read(s.quantized[1]), read(m.slot_rows), read(m.ranges), write(m.gate), write(m.up);
          break;
        case StepKind::moe_act:
          read(m.up), read(m.ranges), write(m.gate), write(m.act[0]), write(m.act[1]);
          break;
        case StepKind::moe_down:
          read(m.gate), read(m.act[0]), read(m.act[1]), read(m.ranges), write(m.down);
          break;
        default:
          read(m.down), read(m.slots), read(m.weights), write(s.out);
          break;
      }
      return out;
    }
    for (const std::int32_t b : s.in) read(b);
    for (const std::int32_t b : s.quantized) read(b);
    write(s.out);
    if (s.kind == StepKind::store_kv) write(kKV);
    if (s.kind == StepKind::attention) read(kKV);
    if (s.kind == StepKind::rope) read(kRopeTables);
    if (s.kind == StepKind::rope_tables) write(kRopeTables);
    return out;
  }

  void measure_lives() {
    for (Buffer& b : plan_.buffers) b.first_step = -1;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(plan_.steps.size()); ++i) {
      const auto [first, last] = repeated_with(i);
      for (const Access& access : accesses(plan_.steps[static_cast<std::size_t>(i)])) {
        if (access.buffer < 0) continue;
        Buffer& b = plan_.buffers[static_cast<std::size_t>(access.buffer)];
        b.first_step = b.first_step < 0 ? first : std::min(b.first_step, first);
        b.last_step = std::max(b.last_step, last);
      }
    }
  }

  // Steps that run again together with step i: where experts are streamed they are computed group by group.
  std::pair<std::int32_t, std::int32_t> repeated_with(std::int32_t i) const {
    if (store_.stream() == nullptr) return {i, i};
    switch (plan_.steps[static_cast<std::size_t>(i)].kind) {
      case StepKind::moe_gate_up:
        return {i, i + 3};
      case StepKind::moe_act:
        return {i - 1, i + 2};
      case StepKind::moe_down:
        return {i - 2, i + 1};
      case StepKind::moe_combine:
        return {i - 3, i};
      default:
        return {i, i};
    }
  }

  // Does a streamed mixture that all rounds go through together begin at step i, or end before it?
  bool is_edge_of_mixture(std::int32_t i) const {
    if (store_.stream() == nullptr || store_.stream()->experts() == nullptr) return false;
    const Step &step = plan_.steps[static_cast<std::size_t>(i)], &before = plan_.steps[static_cast<std::size_t>(i - 1)];
    return (step.kind == StepKind::moe_sort && step.rows == Rows::tokens) ||
           (before.kind == StepKind::moe_combine && before.rows == Rows::tokens);
  }

  void carry(Buffer& b) {
    if (!std::exchange(b.is_carried, true)) set_rows(b, plan_.max_rows);
  }

  // All that lives on at an edge of a mixture is carried, and so are the places of its results.
  void carry_at(std::int32_t edge) {
    const Step& step = plan_.steps[static_cast<std::size_t>(edge)];
    for (Buffer& b : plan_.buffers) {
      // What is read for a prediction only: passes of several rounds make none.
      const bool is_of_prediction = step.kind == StepKind::moe_sort && b.last_step == edge &&
                                    &b == &plan_.buffers[static_cast<std::size_t>(step.in[0])];
      if (b.first_step >= 0 && b.first_step < edge && b.last_step >= edge && !is_of_prediction) carry(b);
    }
    if (step.kind != StepKind::moe_sort) return;
    const MoePlan& moe = plan_.moes[static_cast<std::size_t>(step.moe)];
    carry(plan_.buffers[static_cast<std::size_t>(moe.slots)]);
    const std::int32_t top_k = graph_.nodes[static_cast<std::size_t>(step.node)].attributes.top_k;
    plan_.buffers[static_cast<std::size_t>(moe.slot_rows)].num_bytes = std::int64_t{plan_.max_rows} * top_k * 4;
  }

  // A segment begins where one buffer of floats lives on, and nothing else; and at the edges of streamed mixtures.
  void find_segments() {
    plan_.segments = {0};
    if (plan_.round_rows == plan_.max_rows) return;
    for (std::int32_t i = 1; i < static_cast<std::int32_t>(plan_.steps.size()); ++i) {
      if (is_edge_of_mixture(i)) {
        plan_.segments.push_back(i);
        carry_at(i);
        continue;
      }
      Buffer* carried = nullptr;
      bool is_alone = true;
      for (Buffer& b : plan_.buffers) {
        if (b.first_step >= i || b.last_step < i) continue;
        is_alone &= carried == nullptr && b.rows == Rows::tokens && b.scale_columns == 0;
        carried = &b;
      }
      if (carried == nullptr || !is_alone) continue;
      plan_.segments.push_back(i);
      carry(*carried);
    }
    // The rounds before and after need it in all of the segments in which it begins and ends.
    for (Buffer& b : plan_.buffers) {
      if (!b.is_carried) continue;
      const auto after_first = std::upper_bound(plan_.segments.begin(), plan_.segments.end(), b.first_step);
      const auto after_last = std::upper_bound(plan_.segments.begin(), plan_.segments.end(), b.last_step);
      b.first_step = *(after_first - 1);
      b.last_step =
          (after_last == plan_.segments.end() ? static_cast<std::int32_t>(plan_.steps.size()) : *after_last) - 1;
    }
  }

  // First fit, largest first: a buffer takes the lowest place that is free while it lives.
  void place_buffers() {
    std::vector<std::size_t> order(plan_.buffers.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return plan_.buffers[a].num_bytes > plan_.buffers[b].num_bytes;
    });
    std::vector<std::size_t> placed;
    for (const std::size_t i : order) {
      Buffer& b = plan_.buffers[i];
      std::vector<std::pair<std::int64_t, std::int64_t>> taken;
      for (const std::size_t j : placed) {
        const Buffer& other = plan_.buffers[j];
        if (other.first_step <= b.last_step && b.first_step <= other.last_step)
          taken.emplace_back(other.offset, other.offset + other.num_bytes);
      }
      std::sort(taken.begin(), taken.end());
      b.offset = 0;
      for (const auto& [begin, end] : taken) {
        if (b.offset + b.num_bytes <= begin) break;
        b.offset = std::max(b.offset, round_up(end, kBufferAlignment));
      }
      plan_.arena_bytes = std::max(plan_.arena_bytes, b.offset + b.num_bytes);
      placed.push_back(i);
    }
    plan_.arena_bytes = round_up(plan_.arena_bytes, kBufferAlignment);
  }

  bool overlap(std::int32_t a, std::int32_t b) const {
    if (a < 0 || b < 0) return a == b;
    const Buffer &x = plan_.buffers[static_cast<std::size_t>(a)], &y = plan_.buffers[static_cast<std::size_t>(b)];
    return x.offset < y.offset + y.num_bytes && y.offset < x.offset + x.num_bytes;
  }

  // A barrier stands before a step that touches what another step wrote, or writes what it touched, since the last one.
  // `alone`: two steps that thread 0 runs by itself need none between them.
  std::vector<char> find_barriers(bool alone) const {
    std::vector<char> barrier(plan_.steps.size(), 0);
    std::vector<std::vector<Access>> all;
    std::size_t since = 0;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      all.push_back(accesses(plan_.steps[i]));
      for (std::size_t j = since; j < i && barrier[i] == 0; ++j) {
        if (alone && !plan_.steps[i].is_parallel_alone && !plan_.steps[j].is_parallel_alone) continue;
        for (const Access& a : all[i])
          for (const Access& b : all[j])
            if ((a.is_write || b.is_write) && overlap(a.buffer, b.buffer)) barrier[i] = 1;
      }
      if (barrier[i] != 0) since = i;
    }
    return barrier;
  }

  const Graph& graph_;
  const WeightStore& store_;
  const KernelTable& kernels_;
  Plan plan_;
  std::int32_t last_attention_ = -1;
  std::vector<std::int32_t> last_use_;                          // last node that reads a node's value
  std::vector<std::int32_t> value_;                             // buffer of a node's value
  std::vector<char> is_logits_;                                 // the node's value lies where the logits are wanted
  std::map<std::pair<std::int32_t, int>, std::int32_t> codes_;  // (float buffer, codes_index) -> quantised buffer
  std::map<std::int32_t, std::int32_t> gathered_;               // node -> buffer of its gathered rows
};

}  // namespace

Plan compile(const Graph& graph, const WeightStore& store, const KernelTable& kernels, std::int32_t round_rows,
             std::int32_t max_rows) {
  return Compiler(graph, store, kernels, round_rows, max_rows).run();
}

std::vector<WeightStream::Use> weight_uses(const Plan& plan, const Graph& graph) {
  std::vector<WeightStream::Use> uses;
  std::int32_t segment = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto next = static_cast<std::size_t>(segment) + 1;
    if (next < plan.segments.size() && static_cast<std::size_t>(plan.segments[next]) == i) ++segment;
    const Step& step = plan.steps[i];
    if (step.kind == StepKind::linear)
      uses.push_back({graph.nodes[static_cast<std::size_t>(step.node)].weights[0], segment, step.rows == Rows::logits});
  }
  return uses;
}

}  // namespace edgert
