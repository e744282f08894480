#include "kv/kv_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "kv/kv_stream.h"

namespace edgert {
namespace {

// Unowned pages that keep their memory for the next taker; the others give it back.
constexpr std::size_t kWarmPages = 8;
// Pages whose entries have room from the beginning, so that a step takes no memory from the heap for them.
constexpr std::int64_t kListedPages = 1 << 16;
// In memory: one that is written, and one that is copied.
constexpr std::int64_t kLeastPages = 2;

std::int64_t pages_of(std::int64_t num_tokens) { return (num_tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

KVStore::KVStore(std::vector<KVSpec> layers, KVFormat format, std::int64_t budget_bytes, std::int32_t max_tokens,
                 const KVSpill& spill)
    : layers_(std::move(layers)), format_(format), max_tokens_(max_tokens) {
  const bool spills = !spill.folder.empty();
  for (const KVSpec& layer : layers_) {
    layer_offsets_.push_back(page_bytes_);
    const std::int64_t layer_bytes = 2 * layer.num_kv_heads * kv_block_bytes(format, layer.head_dim);
    page_bytes_ += spills ? round_up(layer_bytes, kDirectAlignment) : layer_bytes;
  }
  layer_offsets_.push_back(page_bytes_);
  page_bytes_ = std::max<std::int64_t>(round_up(page_bytes_, 64), 64);
  max_pages_ = budget_bytes / page_bytes_;
  if (max_pages_ < 1)
    throw std::invalid_argument("KV budget: found " + std::to_string(budget_bytes) +
                                " bytes, expected at least one page of " + std::to_string(page_bytes_));
  const auto known_pages = static_cast<std::size_t>(std::min(max_pages_, kListedPages));
  pages_.reserve(known_pages);
  free_pages_.reserve(known_pages);
  max_in_memory_ = spills ? std::min(spill.memory_bytes / page_bytes_, max_pages_) : max_pages_;
  if (!spills) return;
  if (max_in_memory_ < kLeastPages)
    throw std::invalid_argument("KV memory: found " + std::to_string(spill.memory_bytes) +
                                " bytes, expected at least " + std::to_string(kLeastPages) + " pages of " +
                                std::to_string(page_bytes_));
  file_ = std::make_unique<SpillFile>(spill.folder, max_pages_ * page_bytes_);
  stream_ = std::make_unique<KVStream>(*this, file_->file(), spill.ring_bytes, spill.reader);
}

KVStore::~KVStore() = default;

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
  const auto end = static_cast<std::size_t>(pages_of(s.length + num_tokens));
  std::int64_t needed = end > s.pages.size() ? static_cast<std::int64_t>(end - s.pages.size()) : 0;
  for (std::size_t i = static_cast<std::size_t>(s.length / kPageTokens); i < std::min(end, s.pages.size()); ++i)
    if (pages_[static_cast<std::size_t>(s.pages[i])].num_owners > 1) ++needed;
  return needed;
}

std::int64_t KVStore::num_pages_written(SequenceId sequence, std::int32_t num_tokens) const {
  const std::int32_t length = at(sequence).length;
  return num_tokens == 0 ? 0 : pages_of(length + num_tokens) - length / kPageTokens;
}

void KVStore::reserve(SequenceId sequence, std::int32_t num_tokens) {
  if (num_tokens == 0) return;
  Sequence& s = at(sequence);
  const auto end = static_cast<std::size_t>(pages_of(s.length + num_tokens));
  for (std::size_t i = static_cast<std::size_t>(s.length / kPageTokens); i < std::min(end, s.pages.size()); ++i)
    own_page(s.pages[i]);
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

// The page will be written: it is in memory from now on, and no other sequence has it.
void KVStore::own_page(std::int32_t& index) {
  if (page(index).num_owners > 1) {
    const std::int32_t shared = index, copy = take_page();
    try {
      // Taking memory may have sent the shared page to disk.
      if (page(shared).memory.data() != nullptr) {
        std::memcpy(page(copy).memory.data(), page(shared).memory.data(), static_cast<std::size_t>(page_bytes_));
      } else {
        read_page(shared, page(copy).memory);
      }
    } catch (...) {
      drop_page(copy);
      throw;
    }
    index = copy;
    drop_page(shared);
  } else if (page(index).memory.data() == nullptr) {
    Memory memory = take_memory();
    read_page(index, memory);
    page(index).memory = std::move(memory);
    ++num_in_memory_;
    --num_on_disk_;
  }
  page(index).is_written = false;
  page(index).last_use = ++num_uses_;
}

std::int64_t KVStore::record_offset(SequenceId sequence, std::int32_t layer, std::int32_t page_index) const {
  const std::int32_t page = at(sequence).pages[static_cast<std::size_t>(page_index)];
  return max_pages_ * layer_offsets_[static_cast<std::size_t>(layer)] + page * record_bytes(layer);
}

KVBlock KVStore::block(SequenceId sequence, std::int32_t layer, std::int32_t kv_head, std::int32_t page_index) const {
  const std::int32_t page = at(sequence).pages[static_cast<std::size_t>(page_index)];
  return block_of_record(
      pages_[static_cast<std::size_t>(page)].memory.data() + layer_offsets_[static_cast<std::size_t>(layer)], layer,
      kv_head);
}

KVBlock KVStore::block_of_record(const std::uint8_t* record, std::int32_t layer, std::int32_t kv_head) const {
  const std::int64_t half = kv_block_bytes(format_, layers_[static_cast<std::size_t>(layer)].head_dim);
  const std::uint8_t* k = record + 2 * half * kv_head;
  return {k, k + half};
}

std::int32_t KVStore::take_page() {
  std::int32_t index;
  if (!free_pages_.empty()) {
    index = free_pages_.back();
  } else {
    pages_.emplace_back();
    index = static_cast<std::int32_t>(pages_.size()) - 1;
    free_pages_.push_back(index);
  }
  if (page(index).memory.data() == nullptr) {
    page(index).memory = take_memory();
    ++num_in_memory_;
  } else {
    std::memset(page(index).memory.data(), 0, static_cast<std::size_t>(page_bytes_));
  }
  free_pages_.pop_back();
  page(index).num_owners = 1;
  page(index).is_written = false;
  page(index).last_use = ++num_uses_;
  ++num_pages_used_;
  return index;
}

// Zeros for a page: new memory, or that of a free page, or that of the page that was used longest ago.
Memory KVStore::take_memory() {
  if (num_in_memory_ < max_in_memory_) return Memory(static_cast<std::size_t>(page_bytes_));
  std::int32_t oldest = -1;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pages_.size()); ++i) {
    if (page(i).memory.data() == nullptr) continue;
    if (page(i).num_owners == 0 || oldest < 0 || page(i).last_use < page(oldest).last_use) oldest = i;
    if (page(oldest).num_owners == 0) break;
  }
  if (page(oldest).num_owners > 0) {
    if (!page(oldest).is_written) write_page(oldest);
    ++num_on_disk_;
  }
  std::memset(page(oldest).memory.data(), 0, static_cast<std::size_t>(page_bytes_));
  --num_in_memory_;
  return std::exchange(page(oldest).memory, Memory());
}

void KVStore::write_page(std::int32_t index) {
  for (std::int32_t layer = 0; layer < num_layers(); ++layer) {
    const std::int64_t begin = layer_offsets_[static_cast<std::size_t>(layer)];
    file_->write(max_pages_ * begin + index * record_bytes(layer), record_bytes(layer),
                 page(index).memory.data() + begin);
    written_bytes_ += record_bytes(layer);
  }
  page(index).is_written = true;
}

void KVStore::read_page(std::int32_t index, const Memory& memory) {
  for (std::int32_t layer = 0; layer < num_layers(); ++layer) {
    const std::int64_t begin = layer_offsets_[static_cast<std::size_t>(layer)];
    file_->file().read(max_pages_ * begin + index * record_bytes(layer), record_bytes(layer), memory.data() + begin);
  }
}

void KVStore::drop_page(std::int32_t index) {
  if (--page(index).num_owners > 0) return;
  --num_pages_used_;
  if (page(index).memory.data() == nullptr) --num_on_disk_;
  free_pages_.push_back(index);
  if (free_pages_.size() <= kWarmPages) return;
  // The one that has waited longest gives its memory back; it stays in the list as an empty page.
  for (const std::int32_t candidate : free_pages_) {
    if (page(candidate).memory.data() == nullptr) continue;
    page(candidate).memory = Memory();
    --num_in_memory_;
    break;
  }
}

}  // namespace edgert
