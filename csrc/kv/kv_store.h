// The KV cache: pages of 64 positions, shared between sequences until one of them writes.
#pragma once
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "formats/kv.h"

namespace edgert {

using SequenceId = std::int32_t;

// What a layer keeps of each position.
struct KVSpec {
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
};

// Not thread-safe: the runtime calls it between steps; inside a step only `block` is called.
class KVStore {
 public:
  // Pages are allocated as they are used, at most budget_bytes of them; max_tokens positions a sequence.
  KVStore(std::vector<KVSpec> layers, KVFormat format, std::int64_t budget_bytes, std::int32_t max_tokens);

  SequenceId open();
  // A sequence with the same positions; pages are copied when one of the two writes (copy-on-write).
  SequenceId fork(SequenceId sequence);
  // Forgets the positions from `length` on. REQUIRES: 0 <= length <= length(sequence).
  void rewind(SequenceId sequence, std::int32_t length);
  void release(SequenceId sequence);
  bool is_open(SequenceId sequence) const;
  std::int32_t length(SequenceId sequence) const { return at(sequence).length; }

  // Pages that appending num_tokens to the sequence would take.
  std::int64_t num_pages_needed(SequenceId sequence, std::int32_t num_tokens) const;
  std::int64_t num_pages_free() const { return max_pages_ - num_pages_used_; }
  // Makes room for num_tokens behind the sequence's end, copying a shared page that would be written.
  // REQUIRES: num_pages_needed(...) <= num_pages_free(). Throws std::bad_alloc; the sequence then is as it was.
  void reserve(SequenceId sequence, std::int32_t num_tokens);
  // The reserved positions have been written.
  void commit(SequenceId sequence, std::int32_t num_tokens) { at(sequence).length += num_tokens; }

  KVBlock block(SequenceId sequence, std::int32_t layer, std::int32_t kv_head, std::int32_t page_index) const;

  KVFormat format() const { return format_; }
  std::int32_t max_tokens() const { return max_tokens_; }
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t used_bytes() const { return num_pages_used_ * page_bytes_; }
  // Of all pages that have memory, those that keep it for the next taker included.
  std::int64_t memory_bytes() const;
  std::int64_t max_bytes() const { return max_pages_ * page_bytes_; }

 private:
  struct Page {
    Memory memory;
    std::int32_t num_owners = 0;
  };
  struct Sequence {
    bool is_open = false;
    std::int32_t length = 0;
    std::vector<std::int32_t> pages;
  };
  Sequence& at(SequenceId sequence) { return sequences_[static_cast<std::size_t>(sequence)]; }
  const Sequence& at(SequenceId sequence) const { return sequences_[static_cast<std::size_t>(sequence)]; }
  std::int32_t take_page();
  void drop_page(std::int32_t page);

  std::vector<KVSpec> layers_;
  std::vector<std::int64_t> layer_offsets_;
  KVFormat format_;
  std::int32_t max_tokens_;
  std::int64_t page_bytes_ = 0;
  std::int64_t max_pages_ = 0, num_pages_used_ = 0;
  std::vector<Page> pages_;
  std::vector<std::int32_t> free_pages_;  // indices of pages_ without owner
  std::vector<Sequence> sequences_;
};

}  // namespace edgert
