#include "kv/kv_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace edgert {
namespace {

// Unowned pages that keep their memory for the next taker; the others give it back.
constexpr std::size_t kWarmPages = 8;
// Pages whose entries have room from the beginning, so that a step takes no memory from the heap for them.
constexpr std::int64_t kListedPages = 1 << 16;

}  // namespace

KVStore::KVStore(std::vector<KVSpec> layers, KVFormat format, std::int64_t budget_bytes, std::int32_t max_tokens)
    : layers_(std::move(layers)), format_(format), max_tokens_(max_tokens) {
  for (const KVSpec& layer : layers_) {
    layer_offsets_.push_back(page_bytes_);
    page_bytes_ += 2 * layer.num_kv_heads * kv_block_bytes(format, layer.head_dim);
  }
  page_bytes_ = std::max<std::int64_t>(round_up(page_bytes_, 64), 64);
  max_pages_ = budget_bytes / page_bytes_;
  if (max_pages_ < 1)
    throw std::invalid_argument("KV budget: found " + std::to_string(budget_bytes) +
                                " bytes, expected at least one page of " + std::to_string(page_bytes_));
  const auto known_pages = static_cast<std::size_t>(std::min(max_pages_, kListedPages));
  pages_.reserve(known_pages);
  free_pages_.reserve(known_pages);
}

SequenceId KVStore::open() {
  std::size_t id = 0;
  while (id < sequences_.size() && sequences_[id].is_open) ++id;
  if (id == sequences_.size()) sequences_.emplace_back();
  // Room for every page that it may have: appending in a step then takes no memory from the heap.
  sequences_[id].pages.reserve(static_cast<std::size_t>((max_tokens_ + kPageTokens - 1) / kPageTokens));
  sequences_[id].is_open = true;
  sequences_[id].length = 0;
  return static_cast<SequenceId>(id);
}

bool KVStore::is_open(SequenceId sequence) const {
  return sequence >= 0 && static_cast<std::size_t>(sequence) < sequences_.size() && at(sequence).is_open;
}

SequenceId KVStore::fork(SequenceId sequence) {
  const SequenceId id = open();
  at(id).length = at(sequence).length;
  at(id).pages = at(sequence).pages;
  for (const std::int32_t page : at(id).pages) ++pages_[static_cast<std::size_t>(page)].num_owners;
  return id;
}

void KVStore::rewind(SequenceId sequence, std::int32_t length) {
  Sequence& s = at(sequence);
  const auto keep = static_cast<std::size_t>((length + kPageTokens - 1) / kPageTokens);
  // Newest first, so a shared prefix is freed last.
  while (s.pages.size() > keep) {
    drop_page(s.pages.back());
    s.pages.pop_back();
  }
  s.length = length;
}

void KVStore::release(SequenceId sequence) {
  rewind(sequence, 0);
  at(sequence).is_open = false;
}

std::int64_t KVStore::num_pages_needed(SequenceId sequence, std::int32_t num_tokens) const {
  const Sequence& s = at(sequence);
  if (num_tokens == 0) return 0;
  const std::int64_t end = (std::int64_t{s.length} + num_tokens + kPageTokens - 1) / kPageTokens;
  std::int64_t needed = std::max<std::int64_t>(0, end - static_cast<std::int64_t>(s.pages.size()));
  for (std::size_t i = static_cast<std::size_t>(s.length / kPageTokens); i < s.pages.size(); ++i)
    if (pages_[static_cast<std::size_t>(s.pages[i])].num_owners > 1) ++needed;
  return needed;
}

void KVStore::reserve(SequenceId sequence, std::int32_t num_tokens) {
  if (num_tokens == 0) return;
  Sequence& s = at(sequence);
  for (std::size_t i = static_cast<std::size_t>(s.length / kPageTokens); i < s.pages.size(); ++i) {
    const std::int32_t shared = s.pages[i];
    if (pages_[static_cast<std::size_t>(shared)].num_owners == 1) continue;
    const std::int32_t copy = take_page();
    std::memcpy(pages_[static_cast<std::size_t>(copy)].memory.data(),
                pages_[static_cast<std::size_t>(shared)].memory.data(), static_cast<std::size_t>(page_bytes_));
    s.pages[i] = copy;
    drop_page(shared);
  }
  const auto end = static_cast<std::size_t>((s.length + num_tokens + kPageTokens - 1) / kPageTokens);
  const std::size_t before = s.pages.size();
  try {
    while (s.pages.size() < end) s.pages.push_back(take_page());
  } catch (...) {
    while (s.pages.size() > before) {
      drop_page(s.pages.back());
      s.pages.pop_back();
    }
    throw;
  }
}

std::int64_t KVStore::memory_bytes() const {
  const auto has_memory = [](const Page& page) { return page.memory.data() != nullptr; };
  return std::count_if(pages_.begin(), pages_.end(), has_memory) * page_bytes_;
}

KVBlock KVStore::block(SequenceId sequence, std::int32_t layer, std::int32_t kv_head, std::int32_t page_index) const {
  const KVSpec& spec = layers_[static_cast<std::size_t>(layer)];
  const std::int64_t half = kv_block_bytes(format_, spec.head_dim);
  const std::int32_t page = at(sequence).pages[static_cast<std::size_t>(page_index)];
  const std::uint8_t* k = pages_[static_cast<std::size_t>(page)].memory.data() +
                          layer_offsets_[static_cast<std::size_t>(layer)] + 2 * half * kv_head;
  return {k, k + half};
}

std::int32_t KVStore::take_page() {
  std::int32_t page;
  if (!free_pages_.empty()) {
    page = free_pages_.back();
  } else {
    pages_.emplace_back();
    page = static_cast<std::int32_t>(pages_.size()) - 1;
    free_pages_.push_back(page);
  }
  Page& p = pages_[static_cast<std::size_t>(page)];
  if (p.memory.data() == nullptr) {
    p.memory = Memory(static_cast<std::size_t>(page_bytes_));
  } else {
    std::memset(p.memory.data(), 0, static_cast<std::size_t>(page_bytes_));
  }
  free_pages_.pop_back();
  p.num_owners = 1;
  ++num_pages_used_;
  return page;
}

void KVStore::drop_page(std::int32_t page) {
  Page& p = pages_[static_cast<std::size_t>(page)];
  if (--p.num_owners > 0) return;
  --num_pages_used_;
  free_pages_.push_back(page);
  if (free_pages_.size() <= kWarmPages) return;
  // The one that has waited longest gives its memory back; it stays in the list as an empty page.
  for (const std::int32_t candidate : free_pages_) {
    Page& c = pages_[static_cast<std::size_t>(candidate)];
    if (c.memory.data() == nullptr) continue;
    c.memory = Memory();
    break;
  }
}

}  // namespace edgert
