// Storing keys and values, and attention over them.
#include <algorithm>

#include "graph/executor.h"

namespace edgert {
namespace {

// Items a thread should find in a step, so that slow and fast threads finish together.
constexpr std::int32_t kItemsPerThread = 4;
// Fewer pages are not worth the way through memory that the results of a part take.
constexpr std::int32_t kPagesPerPart = 4;
// Tokens of a step up to which the context is divided.
constexpr std::int32_t kDividedTokens = 2;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

std::int32_t pages_of(std::int32_t num_tokens) { return (num_tokens + kPageTokens - 1) / kPageTokens; }

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
  // Most pages lie wholly before the span, or wholly before the window.
  if (first + kPageTokens <= rows.base && span.segments.empty() && a.window <= 0) return ~std::uint64_t{0};
  if (a.window > 0 && first >= a.sinks && first + kPageTokens <= place - a.window + 1) return 0;
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

// What a span reads of the pages that are on disk.
KVRead Executor::kv_read(const Step& step, const SpanRows& span) const {
  const NodeAttributes& a = attributes(step);
  KVRead read{.sequence = span.span->sequence, .layer = a.layer, .end_page = pages_of(span.base + span.num_rows)};
  if (a.window > 0) {
    // Its first token looks back the farthest.
    read.skip_begin = pages_of(a.sinks);
    read.skip_end = std::max(read.skip_begin, (span.base - a.window + 1) / kPageTokens);
  }
  return read;
}

void Executor::add_kv_reads(int first_segment, int last_segment, std::vector<KVRead>& reads) const {
  for (std::size_t i = first_step(first_segment); i < first_step(last_segment); ++i) {
    if (plan_.steps[i].kind != StepKind::attention) continue;
    for (std::int32_t s = 0; s < rows_.num_spans; ++s) {
      const KVRead read = kv_read(plan_.steps[i], rows_.spans[at(s)]);
      if (kv_.stream()->has_pages(read)) reads.push_back(read);
    }
  }
}

// Span by span, chunk by chunk, in the order of the pages. False: the pass was stopped.
bool Executor::run_attention(KVStream& stream, std::size_t step) {
  bool is_there = true;
  for (std::int32_t s = 0; s < rows_.num_spans && is_there; ++s) {
    part_ = {.span = s};
    if (!stream.has_pages(kv_read(plan_.steps[step], rows_.spans[at(s)]))) {
      run_steps(step, step + 1);
      continue;
    }
    do {
      part_.chunk = stream.next();
      if (!(is_there = part_.chunk != nullptr)) break;
      part_.is_last = part_.chunk->is_last;
      part_.end_page = part_.is_last ? std::numeric_limits<std::int32_t>::max() : part_.chunk->pages.back() + 1;
      run_steps(step, step + 1);
      stream.release();
      part_.begin_page = part_.end_page;
      part_.is_first = false;
    } while (!part_.is_last);
  }
  part_ = {};
  return is_there;
}

void Executor::prepare_attention() {
  const std::int32_t num_blocks = pages_of(kv_.max_tokens()) + 1;
  std::int64_t scratch_floats = 0, partial_floats = 0;
  std::int32_t max_tiles = 0, max_heads = 0;
  for (const Node& node : graph_.nodes) {
    if (node.op != Op::attention) continue;
    const NodeAttributes& a = node.attributes;
    scratch_floats = std::max(scratch_floats, attention_scratch(a.head_dim));
    max_heads = std::max(max_heads, a.num_heads);
    const AttentionWork one = divide_attention(a, 1, kv_.max_tokens());
    if (one.num_parts == 1) continue;
    max_tiles = std::max(max_tiles, kDividedTokens * one.head_tiles * a.num_kv_heads);
    partial_floats = std::max(partial_floats, std::int64_t{kDividedTokens} * one.head_tiles * a.num_kv_heads *
                                                  one.heads * num_blocks * partial_stride(a.head_dim));
  }
  for (Scratch& s : scratch_) {
    s.blocks.resize(at(num_blocks));
    s.masks.resize(at(num_blocks) * kMaxAttentionRows);
    s.floats = Memory(static_cast<std::size_t>(scratch_floats) * sizeof(float));
  }
  partials_ = Memory(static_cast<std::size_t>(partial_floats) * sizeof(float));
  if (kv_.stream() != nullptr) states_ = Memory(at(plan_.round_rows) * at(max_heads) * sizeof(AttentionState));
  parts_done_ = std::vector<std::atomic<std::int32_t>>(at(max_tiles));
}

// Tokens fill a tile until each thread has its items; a step of few tokens divides the context too.
Executor::AttentionWork Executor::divide_attention(const NodeAttributes& a, std::int32_t num_tokens,
                                                   std::int32_t num_positions) const {
  AttentionWork work;
  const std::int32_t group = a.num_heads / a.num_kv_heads, wanted = kItemsPerThread * team_.num_threads();
  work.heads = std::min(group, kMaxAttentionRows);
  work.head_tiles = (group + work.heads - 1) / work.heads;
  const std::int64_t items = std::int64_t{num_tokens} * work.head_tiles * a.num_kv_heads;
  work.tokens = static_cast<std::int32_t>(std::clamp<std::int64_t>(items / wanted, 1, kMaxAttentionRows / work.heads));
  if (num_tokens <= kDividedTokens && team_.num_threads() > 1 && items < wanted)
    work.num_parts = std::clamp((wanted + static_cast<std::int32_t>(items) - 1) / static_cast<std::int32_t>(items), 1,
                                std::max(1, pages_of(num_positions) / kPagesPerPart));
  return work;
}

std::int32_t Executor::divide_attention(std::size_t step) {
  const NodeAttributes& a = attributes(plan_.steps[step]);
  std::int32_t num_tokens = 0, num_positions = 0, tiles = 0;
  const std::int32_t first = std::max(part_.span, 0), last = part_.span < 0 ? rows_.num_spans : part_.span + 1;
  for (std::int32_t s = first; s < last; ++s) {
    num_tokens += rows_.spans[at(s)].num_rows;
    num_positions = std::max(num_positions, rows_.spans[at(s)].base + rows_.spans[at(s)].num_rows);
  }
  const std::int32_t end_page = std::min(part_.end_page, pages_of(num_positions));
  num_positions = (end_page - part_.begin_page) * kPageTokens;
  AttentionWork& work = attention_works_[step];
  work = divide_attention(a, num_tokens, num_positions);
  for (std::int32_t s = first; s < last; ++s) tiles += work.num_tiles(rows_.spans[at(s)].num_rows);
  return tiles * a.num_kv_heads * work.num_parts;
}

// Items are ordered by tile, then KV head, then part.
void Executor::attention(const Step& step, std::int32_t item, int thread) {
  const NodeAttributes& a = attributes(step);
  const AttentionWork& work = attention_works_[static_cast<std::size_t>(&step - plan_.steps.data())];
  const std::int32_t part = item % work.num_parts, tile_and_head = item / work.num_parts;
  std::int32_t tile = tile_and_head / a.num_kv_heads, s = std::max(part_.span, 0);
  for (; tile >= work.num_tiles(rows_.spans[at(s)].num_rows); ++s) tile -= work.num_tiles(rows_.spans[at(s)].num_rows);
  const SpanRows& span = rows_.spans[at(s)];
  const AttentionTile t(a, work, span, tile_and_head % a.num_kv_heads, tile);
  AttentionTask task = attention_task(step, span, t, scratch_[at(thread)]);
  if (work.num_parts == 1) {
    kernels_.attention(task);
  } else {
    const std::int64_t row_floats = partial_stride(a.head_dim), max_blocks = pages_of(kv_.max_tokens()) + 1;
    task.partials = partials_.as<float>() + tile_and_head * max_blocks * work.heads * row_floats;
    AttentionTask own = task;
    const std::int32_t begin = task.num_blocks * part / work.num_parts;
    own.num_blocks = task.num_blocks * (part + 1) / work.num_parts - begin;
    own.blocks += begin;
    own.masks += std::int64_t{begin} * task.num_rows;
    own.partials += std::int64_t{begin} * task.num_rows * row_floats;
    kernels_.attention(own);
    // Whoever finishes a tile's last part merges them all, in the order of the pages.
    std::atomic<std::int32_t>& done = parts_done_[at(tile_and_head)];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < work.num_parts) return;
    done.store(0, std::memory_order_relaxed);
    kernels_.merge_attention(task);
  }
  // The last head of a token is followed by the pad that float kernels read.
  if (t.first_head + t.num_heads == a.num_heads)
    for (std::int32_t i = 0; i < t.num_tokens; ++i)
      clear_pad(step.out, span.first_row + t.first_token + i, a.num_heads * a.head_dim);
}

Executor::AttentionTile::AttentionTile(const NodeAttributes& a, const AttentionWork& work, const SpanRows& span,
                                       std::int32_t kv_head_index, std::int32_t tile)
    : kv_head(kv_head_index),
      first_head(kv_head * (a.num_heads / a.num_kv_heads) + tile % work.head_tiles * work.heads),
      num_heads(std::min(work.heads, (kv_head + 1) * (a.num_heads / a.num_kv_heads) - first_head)),
      first_token(tile / work.head_tiles * work.tokens),
      num_tokens(std::min(work.tokens, span.num_rows - first_token)) {}

// The rows of a tile with all pages of which one of them may read something.
AttentionTask Executor::attention_task(const Step& step, const SpanRows& span, const AttentionTile& tile,
                                       Scratch& scratch) const {
  const NodeAttributes& a = attributes(step);
  AttentionTask task;  // q, out and states of the rows that there are: clearing all takes longer than a short block
  task.format = kv_.format();
  task.head_dim = a.head_dim;
  task.scale = a.scale;
  task.soft_cap = a.soft_cap;
  task.num_rows = tile.num_tokens * tile.num_heads;
  task.num_blocks = 0;
  task.log_sum_exp = nullptr;
  task.blocks = scratch.blocks.data();
  task.masks = scratch.masks.data();
  task.scratch = scratch.floats.as<float>();
  task.partials = nullptr;
  task.is_first = part_.is_first;
  task.is_last = part_.is_last;
  for (std::int32_t t = 0; t < tile.num_tokens; ++t)
    for (std::int32_t h = 0; h < tile.num_heads; ++h) {
      const std::int32_t r = span.first_row + tile.first_token + t;
      const std::int64_t offset = std::int64_t{tile.first_head + h} * a.head_dim;
      task.q[t * tile.num_heads + h] = row(step.in[0], r) + offset;
      task.out[t * tile.num_heads + h] = row(step.out, r) + offset;
      if (part_.chunk != nullptr)
        task.states[t * tile.num_heads + h] =
            states_.as<AttentionState>() + std::int64_t{r} * a.num_heads + tile.first_head + h;
    }
  const std::int32_t end =
      span.span->tree_mask.empty() ? span.base + tile.first_token + tile.num_tokens : span.base + span.num_rows;
  for (std::int32_t page = part_.begin_page; page < part_.end_page && page * kPageTokens < end; ++page) {
    std::uint64_t* masks = scratch.masks.data() + std::int64_t{task.num_blocks} * task.num_rows;
    std::uint64_t any = 0;
    for (std::int32_t t = 0; t < tile.num_tokens; ++t) {
      const std::uint64_t mask = visible(span, a, tile.first_token + t, std::int64_t{page} * kPageTokens);
      any |= mask;
      std::fill_n(masks + t * tile.num_heads, tile.num_heads, mask);
    }
    if (any == 0) continue;
    const SequenceId sequence = span.span->sequence;
    scratch.blocks[at(task.num_blocks)] = part_.chunk != nullptr && kv_.is_on_disk(sequence, page)
                                              ? kv_.block_of_record(part_.chunk->record(page), a.layer, tile.kv_head)
                                              : kv_.block(sequence, a.layer, tile.kv_head, page);
    ++task.num_blocks;
  }
  return task;
}

}  // namespace edgert
