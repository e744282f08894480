#include "graph/runtime.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace edgert {
namespace {

// Of logits that the next step does not give: so much memory is kept.
constexpr std::size_t kIdleLogitsBytes = std::size_t{1} << 20;

std::vector<KVSpec> kv_specs(const Graph& graph) {
  std::vector<KVSpec> specs;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::attention) continue;
    const auto layer = static_cast<std::size_t>(node.attributes.layer);
    if (specs.size() <= layer) specs.resize(layer + 1);
    specs[layer] = {node.attributes.num_kv_heads, node.attributes.head_dim};
  }
  return specs;
}

Graph checked(Graph graph, const WeightStore& store) {
  validate(graph, store);
  return graph;
}

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("span: " + what); }

}  // namespace

Runtime::Runtime(Graph graph, std::shared_ptr<const WeightStore> store, const RuntimeOptions& options)
    : graph_(checked(std::move(graph), *store)), store_(std::move(store)), options_(options) {
  if (options.batch_tokens < 1 || options.batch_tokens > 1 << 16)
    throw std::invalid_argument("batch_tokens: found " + std::to_string(options.batch_tokens) +
                                ", expected 1 to 65536");
  if (options.context < 1 || options.context > 1 << 24)
    throw std::invalid_argument("context: found " + std::to_string(options.context) + ", expected 1 to 16777216");
  for (const Node& node : graph_.nodes)
    if (node.op == Op::embed) embedding_rows_ = store_->describe(node.weights[0]).rows;
  kv_ = std::make_unique<KVStore>(kv_specs(graph_), options.kv_format, options.kv_budget_bytes, options.context,
                                  options.kv_spill);
  // What a step writes stays in memory until it ends; it may begin anywhere in a page.
  const std::int64_t writable =
      kv_->stream() != nullptr ? (kv_->num_pages_in_memory() - 1) * kPageTokens : options.batch_tokens;
  const auto batch_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(options.batch_tokens, writable));
  executor_ = std::make_unique<Executor>(graph_, *store_, *kv_, *options.kernels, options.num_threads,
                                         options.round_tokens > 0 ? options.round_tokens : batch_tokens, batch_tokens,
                                         options.choice);
}

bool Runtime::can_reserve(std::span<const std::pair<SequenceId, std::int32_t>> appends) const {
  std::int64_t needed = 0;
  for (const auto& [sequence, num_tokens] : appends) needed += kv_->num_pages_needed(sequence, num_tokens);
  return needed <= kv_->num_pages_free();
}

bool Runtime::can_write(std::span<const std::pair<SequenceId, std::int32_t>> appends) const {
  std::int64_t written = 0;
  for (const auto& [sequence, num_tokens] : appends) written += kv_->num_pages_written(sequence, num_tokens);
  return written <= kv_->num_pages_in_memory();
}

void Runtime::check(const Span& span, std::int32_t num_tokens_before) const {
  if (!kv_->is_open(span.sequence)) fail("found sequence " + std::to_string(span.sequence) + ", expected an open one");
  const std::size_t n = span.tokens.size();
  if (n == 0) fail("found no tokens, expected at least one");
  const bool is_plain = span.tree_mask.empty() && span.segments.empty();
  const std::int32_t most = is_plain ? batch_tokens() : executor_->round_rows();
  if (n > static_cast<std::size_t>(std::max(0, most - num_tokens_before)))
    fail("found more tokens than a step takes, expected at most " + std::to_string(most));
  const std::int64_t end = std::int64_t{kv_->length(span.sequence)} + static_cast<std::int64_t>(n);
  if (end > kv_->max_tokens())
    throw std::length_error("context: found " + std::to_string(end) + " tokens, expected at most " +
                            std::to_string(kv_->max_tokens()));
  for (const std::int32_t token : span.tokens)
    if (token < 0 || token >= embedding_rows_)
      fail("found token id " + std::to_string(token) + ", expected 0 to " + std::to_string(embedding_rows_ - 1));
  if (!span.positions.empty() && span.positions.size() != n) fail("expected one position a token");
  for (const std::int32_t position : span.positions)
    if (position < 0 || position > 1 << 24) fail("found position " + std::to_string(position));
  if (!span.tree_mask.empty() && span.tree_mask.size() != n * n) fail("expected a tree mask of tokens x tokens");
  std::int32_t last = 0;
  for (const Segment& s : span.segments) {
    if (s.begin < last || s.end < s.begin || s.end > kv_->length(span.sequence))
      fail("expected ascending segments of cached positions");
    last = s.end;
  }
}

// Fills the executor's rows with tokens [first, first + num_tokens) of all spans, one behind the other. The spans have
// been checked and their pages reserved.
void Runtime::lay_out(std::span<const Span> spans, std::int32_t first, std::int32_t num_tokens) {
  StepRows& rows = executor_->rows();
  rows.num_tokens = rows.num_logits = rows.num_spans = 0;
  rows.first_row = first;
  std::int32_t before = 0;  // tokens of the spans before this one
  for (const Span& span : spans) {
    const auto n = static_cast<std::int32_t>(span.tokens.size());
    const std::int32_t begin = std::max(first - before, 0), end = std::min(first + num_tokens - before, n);
    before += n;
    if (begin >= end) continue;
    const std::int32_t base = kv_->length(span.sequence);
    rows.spans[static_cast<std::size_t>(rows.num_spans++)] = {&span, rows.num_tokens, end - begin, base + begin};
    for (std::int32_t i = begin; i < end; ++i) {
      const auto r = static_cast<std::size_t>(rows.num_tokens++);
      rows.tokens[r] = span.tokens[static_cast<std::size_t>(i)];
      rows.positions[r] = span.positions.empty() ? base + i : span.positions[static_cast<std::size_t>(i)];
      if (span.logits == LogitsMode::all || (span.logits == LogitsMode::last && i == n - 1))
        rows.logit_rows[static_cast<std::size_t>(rows.num_logits++)] = static_cast<std::int32_t>(r);
    }
  }
}

// Passes of several rounds: each as long as the step, but for one that would ask for logits in two of its rounds.
void Runtime::run_streamed(std::span<const Span> spans, std::int32_t num_tokens, std::int32_t num_step_logits,
                           const std::function<bool()>& should_stop) {
  const std::int32_t round = executor_->round_rows();
  float* logits = logits_->as<float>();
  other_bytes_ = kv_->memory_bytes() + executor_->shrink_to(num_tokens, num_step_logits) +
                 static_cast<std::int64_t>(logits_->num_bytes());
  for (std::int32_t first = 0; first < num_tokens;) {
    std::int32_t end = first, num_logits = 0;
    // Routers are traced with what predicts the next ones: in passes of one round.
    while (end < num_tokens && num_logits == 0 && (end == first || !executor_->is_routing_traced())) {
      lay_out(spans, end, std::min(round, num_tokens - end));
      num_logits = executor_->rows().num_logits;
      end = std::min(end + round, num_tokens);
    }
    run_pass(spans, first, end - first, num_logits, logits, should_stop);
    logits += num_logits * executor_->logits_stride();
    first = end;
  }
}

// Round by round through every segment, so that each weight is read once for all of them. Logits: of the last round.
void Runtime::run_pass(std::span<const Span> spans, std::int32_t first, std::int32_t num_tokens,
                       std::int32_t num_logits, float* logits, const std::function<bool()>& should_stop) {
  WeightStream& stream = *store_->stream();
  const std::int32_t round = executor_->round_rows(), num_rounds = (num_tokens + round - 1) / round;
  stream.begin_pass(num_rounds, num_logits > 0 ? 1 : 0, other_bytes_, should_stop);
  if (ExpertStream* experts = stream.experts()) experts->begin_step(spans[0].tokens);
  begin_kv_pass(spans, first, num_tokens, [&] { return stream.is_stopped() || (should_stop && should_stop()); });
  const int num_segments = num_rounds == 1 ? 1 : executor_->num_segments();
  StepRows& rows = executor_->rows();
  rows.num_pass_tokens = num_tokens;
  for (int segment = 0; segment < num_segments && !stream.is_stopped(); ++segment) {
    const bool is_joint = num_rounds > 1 && executor_->is_joint(segment);
    for (std::int32_t i = 0; i < (is_joint ? 1 : num_rounds) && !stream.is_stopped(); ++i) {
      if (is_joint) {
        rows.num_tokens = num_tokens;
        rows.first_row = first;
      } else {
        lay_out(spans, first + i * round, std::min(round, num_tokens - i * round));
      }
      executor_->run(segment, num_rounds == 1 ? executor_->num_segments() : segment + 1, logits);
      if ((should_stop && should_stop()) || (kv_->stream() != nullptr && kv_->stream()->is_stopped())) stream.stop();
    }
  }
  bool is_complete = false;
  try {
    is_complete = end_kv_pass();
  } catch (const ReadError&) {
    stream.stop();
    stream.end_pass();
    throw;
  }
  if (!stream.end_pass() || !is_complete) throw Stopped();
}

// Tells the stream of pages, if some lie on disk, what tokens [first, first + num_tokens) read of them.
void Runtime::begin_kv_pass(std::span<const Span> spans, std::int32_t first, std::int32_t num_tokens,
                            const std::function<bool()>& should_stop) {
  KVStream* stream = kv_->stream();
  if (stream == nullptr || kv_->disk_bytes() == 0) return;
  const std::int32_t round = executor_->round_rows();
  kv_reads_.clear();
  for (int segment = 0; segment < executor_->num_segments(); ++segment)
    for (std::int32_t i = 0; i < num_tokens; i += round) {
      lay_out(spans, first + i, std::min(round, num_tokens - i));
      executor_->add_kv_reads(segment, segment + 1, kv_reads_);
    }
  if (!kv_reads_.empty()) stream->begin_pass(kv_reads_, should_stop);
}

// False: it was stopped. Throws ReadError.
bool Runtime::end_kv_pass() {
  KVStream* stream = kv_->stream();
  return stream == nullptr || !stream->is_running() || stream->end_pass();
}

void Runtime::start_trace() {
  executor_->start_trace();
  if (WeightStream* stream = store_->stream()) stream->start_trace();
  if (KVStream* stream = kv_->stream()) stream->start_trace();
}

std::pair<StepTrace, StreamTrace> Runtime::stop_trace() {
  StreamTrace trace = store_->stream() != nullptr ? store_->stream()->stop_trace() : StreamTrace{};
  if (KVStream* stream = kv_->stream()) {
    const auto [waits, reads] = stream->stop_trace();
    trace.waits.insert(trace.waits.end(), waits.begin(), waits.end());
    for (const ReadEvent& event : reads) trace.reads.push_back(StreamTrace::Read{event});
  }
  return {executor_->stop_trace(), std::move(trace)};
}

void Runtime::stop() {
  if (WeightStream* stream = store_->stream()) stream->stop();
  if (KVStream* stream = kv_->stream()) stream->stop();
}

Logits Runtime::step(std::span<const Span> spans, const std::function<bool()>& should_stop) {
  if (spans.empty()) fail("found none, expected at least one");
  std::int32_t num_tokens = 0, num_logits = 0;
  std::int64_t pages = 0, written = 0;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    check(spans[s], num_tokens);
    for (std::size_t t = 0; t < s; ++t)
      if (spans[t].sequence == spans[s].sequence) fail("found a sequence twice, expected one span for each");
    const auto n = static_cast<std::int32_t>(spans[s].tokens.size());
    num_tokens += n;
    num_logits += spans[s].logits == LogitsMode::all ? n : spans[s].logits == LogitsMode::last ? 1 : 0;
    pages += kv_->num_pages_needed(spans[s].sequence, n);
    written += kv_->num_pages_written(spans[s].sequence, n);
  }
  if (pages > kv_->num_pages_free())
    throw std::length_error("KV cache: found " + std::to_string(kv_->num_pages_free()) + " free pages, expected " +
                            std::to_string(pages));
  if (written > kv_->num_pages_in_memory())
    throw std::length_error("KV cache: found room for " + std::to_string(kv_->num_pages_in_memory()) +
                            " pages in memory, expected " + std::to_string(written) + " that the step writes");
  const std::int64_t stride = executor_->logits_stride();
  const auto logits_bytes = static_cast<std::size_t>(num_logits * stride * std::int64_t{sizeof(float)});
  if (logits_->num_bytes() < logits_bytes || logits_->num_bytes() > logits_bytes + kIdleLogitsBytes)
    logits_ = std::make_shared<Memory>(logits_bytes);
  for (const Span& span : spans) kv_->reserve(span.sequence, static_cast<std::int32_t>(span.tokens.size()));
  if (store_->stream() != nullptr) {
    run_streamed(spans, num_tokens, num_logits, should_stop);
  } else {
    begin_kv_pass(spans, 0, num_tokens, should_stop);
    lay_out(spans, 0, num_tokens);
    executor_->run(logits_->as<float>());
    if (!end_kv_pass()) throw Stopped();
  }
  for (const Span& span : spans) kv_->commit(span.sequence, static_cast<std::int32_t>(span.tokens.size()));
  return {logits_, logits_->as<float>(), num_logits, stride, vocab_size()};
}

}  // namespace edgert
