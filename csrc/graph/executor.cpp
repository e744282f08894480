#include "graph/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/fp_env.h"
#include "graph/linear_timer.h"

namespace edgert {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// Thread 0's clock: what passed since the last call goes to one entry of the profile.
class Executor::Laps {
 public:
  // Null: nobody profiles, and nothing is noted.
  explicit Laps(Profile* profile) : profile_(profile) {
    if (profile_) last_ = Clock::now();
  }
  void starting() {
    if (profile_) profile_->starting_s += lap();
  }
  void working(std::size_t step) {
    if (profile_) profile_->steps[step].working_s += lap();
  }
  void waiting(std::size_t step) {
    if (profile_) profile_->steps[step].waiting_s += lap();
  }

 private:
  using Clock = std::chrono::steady_clock;

  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

  Profile* const profile_;
  Clock::time_point last_;
};

Executor::Executor(const Graph& graph, const WeightStore& store, KVStore& kv, const KernelTable& kernels,
                   int num_threads, std::int32_t max_rows, const LinearChoiceOptions& choice)
    : graph_(graph),
      store_(store),
      kv_(kv),
      kernels_(kernels),
      choice_(graph, store, kernels, num_threads, max_rows, choice),
      plan_(compile(graph, store, kernels, max_rows)),
      arena_(static_cast<std::size_t>(plan_.arena_bytes)),
      scratch_(at(num_threads)),
      logits_stride_(round_up(graph.vocab_size(), kGroupColumns)),
      works_(plan_.steps.size()),
      team_(num_threads, [](void* self, int thread) { static_cast<Executor*>(self)->run_thread(thread); }, this) {
  std::int64_t num_floats = 0;
  for (const RopeSpec& rope : graph.ropes) {
    ropes_.push_back(rope_frequencies(rope, kv.max_tokens()));
    rope_offsets_.push_back(num_floats);
    num_floats += std::int64_t{max_rows} * rope.rotary_dim;
  }
  rope_tables_ = Memory(static_cast<std::size_t>(num_floats) * sizeof(float));
  const auto num_blocks = at(kv.max_tokens() / kPageTokens + 2);
  for (Scratch& s : scratch_) {
    s.blocks.resize(num_blocks);
    s.masks.resize(num_blocks * kMaxAttentionRows);
  }
  rows_.tokens.resize(at(max_rows));
  rows_.positions.resize(at(max_rows));
  rows_.logit_rows.resize(at(max_rows));
  rows_.spans.resize(at(max_rows));
}

void Executor::start_profile() {
  profile_ = {};
  for (const Step& step : plan_.steps) {
    const bool has_weight = step.kind == StepKind::linear || step.kind == StepKind::embed;
    profile_.steps.push_back({step.kind, has_weight ? graph_.nodes[at(step.node)].weights[0] : -1});
  }
  is_profiled_ = true;
}

Profile Executor::stop_profile() {
  is_profiled_ = false;
  return std::exchange(profile_, {});
}

void Executor::run(float* logits) {
  Laps laps(is_profiled_ ? &profile_ : nullptr);
  const std::uint32_t run = run_.load(std::memory_order_relaxed) + 1;
  for (Work& work : works_) work.close(run);
  logits_ = logits;
  is_alone_.store(rows_.num_tokens <= kAloneTokens, std::memory_order_relaxed);
  for (std::size_t i = 0; i < works_.size(); ++i) open_work(i);
  run_.store(run, std::memory_order_release);
  team_.wake();
  laps.starting();
  run_thread(0);
  if (is_profiled_) ++profile_.num_runs;
}

// How many items a step has, and how many a thread takes at a time.
void Executor::open_work(std::size_t index) {
  const Step& step = plan_.steps[index];
  const bool alone = is_alone_.load(std::memory_order_relaxed) && !step.is_parallel_alone;
  const int threads = team_.num_threads();
  std::int32_t total = num_rows(step.rows), chunk = std::max(1, total / (threads * 4));
  if (total > 0) {
    const Node* node = step.node >= 0 ? &graph_.nodes[at(step.node)] : nullptr;
    switch (step.kind) {
      case StepKind::linear: {
        const WeightView& weight = store_.describe(node->weights[0]);
        total = weight.strips;
        chunk = strips_per_chunk(weight, threads);
        break;
      }
      case StepKind::store_kv:
        total = node->attributes.num_kv_heads;
        chunk = 1;
        break;
      case StepKind::attention:
        total = num_attention_items(step);
        chunk = 1;
        break;
      case StepKind::moe_sort:
        total = 1;
        break;
      case StepKind::moe_gate_up:
      case StepKind::moe_down:
        total = num_moe_items(step, step.kind == StepKind::moe_down);
        chunk = 1;
        break;
      case StepKind::moe_act:
        total *= node->attributes.top_k;
        chunk = std::max(1, total / (threads * 4));
        break;
      default:
        break;
    }
  }
  works_[index].open(run_.load(std::memory_order_relaxed) + 1, total, alone ? std::max(1, total) : chunk);
}

// False: the run is over, and this thread is late.
bool Executor::wait_complete(std::size_t begin, std::size_t end, std::uint32_t run) const {
  for (std::size_t i = begin; i < end; ++i) {
    int spins = 0;
    for (Work::State state = works_[i].state(run); state != Work::State::complete; state = works_[i].state(run)) {
      if (state == Work::State::over) return false;
      spin_wait(spins);
    }
  }
  return true;
}

void Executor::run_thread(int thread) {
  const FloatEnvironment environment;
  const std::uint32_t run = run_.load(std::memory_order_acquire);
  const bool is_alone = is_alone_.load(std::memory_order_relaxed);
  const std::vector<char>& barrier = is_alone ? plan_.barrier_alone : plan_.barrier;
  Laps laps(thread == 0 && is_profiled_ ? &profile_ : nullptr);
  std::size_t since = 0;  // steps from here on may be unfinished
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    if (barrier[i] != 0) {
      if (!wait_complete(since, i, run)) return;
      if (i > 0) laps.waiting(i - 1);
      since = i;
    }
    // Cheap steps of few tokens follow each other without a barrier, so one thread must run them in order.
    if (is_alone && thread != 0 && !plan_.steps[i].is_parallel_alone) continue;
    std::int32_t begin = 0, end = 0;
    while (works_[i].take(run, begin, end)) {
      run_items(plan_.steps[i], begin, end, thread);
      works_[i].finish(end - begin);
    }
    laps.working(i);
  }
  // The caller's run ends with the last item of all; helpers may go and sleep.
  if (thread == 0 && wait_complete(since, plan_.steps.size(), run)) laps.waiting(plan_.steps.size() - 1);
}

float* Executor::row(std::int32_t buffer, std::int32_t r) const {
  if (buffer == kLogits) return logits_ + std::int64_t{r} * logits_stride_;
  const Buffer& b = plan_.buffers[at(buffer)];
  return arena_.as<float>(static_cast<std::size_t>(b.offset)) + std::int64_t{r} * b.stride;
}

std::int64_t Executor::stride(std::int32_t buffer) const {
  return buffer == kLogits ? logits_stride_ : plan_.buffers[at(buffer)].stride;
}

// Float kernels read 16 values at a time.
void Executor::clear_pad(std::int32_t buffer, std::int32_t r, std::int32_t width) const {
  float* values = row(buffer, r);
  for (std::int64_t i = width; i < round_up(width, kStripRows); ++i) values[i] = 0.0f;
}

std::int8_t* Executor::codes(std::int32_t buffer, std::int32_t r) const {
  const Buffer& b = plan_.buffers[at(buffer)];
  return arena_.as<std::int8_t>(static_cast<std::size_t>(b.offset)) + std::int64_t{r} * b.stride;
}

float* Executor::scales(std::int32_t buffer, std::int32_t r) const {
  const Buffer& b = plan_.buffers[at(buffer)];
  return arena_.as<float>(static_cast<std::size_t>(b.offset + b.scales_offset)) +
         std::int64_t{r} * (b.stride / b.scale_columns);
}

GroupSums* Executor::sums(std::int32_t buffer, std::int32_t r) const {
  const Buffer& b = plan_.buffers[at(buffer)];
  return arena_.as<GroupSums>(static_cast<std::size_t>(b.offset + b.sums_offset)) +
         std::int64_t{r} * (b.stride / kGroupColumns);
}

void Executor::quantize_row(std::int32_t from, std::int32_t to, std::int32_t r) const {
  kernels_.quantize(row(from, r), plan_.buffers[at(from)].width, plan_.buffers[at(to)].scale_columns, codes(to, r),
                    scales(to, r), sums(to, r));
  if (LutTables* out = tables(to, r)) kernels_.build_tables(codes(to, r), plan_.buffers[at(from)].width, out);
}

// Null where no kernel reads tables, or the step is one of several tokens, for which there are none.
LutTables* Executor::tables(std::int32_t buffer, std::int32_t r) const {
  const Buffer& b = plan_.buffers[at(buffer)];
  const bool is_of_logits = b.rows == Rows::logits || b.rows == Rows::logit_experts;
  if (b.tables_offset == 0 || (is_of_logits ? rows_.num_logits : rows_.num_tokens) != 1) return nullptr;
  return arena_.as<LutTables>(static_cast<std::size_t>(b.offset + b.tables_offset)) +
         std::int64_t{r} * (b.stride / kGroupColumns);
}

LinearInput Executor::linear_input(std::int32_t values, const std::int32_t (&codes_of)[2], Format format,
                                   std::int32_t tokens) const {
  LinearInput x;
  x.values = row(values, 0);
  x.values_stride = stride(values);
  x.tokens = tokens;
  if (const int i = codes_index(format); i >= 0) {
    const std::int32_t quantized = codes_of[i];
    x.codes = codes(quantized, 0);
    x.scales = scales(quantized, 0);
    x.sums = sums(quantized, 0);
    x.tables = tables(quantized, 0);
    x.codes_stride = plan_.buffers[at(quantized)].stride;
    x.group_stride = x.codes_stride / kGroupColumns;
  }
  return x;
}

void Executor::run_items(const Step& step, std::int32_t begin, std::int32_t end, int thread) {
  if (step.kind == StepKind::linear) return linear(step, begin, end);
  for (std::int32_t r = begin; r < end; ++r) {
    switch (step.kind) {
      case StepKind::rope_tables:
        for (std::size_t i = 0; i < ropes_.size(); ++i) {
          const std::int64_t half = static_cast<std::int64_t>(ropes_[i].inv_freq.size());
          float* cos = rope_tables_.as<float>() + rope_offsets_[i] + r * 2 * half;
          rope_angles(ropes_[i], rows_.positions[at(r)], cos, cos + half);
        }
        break;
      case StepKind::embed: {
        const WeightPin weight(store_, graph_.nodes[at(step.node)].weights[0]);
        kernels_.dequantize_row[static_cast<int>(weight.view().format)](weight.view(), rows_.tokens[at(r)],
                                                                        row(step.out, r));
        break;
      }
      case StepKind::rms_norm:
        rms_norm(step, r);
        break;
      case StepKind::quantize:
        quantize_row(step.in[0], step.out, r);
        break;
      case StepKind::linear:
        break;
      case StepKind::rope:
        rope(step, r);
        break;
      case StepKind::store_kv:
        store_kv(step, r);
        break;
      case StepKind::attention:
        attention(step, r, thread);
        break;
      case StepKind::add:
        kernels_.add(row(step.in[0], r), row(step.in[1], r), row(step.out, r), padded_width(step));
        break;
      case StepKind::silu_mul:
        kernels_.silu_mul(row(step.in[0], r), row(step.in[1], r), row(step.out, r), padded_width(step));
        break;
      case StepKind::gelu_mul:
        kernels_.gelu_mul(row(step.in[0], r), row(step.in[1], r), row(step.out, r), padded_width(step));
        break;
      case StepKind::scale:
        kernels_.scale(row(step.in[0], r), attributes(step).scale, row(step.out, r), padded_width(step));
        break;
      case StepKind::soft_cap:
        kernels_.soft_cap(row(step.in[0], r), attributes(step).soft_cap, row(step.out, r), padded_width(step));
        break;
      case StepKind::relu2:
        kernels_.relu2(row(step.in[0], r), row(step.out, r), padded_width(step));
        break;
      case StepKind::gather:
        std::copy_n(row(step.in[0], rows_.logit_rows[at(r)]), stride(step.out), row(step.out, r));
        break;
      case StepKind::moe_route:
        moe_route(step, r);
        break;
      case StepKind::moe_sort:
        moe_sort(step);
        break;
      case StepKind::moe_gate_up:
        moe_linear(step, r, false);
        break;
      case StepKind::moe_act:
        moe_act(step, r);
        break;
      case StepKind::moe_down:
        moe_linear(step, r, true);
        break;
      case StepKind::moe_combine:
        moe_combine(step, r);
        break;
    }
  }
}

std::int64_t Executor::padded_width(const Step& step) const {
  return round_up(graph_.nodes[at(step.node)].width, kStripRows);
}

// Strips [begin, end).
void Executor::linear(const Step& step, std::int32_t begin, std::int32_t end) {
  const Node& node = graph_.nodes[at(step.node)];
  const WeightPin weight(store_, node.weights[0]);
  const Format format = weight.view().format;
  const LinearInput x = linear_input(step.in[0], step.quantized, format, num_rows(step.rows));
  LinearOutput y{.y = row(step.out, 0), .stride = stride(step.out)};
  if (node.weights.size() == 2) y.bias = reinterpret_cast<const float*>(store_.pin(node.weights[1]).parts[0]);
  choice_.function(node.weights[0], x)(weight.view(), x, y, begin, end);
}

void Executor::rms_norm(const Step& step, std::int32_t r) {
  const Node& node = graph_.nodes[at(step.node)];
  const WeightPin weight(store_, node.weights[0]);
  const auto* w = reinterpret_cast<const float*>(weight.view().parts[0]);
  const std::int32_t head_dim = node.attributes.head_dim > 0 ? node.attributes.head_dim : node.width;
  for (std::int32_t i = 0; i < node.width; i += head_dim)
    kernels_.rms_norm(row(step.in[0], r) + i, w, node.attributes.weight_offset, node.attributes.eps, head_dim,
                      row(step.out, r) + i);
  clear_pad(step.out, r, node.width);
}

void Executor::rope(const Step& step, std::int32_t r) {
  const Node& node = graph_.nodes[at(step.node)];
  float* x = row(step.out, r);
  if (step.in[0] != step.out) std::copy_n(row(step.in[0], r), stride(step.out), x);
  const std::size_t rope = at(node.attributes.rope);
  const std::int32_t rotary_dim = graph_.ropes[rope].rotary_dim;
  const float* cos = rope_tables_.as<float>() + rope_offsets_[rope] + std::int64_t{r} * rotary_dim;
  kernels_.rope(x, cos, cos + rotary_dim / 2, node.width / node.attributes.head_dim, node.attributes.head_dim,
                rotary_dim);
}

void Executor::store_kv(const Step& step, std::int32_t kv_head) {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  for (std::int32_t s = 0; s < rows_.num_spans; ++s) {
    const SpanRows& span = rows_.spans[at(s)];
    for (std::int32_t i = 0; i < span.num_rows; ++i) {
      const std::int32_t place = span.base + i, r = span.first_row + i;
      const KVBlock block = kv_.block(span.span->sequence, a.layer, kv_head, place / kPageTokens);
      const std::int64_t offset = std::int64_t{kv_head} * a.head_dim;
      kernels_.store_k(kv_.format(), row(step.in[0], r) + offset, a.head_dim, place % kPageTokens,
                       const_cast<void*>(block.k));
      kernels_.store_v(kv_.format(), row(step.in[1], r) + offset, a.head_dim, place % kPageTokens,
                       const_cast<void*>(block.v));
    }
  }
}

namespace {

// Query heads of one KV head that are computed together, and how many tokens fill the rest of a tile.
struct TileShape {
  std::int32_t group, heads, head_tiles, tokens;
  explicit TileShape(const NodeAttributes& a)
      : group(a.num_heads / a.num_kv_heads),
        heads(std::min(group, kMaxAttentionRows)),
        head_tiles((group + heads - 1) / heads),
        tokens(std::max(1, kMaxAttentionRows / heads)) {}
  std::int32_t num_tiles(std::int32_t num_tokens) const { return (num_tokens + tokens - 1) / tokens * head_tiles; }
};

// Bits [begin, end) of the 64 positions that start at `first`.
std::uint64_t range_mask(std::int64_t first, std::int64_t begin, std::int64_t end) {
  const std::int64_t low = std::clamp<std::int64_t>(begin - first, 0, 64),
                     high = std::clamp<std::int64_t>(end - first, 0, 64);
  if (low >= high) return 0;
  const std::uint64_t up_to_high = high == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << high) - 1;
  return up_to_high & ~((std::uint64_t{1} << low) - 1);
}

// Which of the 64 cached positions from `first` on token i of the span may read.
std::uint64_t visible(const SpanRows& rows, const NodeAttributes& a, std::int32_t i, std::int64_t first) {
  const Span& span = *rows.span;
  const std::int64_t place = rows.base + i;
  std::uint64_t before = range_mask(first, 0, rows.base);
  if (!span.segments.empty()) {
    before = 0;
    for (const Segment& s : span.segments)
      before |= range_mask(first, s.begin, std::min<std::int64_t>(s.end, rows.base));
  }
  std::uint64_t inside = range_mask(first, rows.base, place + 1);
  if (!span.tree_mask.empty()) {
    inside = 0;
    const std::int64_t end = std::min<std::int64_t>(first + 64, rows.base + rows.num_rows);
    for (std::int64_t p = std::max<std::int64_t>(first, rows.base); p < end; ++p)
      if (span.tree_mask[static_cast<std::size_t>(i) * span.tokens.size() + static_cast<std::size_t>(p - rows.base)] !=
          0)
        inside |= std::uint64_t{1} << (p - first);
  }
  std::uint64_t mask = before | inside;
  if (a.window > 0) mask &= range_mask(first, place - a.window + 1, place + 1) | range_mask(first, 0, a.sinks);
  return mask;
}

}  // namespace

std::int32_t Executor::num_attention_items(const Step& step) const {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  const TileShape shape(a);
  std::int32_t tiles = 0;
  for (std::int32_t s = 0; s < rows_.num_spans; ++s) tiles += shape.num_tiles(rows_.spans[at(s)].num_rows);
  return tiles * a.num_kv_heads;
}

void Executor::attention(const Step& step, std::int32_t item, int thread) {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  const TileShape shape(a);
  std::int32_t tile = item / a.num_kv_heads, s = 0;
  for (; tile >= shape.num_tiles(rows_.spans[at(s)].num_rows); ++s)
    tile -= shape.num_tiles(rows_.spans[at(s)].num_rows);
  attend(step, rows_.spans[at(s)], item % a.num_kv_heads, tile, scratch_[at(thread)]);
}

void Executor::attend(const Step& step, const SpanRows& span, std::int32_t kv_head, std::int32_t tile,
                      Scratch& scratch) {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  const TileShape shape(a);
  const std::int32_t first_token = tile / shape.head_tiles * shape.tokens;
  const std::int32_t num_tokens = std::min(shape.tokens, span.num_rows - first_token);
  const std::int32_t first_head = kv_head * shape.group + tile % shape.head_tiles * shape.heads;
  const std::int32_t num_heads = std::min(shape.heads, (kv_head + 1) * shape.group - first_head);
  AttentionTask task{.format = kv_.format(),
                     .head_dim = a.head_dim,
                     .scale = a.scale,
                     .soft_cap = a.soft_cap,
                     .num_rows = num_tokens * num_heads,
                     .num_blocks = 0,
                     .q = {},
                     .out = {},
                     .log_sum_exp = nullptr,
                     .blocks = scratch.blocks.data(),
                     .masks = scratch.masks.data()};
  for (std::int32_t t = 0; t < num_tokens; ++t)
    for (std::int32_t h = 0; h < num_heads; ++h) {
      const std::int32_t r = span.first_row + first_token + t;
      const std::int64_t offset = std::int64_t{first_head + h} * a.head_dim;
      task.q[t * num_heads + h] = row(step.in[0], r) + offset;
      task.out[t * num_heads + h] = row(step.out, r) + offset;
    }
  const std::int32_t end =
      span.span->tree_mask.empty() ? span.base + first_token + num_tokens : span.base + span.num_rows;
  for (std::int32_t page = 0; page * kPageTokens < end; ++page) {
    std::uint64_t* masks = scratch.masks.data() + std::int64_t{task.num_blocks} * task.num_rows;
    std::uint64_t any = 0;
    for (std::int32_t t = 0; t < num_tokens; ++t) {
      const std::uint64_t mask = visible(span, a, first_token + t, std::int64_t{page} * kPageTokens);
      any |= mask;
      std::fill_n(masks + t * num_heads, num_heads, mask);
    }
    if (any == 0) continue;
    scratch.blocks[at(task.num_blocks)] = kv_.block(span.span->sequence, a.layer, kv_head, page);
    ++task.num_blocks;
  }
  kernels_.attention(task);
  // The last head of a token is followed by the pad that float kernels read.
  if (first_head + num_heads == a.num_heads)
    for (std::int32_t t = 0; t < num_tokens; ++t)
      clear_pad(step.out, span.first_row + first_token + t, a.num_heads * a.head_dim);
}

}  // namespace edgert
