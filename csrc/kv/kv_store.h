// The KV cache: pages of 64 positions, shared between sequences until one of them writes. Where memory is bounded, the
// pages that were written longest ago lie in a file.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "formats/kv.h"
#include "io/reader.h"
#include "io/spill_file.h"

namespace edgert {

class KVStream;

using SequenceId = std::int32_t;

// What a layer keeps of each position.
struct KVSpec {
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
};

// How much of the pages stays in memory, and where the others go.
struct KVSpill {
  std::int64_t memory_bytes = 0;  // of pages that are in memory
  std::int64_t ring_bytes = 0;    // besides: what pages are read into while a step runs
  std::string folder;             // of the file; empty: all pages stay in memory
  ReaderOptions reader = {};
};

// Not thread-safe: the runtime calls it between steps; inside a step only `block` and `is_on_disk` are called.
class KVStore {
 public:
  // Pages are allocated as they are used, at most budget_bytes of them; max_tokens positions a sequence.
  // Throws std::invalid_argument where a budget is too small, std::system_error without a file to spill to.
  KVStore(std::vector<KVSpec> layers, KVFormat format, std::int64_t budget_bytes, std::int32_t max_tokens,
          const KVSpill& spill = {});
  ~KVStore();

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
  // Pages that appending num_tokens to the sequence writes: they are in memory together with those of the other
  // sequences of a step.
  std::int64_t num_pages_written(SequenceId sequence, std::int32_t num_tokens) const;
  std::int64_t num_pages_in_memory() const { return max_in_memory_; }  // at most
  // Makes room for num_tokens behind the sequence's end, copying a shared page that would be written, and writing
  // others to disk where memory ends. REQUIRES: num_pages_needed(...) <= num_pages_free(). Throws std::bad_alloc,
  // std::system_error where the disk fails; the sequence then has the positions that it had.
  void reserve(SequenceId sequence, std::int32_t num_tokens);
  // The reserved positions have been written.
  void commit(SequenceId sequence, std::int32_t num_tokens) { at(sequence).length += num_tokens; }

  // REQUIRES: the page is in memory.
  KVBlock block(SequenceId sequence, std::int32_t layer, std::int32_t kv_head, std::int32_t page_index) const;
  // The same in what was read of a page from disk.
  KVBlock block_of_record(const std::uint8_t* record, std::int32_t layer, std::int32_t kv_head) const;

  bool is_on_disk(SequenceId sequence, std::int32_t page_index) const {
    return pages_[static_cast<std::size_t>(at(sequence).pages[static_cast<std::size_t>(page_index)])].memory.data() ==
           nullptr;
  }
  // What the file holds of a page for one layer: where, and how much.
  std::int64_t record_offset(SequenceId sequence, std::int32_t layer, std::int32_t page_index) const;
  std::int64_t record_bytes(std::int32_t layer) const {
    return layer_offsets_[static_cast<std::size_t>(layer) + 1] - layer_offsets_[static_cast<std::size_t>(layer)];
  }
  std::int32_t num_layers() const { return static_cast<std::int32_t>(layers_.size()); }
  // Null: all pages stay in memory.
  KVStream* stream() const { return stream_.get(); }

  KVFormat format() const { return format_; }
  std::int32_t max_tokens() const { return max_tokens_; }
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t used_bytes() const { return num_pages_used_ * page_bytes_; }
  // Of all pages that have memory, those that keep it for the next taker included.
  std::int64_t memory_bytes() const { return num_in_memory_ * page_bytes_; }
  // Of pages in use that lie on disk; written there in all.
  std::int64_t disk_bytes() const { return num_on_disk_ * page_bytes_; }
  std::int64_t written_bytes() const { return written_bytes_.load(std::memory_order_relaxed); }  // from any thread
  std::int64_t max_bytes() const { return max_pages_ * page_bytes_; }

 private:
  struct Page {
    Memory memory;  // empty: it is on disk, or free
    std::int32_t num_owners = 0;
    bool is_written = false;     // the file holds it as it is
    std::uint64_t last_use = 0;  // when it was reserved: the one of longest ago goes to disk first
  };
  struct Sequence {
    bool is_open = false;
    std::int32_t length = 0;
    std::vector<std::int32_t> pages;
  };
  Sequence& at(SequenceId sequence) { return sequences_[static_cast<std::size_t>(sequence)]; }
  const Sequence& at(SequenceId sequence) const { return sequences_[static_cast<std::size_t>(sequence)]; }
  Page& page(std::int32_t index) { return pages_[static_cast<std::size_t>(index)]; }
  std::int32_t take_page();
  void drop_page(std::int32_t page);
  Memory take_memory();
  void write_page(std::int32_t page);
  void read_page(std::int32_t page, const Memory& memory);
  void own_page(std::int32_t& page);

  std::vector<KVSpec> layers_;
  std::vector<std::int64_t> layer_offsets_;  // in a page; one more at the end
  KVFormat format_;
  std::int32_t max_tokens_;
  std::int64_t page_bytes_ = 0;
  std::int64_t max_pages_ = 0, num_pages_used_ = 0;
  std::vector<Page> pages_;
  std::vector<std::int32_t> free_pages_;  // indices of pages_ without owner
  std::vector<Sequence> sequences_;
  std::int64_t max_in_memory_ = 0, num_in_memory_ = 0;  // pages that have memory
  std::int64_t num_on_disk_ = 0;                        // pages in use that have none
  std::uint64_t num_uses_ = 0;
  std::atomic<std::int64_t> written_bytes_{0};
  std::unique_ptr<SpillFile> file_;
  std::unique_ptr<KVStream> stream_;
};

}  // namespace edgert
