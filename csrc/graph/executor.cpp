#include "graph/executor.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/fp_env.h"
#include "graph/linear_timer.h"

namespace edgert {
namespace {

constexpr int kPatientTurns = 4000;
constexpr std::int64_t kPageBytes = 4096;
// Of activations that the next step does not need: so much is kept.
constexpr std::int64_t kIdleBytes = std::int64_t{1} << 20;
constexpr std::chrono::microseconds kNap{50};

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

// Steps of several rounds where the stream can serve them.
Plan make_plan(const Graph& graph, const WeightStore& store, const KernelTable& kernels, std::int32_t round_rows,
               std::int32_t max_rows, int num_threads) {
  WeightStream* stream = store.stream();
  // Codes that are carried lie in tiles, so a round is some of them.
  if (stream != nullptr && stream->experts() != nullptr && round_rows < max_rows)
    round_rows = std::max(kTileVectors, round_rows / kTileVectors * kTileVectors);
  Plan plan = compile(graph, store, kernels, std::min(round_rows, max_rows), max_rows);
  if (stream == nullptr) return plan;
  stream->set_uses(weight_uses(plan, graph), static_cast<std::size_t>(num_threads));
  if (round_rows >= max_rows || stream->can_share_rounds()) return plan;
  return compile(graph, store, kernels, round_rows, round_rows);
}

}  // namespace

// Thread 0's clock: what passed since the last call goes to one entry of the profile, and to the trace.
class Executor::Laps {
 public:
  // Null: nobody asks. Both null: nothing is noted.
  Laps(Profile* profile, StepTrace* trace) : profile_(profile), trace_(trace) {
    if (is_on()) last_ = Clock::now();
  }
  void starting(std::size_t step) {
    if (is_on()) lap(profile_ ? &profile_->starting_s : nullptr, StepPhase::starting, step);
  }
  void working(std::size_t step) {
    if (is_on()) lap(profile_ ? &profile_->steps[step].working_s : nullptr, StepPhase::working, step);
  }
  void waiting(std::size_t step) {
    if (is_on()) lap(profile_ ? &profile_->steps[step].waiting_s : nullptr, StepPhase::waiting, step);
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_on() const { return profile_ != nullptr || trace_ != nullptr; }
  void lap(double* total_s, StepPhase phase, std::size_t step) {
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    const Clock::time_point now = Clock::now(), before = std::exchange(last_, now);
    if (total_s != nullptr) *total_s += seconds(now - before);
    if (trace_ != nullptr && trace_->events.size() < kMaxTraceEvents)
      trace_->events.push_back({static_cast<std::int32_t>(step), phase, seconds(before.time_since_epoch()),
                                seconds(now.time_since_epoch())});
  }

  Profile* const profile_;
  StepTrace* const trace_;
  Clock::time_point last_;
};

Executor::Executor(const Graph& graph, const WeightStore& store, KVStore& kv, const KernelTable& kernels,
                   int num_threads, std::int32_t round_rows, std::int32_t max_rows, const LinearChoiceOptions& choice)
    : graph_(graph),
      store_(store),
      kv_(kv),
      kernels_(kernels),
      choice_(graph, store, kernels, num_threads, round_rows, choice),
      plan_(make_plan(graph, store, kernels, round_rows, max_rows, num_threads)),
      arena_(static_cast<std::size_t>(plan_.arena_bytes), store.stream() == nullptr),
      scratch_(at(num_threads)),
      logits_stride_(round_up(graph.vocab_size(), kGroupColumns)),
      works_(plan_.steps.size()),
      attention_works_(plan_.steps.size()),
      team_(num_threads, [](void* self, int thread) { static_cast<Executor*>(self)->run_thread(thread); }, this) {
  std::int64_t num_floats = 0;
  for (const RopeSpec& rope : graph.ropes) {
    ropes_.push_back(rope_frequencies(rope, kv.max_tokens()));
    rope_offsets_.push_back(num_floats);
    num_floats += std::int64_t{plan_.max_rows} * rope.rotary_dim;
  }
  rope_tables_ = Memory(static_cast<std::size_t>(num_floats) * sizeof(float), store.stream() == nullptr);
  prepare_attention();
  rows_.tokens.resize(at(plan_.round_rows));
  rows_.positions.resize(at(plan_.round_rows));
  rows_.logit_rows.resize(at(plan_.round_rows));
  rows_.spans.resize(at(plan_.round_rows));
}

// Whole pages of the rows that a step writes to: of a round, of all rounds where a buffer is carried on.
std::int64_t Executor::touched_bytes(std::int32_t num_tokens, std::int32_t num_logits) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const Buffer& b : plan_.buffers) {
    const std::int64_t all = b.is_carried ? plan_.max_rows : plan_.round_rows;
    const bool is_of_logits = b.rows == Rows::logits || b.rows == Rows::logit_experts;
    const std::int64_t used =
        std::min<std::int64_t>(all, round_up(is_of_logits ? num_logits : num_tokens, kTileVectors));
    const auto add = [&](std::int64_t begin, std::int64_t end, bool is_by_row) {
      const std::int64_t bytes = is_by_row ? ((end - begin) * used + all - 1) / all : end - begin;
      if (bytes > 0)
        ranges.emplace_back((b.offset + begin) / kPageBytes * kPageBytes,
                            round_up(b.offset + begin + bytes, kPageBytes));
    };
    if (b.scale_columns == 0) {
      add(0, b.num_bytes, b.width > 0);
      continue;
    }
    const std::int64_t end = b.tables_offset > 0 ? b.tables_offset : b.num_bytes;
    add(0, b.scales_offset, true);
    add(b.scales_offset, b.sums_offset, true);
    add(b.sums_offset, end, true);
    add(end, b.num_bytes, false);
  }
  std::sort(ranges.begin(), ranges.end());
  std::int64_t touched = 0, last = 0;
  for (const auto& [begin, end] : ranges) {
    touched += std::max<std::int64_t>(0, end - std::max(begin, last));
    last = std::max(last, end);
  }
  for (const RopeSpec& rope : graph_.ropes)
    touched +=
        round_up(std::int64_t{num_tokens} * rope.rotary_dim * std::int64_t{sizeof(float)}, kPageBytes) + kPageBytes;
  return touched;
}

std::int64_t Executor::shrink_to(std::int32_t num_tokens, std::int32_t num_logits) {
  if (num_tokens != asked_tokens_ || num_logits != asked_logits_) {
    asked_tokens_ = num_tokens;
    asked_logits_ = num_logits;
    asked_bytes_ = touched_bytes(num_tokens, num_logits);
  }
  // The same few pages are not given back and taken again for every token.
  if (held_bytes_ - asked_bytes_ > kIdleBytes) {
    arena_.give_back(0, arena_.num_bytes());
    rope_tables_.give_back(0, rope_tables_.num_bytes());
    held_bytes_ = 0;
  }
  held_bytes_ = std::max(held_bytes_, asked_bytes_);
  return held_bytes_;
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

void Executor::start_trace() {
  trace_ = {};
  for (const Step& step : plan_.steps) {
    const bool has_weight = step.node >= 0 && !graph_.nodes[at(step.node)].weights.empty();
    trace_.steps.push_back({step.kind, has_weight ? graph_.nodes[at(step.node)].weights[0] : -1});
  }
  trace_.events.reserve(kMaxTraceEvents);  // a step takes no memory from the heap
  is_traced_ = true;
}

StepTrace Executor::stop_trace() {
  is_traced_ = false;
  return std::exchange(trace_, {});
}

void Executor::run(int first_segment, int last_segment, float* logits) {
  logits_ = logits;
  std::size_t first = first_step(first_segment);
  const std::size_t last = first_step(last_segment);
  ExpertStream* const experts = store_.stream() != nullptr ? store_.stream()->experts() : nullptr;
  KVStream* const kv = kv_.stream() != nullptr && kv_.stream()->is_running() ? kv_.stream() : nullptr;
  const bool has_pauses = store_.stream() != nullptr || kv != nullptr || are_neurons_counted_;
  for (std::size_t i = first; has_pauses && i < last; ++i) {
    const Step& step = plan_.steps[i];
    // Without rows nothing is sorted: no expert is asked for.
    if (experts != nullptr && step.kind == StepKind::moe_sort && num_rows(step.rows) > 0) {
      run_steps(first, i + 1);
      first = run_experts(*experts, i);
    } else if (kv != nullptr && step.kind == StepKind::attention) {
      run_steps(first, i);
      if (!run_attention(*kv, i)) return;
      first = i + 1;
    } else if (is_by_neurons(step) && num_rows(step.rows) > 0) {
      run_steps(first, i);
      run_neurons(*store_.stream()->neurons(), i);
      first = i + 1;
    } else if (is_counted(step) && num_rows(step.rows) > 0) {
      run_steps(first, i);
      count_active(step);
      first = i;
    }
  }
  run_steps(first, last);
  if (is_profiled_) ++profile_.num_runs;
}

std::size_t Executor::first_step(int segment) const {
  return segment == num_segments() ? works_.size() : at(plan_.segments[at(segment)]);
}

void Executor::run_steps(std::size_t first, std::size_t last) {
  if (first == last) return;
  Laps laps(is_profiled_ ? &profile_ : nullptr, is_traced_ ? &trace_ : nullptr);
  const std::uint32_t run = run_.load(std::memory_order_relaxed) + 1;
  for (std::size_t i = first; i < last; ++i) works_[i].close(run);
  first_step_.store(first, std::memory_order_relaxed);
  last_step_.store(last, std::memory_order_relaxed);
  is_alone_.store(rows_.num_tokens == 1, std::memory_order_relaxed);
  for (std::size_t i = first; i < last; ++i) open_work(i);
  run_.store(run, std::memory_order_release);
  team_.wake();
  laps.starting(first);
  run_thread(0);
}

std::int32_t Executor::num_items(std::size_t index) {
  const Step& step = plan_.steps[index];
  const std::int32_t rows = num_rows(step.rows);
  if (rows == 0) return 0;
  switch (step.kind) {
    case StepKind::linear:
      return store_.describe(graph_.nodes[at(step.node)].weights[0]).strips;
    case StepKind::store_kv:
      return attributes(step).num_kv_heads;
    case StepKind::attention:
      return divide_attention(index);
    case StepKind::moe_sort:
      return 1;
    case StepKind::moe_gate_up:
    case StepKind::moe_down:
      return num_moe_items(step, step.kind == StepKind::moe_down);
    case StepKind::moe_act:
      return is_grouped_ ? num_group_slots(step) : rows * attributes(step).top_k;
    default:
      return rows;
  }
}

// How many of its items a thread takes at a time.
ChunkSizes Executor::chunk_sizes(const Step& step, std::int32_t total) const {
  const int threads = team_.num_threads();
  switch (step.kind) {
    case StepKind::linear: {
      // Neurons: a thread takes its share at once, and follows the reads from group to group.
      const std::int32_t share = (total + threads - 1) / threads;
      if (is_by_neurons(step)) return {share, share};
      return strips_per_chunk(store_.describe(graph_.nodes[at(step.node)].weights[0]), threads);
    }
    case StepKind::store_kv:
    case StepKind::attention:
      return {};
    case StepKind::moe_gate_up:
    case StepKind::moe_down:
      return {.largest = std::max(1, total / (threads * 16))};
    default:
      return {.largest = std::max(1, total / (threads * 4))};
  }
}

void Executor::open_work(std::size_t index) {
  const Step& step = plan_.steps[index];
  const std::uint32_t run = run_.load(std::memory_order_relaxed) + 1;
  const std::int32_t total = num_items(index);
  if (is_alone_.load(std::memory_order_relaxed) && !step.is_parallel_alone) {
    works_[index].open(run, total, {total, total}, 1);
  } else {  // what is read from disk comes in the order of its strips
    works_[index].open(run, total, chunk_sizes(step, total), store_.stream() != nullptr ? 1 : team_.num_threads());
  }
}

// False: the run is over, and this thread is late.
bool Executor::wait_complete(std::size_t begin, std::size_t end, std::uint32_t run) const {
  for (std::size_t i = begin; i < end; ++i) {
    int spins = 0, turns = 0;
    for (Work::State state = works_[i].state(run); state != Work::State::complete; state = works_[i].state(run)) {
      if (state == Work::State::over) return false;
      spin_wait(spins);
      // Another thread waits for the disk: this one leaves the processor to who reads and packs.
      if (store_.stream() != nullptr && ++turns > kPatientTurns) {
        store_.stream()->poll();
        std::this_thread::sleep_for(kNap);
      }
    }
  }
  return true;
}

void Executor::run_thread(int thread) {
  const FloatEnvironment environment;
  const std::uint32_t run = run_.load(std::memory_order_acquire);
  const bool is_alone = is_alone_.load(std::memory_order_relaxed);
  const std::vector<char>& barrier = is_alone ? plan_.barrier_alone : plan_.barrier;
  Laps laps(thread == 0 && is_profiled_ ? &profile_ : nullptr, thread == 0 && is_traced_ ? &trace_ : nullptr);
  const std::size_t first = first_step_.load(std::memory_order_relaxed);
  const std::size_t last = last_step_.load(std::memory_order_relaxed);
  const bool is_lonely = team_.num_threads() == 1;  // what it took is done
  std::size_t since = first;                        // steps from here on may be unfinished
  for (std::size_t i = first; i < last; ++i) {
    if (barrier[i] != 0) {
      if (!is_lonely && !wait_complete(since, i, run)) return;
      if (i > first) laps.waiting(i - 1);
      since = i;
    }
    // Cheap steps of one token follow each other without a barrier, so one thread must run them in order.
    if (is_alone && thread != 0 && !plan_.steps[i].is_parallel_alone) continue;
    std::int32_t begin = 0, end = 0;
    for (bool is_all = false; !is_all && works_[i].take(run, thread, begin, end);) {
      is_all = works_[i].is_all(begin, end);
      run_items(plan_.steps[i], begin, end, thread);
      works_[i].finish(end - begin);
    }
    laps.working(i);
  }
  // The caller's run ends with the last item of all; helpers may go and sleep.
  if (thread == 0 && wait_complete(since, last, run)) laps.waiting(last - 1);
}

float* Executor::row(std::int32_t buffer, std::int32_t r) const {
  if (buffer == kLogits) return logits_ + std::int64_t{r} * logits_stride_;
  const Buffer& b = plan_.buffers[at(buffer)];
  return arena_.as<float>(static_cast<std::size_t>(b.offset)) + row_of(b, r) * b.stride;
}

std::int64_t Executor::stride(std::int32_t buffer) const {
  return buffer == kLogits ? logits_stride_ : plan_.buffers[at(buffer)].stride;
}

// Float kernels read 16 values at a time.
void Executor::clear_pad(std::int32_t buffer, std::int32_t r, std::int32_t width) const {
  float* values = row(buffer, r);
  for (std::int64_t i = width; i < round_up(width, kStripRows); ++i) values[i] = 0.0f;
}

std::int32_t Executor::num_tokens(const Buffer& b) const {
  if (b.is_carried) return rows_.num_pass_tokens;
  const bool is_of_logits = b.rows == Rows::logits || b.rows == Rows::logit_experts;
  return is_of_logits ? rows_.num_logits : rows_.num_tokens;
}

Executor::QuantizedRow Executor::quantized_row(std::int32_t buffer, std::int32_t r) const {
  const Buffer& b = plan_.buffers[at(buffer)];
  const std::int64_t row = row_of(b, r), groups = b.stride / kGroupColumns;
  const std::int32_t tokens = num_tokens(b), in_tile = tile_vectors(tokens);
  auto* base = arena_.as<std::uint8_t>(static_cast<std::size_t>(b.offset));
  QuantizedRow out;
  out.codes = reinterpret_cast<std::int8_t*>(base) + codes_offset(row, in_tile, b.stride);
  out.scales = reinterpret_cast<float*>(base + b.scales_offset) + row * (b.stride / b.scale_columns);
  out.sums = reinterpret_cast<GroupSums*>(base + b.sums_offset) + row * groups;
  // No kernel reads tables, or the step is one of several tokens, for which there are none.
  out.tables = b.tables_offset == 0 || tokens != 1
                   ? nullptr
                   : reinterpret_cast<LutTables*>(base + b.tables_offset) + std::int64_t{r} * groups;
  out.tile_vectors = in_tile;
  out.stride = b.stride;
  return out;
}

void Executor::quantize_row(std::int32_t from, std::int32_t to, std::int32_t r) const {
  const QuantizedRow out = quantized_row(to, r);
  const std::int32_t width = plan_.buffers[at(from)].width;
  kernels_.quantize(row(from, r), width, plan_.buffers[at(to)].scale_columns, out.codes, codes_step(out.tile_vectors),
                    out.scales, out.sums);
  if (out.tables != nullptr) kernels_.build_tables(out.codes, width, out.tables);
}

LinearInput Executor::linear_input(std::int32_t values, const std::int32_t (&codes_of)[2], Format format,
                                   std::int32_t tokens) const {
  LinearInput x;
  x.values = row(values, 0);
  x.values_stride = stride(values);
  x.tokens = tokens;
  if (const int i = codes_index(format); i >= 0) {
    const QuantizedRow quantized = quantized_row(codes_of[i], 0);
    x.codes = quantized.codes;
    x.scales = quantized.scales;
    x.sums = quantized.sums;
    x.tables = quantized.tables;
    x.tile_vectors = quantized.tile_vectors;
    x.codes_stride = quantized.stride;
    x.group_stride = x.codes_stride / kGroupColumns;
  }
  return x;
}

void Executor::run_items(const Step& step, std::int32_t begin, std::int32_t end, int thread) {
  switch (step.kind) {
    case StepKind::linear:
      return is_by_neurons(step) ? linear_neurons(step, begin, end) : linear(step, begin, end);
    case StepKind::moe_gate_up:
    case StepKind::moe_down:
      return moe_linear(step, begin, end, step.kind == StepKind::moe_down);
    default:
      return run_rows(step, begin, end, thread);
  }
}

void Executor::run_rows(const Step& step, std::int32_t begin, std::int32_t end, int thread) {
  for (std::int32_t r = begin; r < end; ++r) {
    switch (step.kind) {
      case StepKind::rope_tables:
        for (std::size_t i = 0; i < ropes_.size(); ++i) {
          const std::int64_t half = static_cast<std::int64_t>(ropes_[i].inv_freq.size());
          float* cos = rope_tables_.as<float>() + rope_offsets_[i] + (rows_.first_row + r) * 2 * half;
          rope_angles(ropes_[i], rows_.positions[at(r)], cos, cos + half);
        }
        break;
      case StepKind::embed:
        embed(step, r, thread);
        break;
      case StepKind::rms_norm:
        rms_norm(step, r);
        break;
      case StepKind::quantize:
        quantize_row(step.in[0], step.out, r);
        break;
      case StepKind::linear:
      case StepKind::moe_gate_up:
      case StepKind::moe_down:
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
      case StepKind::moe_act:
        moe_act(step, r);
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

void Executor::embed(const Step& step, std::int32_t r, int thread) {
  const WeightId id = graph_.nodes[at(step.node)].weights[0];
  const std::int32_t token = rows_.tokens[at(r)];
  WeightView view = store_.describe(id);
  if (store_.is_streamed(id) && !store_.stream()->look_up(id, token, at(thread), view)) return;
  kernels_.dequantize_row[static_cast<int>(view.format)](view, token, row(step.out, r));
}

// Strips [begin, end), piece by piece where they are streamed.
void Executor::linear(const Step& step, std::int32_t begin, std::int32_t end) {
  const Node& node = graph_.nodes[at(step.node)];
  const WeightId id = node.weights[0];
  const Format format = store_.describe(id).format;
  const LinearInput x = linear_input(step.in[0], step.quantized, format, num_rows(step.rows));
  LinearOutput y{.y = row(step.out, 0), .stride = stride(step.out)};
  if (node.weights.size() == 2) y.bias = reinterpret_cast<const float*>(store_.pin(node.weights[1]).parts[0]);
  multiply(id, x, y, begin, end);
}

// Strips [begin, end) of a matrix, as they come where it is streamed.
void Executor::multiply(WeightId id, const LinearInput& x, const LinearOutput& y, std::int32_t begin,
                        std::int32_t end) const {
  while (begin < end) {
    const StripPin strips(store_, id, begin, end);
    if (!strips) return;
    choice_.function(id, x, strips.view().format)(strips.view(), x, y, begin, strips.end());
    begin = strips.end();
  }
}

void Executor::rms_norm(const Step& step, std::int32_t r) {
  const Node& node = graph_.nodes[at(step.node)];
  const auto* w = reinterpret_cast<const float*>(store_.pin(node.weights[0]).parts[0]);
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
  const float* cos = rope_tables_.as<float>() + rope_offsets_[rope] + std::int64_t{rows_.first_row + r} * rotary_dim;
  kernels_.rope(x, cos, cos + rotary_dim / 2, node.width / node.attributes.head_dim, node.attributes.head_dim,
                rotary_dim);
}

}  // namespace edgert
