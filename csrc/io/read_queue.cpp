#include "io/read_queue.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>

#include "base/memory.h"

namespace edgert {
namespace {

// A file that ends inside a sector gives the same few bytes each time.
constexpr std::int32_t kMostTries = 8;

}  // namespace

ReadQueue::ReadQueue(std::int32_t most_requests, std::int32_t depth, std::int64_t chunk_bytes)
    : chunk_bytes_(chunk_bytes), most_bytes_(depth * chunk_bytes), slots_(static_cast<std::size_t>(most_requests)) {
  for (std::int32_t slot = most_requests; slot-- > 0;) free_slots_.push_back(slot);
}

void ReadQueue::add(const ReadRequest& request) {
  const std::int64_t begin = request.offset - window_lead(request.offset);
  const std::int64_t end = request.length > 0 ? round_up(request.offset + request.length, kDirectAlignment) : begin;
  const std::int64_t num_chunks = std::max<std::int64_t>((end - begin + chunk_bytes_ - 1) / chunk_bytes_, 1);
  const auto [place, is_new] = reads_.try_emplace(request.tag);
  if (!is_new) throw std::invalid_argument("read " + std::to_string(request.tag) + ": one of this tag is under way");
  Read& read = place->second;
  read.request = request;
  read.order = num_added_++;
  read.next = begin;
  read.end = end;
  read.chunk_bytes = round_up((end - begin + num_chunks - 1) / num_chunks, kDirectAlignment);
  if (begin < end) waiting_[key(read)] = &read;
  end_if_ended(read);
}

void ReadQueue::set_priority(ReadTag tag, ReadPriority priority) {
  const auto place = reads_.find(tag);
  if (place == reads_.end()) return;
  Read& read = place->second;
  const bool is_waiting = waiting_.erase(key(read)) != 0;
  read.request.priority = priority;
  if (is_waiting) waiting_[key(read)] = &read;
}

void ReadQueue::cancel(ReadTag tag) {
  const auto place = reads_.find(tag);
  if (place != reads_.end()) cancel(place->second);
}

void ReadQueue::cancel_all() {
  for (auto place = reads_.begin(); place != reads_.end();) cancel((place++)->second);
}

void ReadQueue::cancel(Read& read) {
  read.is_cancelled = true;
  waiting_.erase(key(read));
  end_if_ended(read);
}

std::int64_t ReadQueue::next_length() const {
  const Read& read = *waiting_.begin()->second;
  return read.rests.empty() ? std::min(read.chunk_bytes, read.end - read.next) : read.rests.back().length;
}

ReadChunk ReadQueue::begin(double now_s) {
  Read& read = *waiting_.begin()->second;
  Piece piece{read.next, std::min(read.chunk_bytes, read.end - read.next), 0};
  if (read.rests.empty()) {
    read.next += piece.length;
  } else {
    piece = read.rests.back();
    read.rests.pop_back();
  }
  if (read.rests.empty() && read.next == read.end) waiting_.erase(waiting_.begin());
  const std::int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[static_cast<std::size_t>(slot)] = {&read, piece, now_s, read.request.priority};
  ++read.num_under_way;
  bytes_under_way_ += piece.length;
  const std::int64_t window = read.request.offset - window_lead(read.request.offset);
  return {slot, read.request.file, piece.offset, piece.length, read.request.out + (piece.offset - window)};
}

ReadEvent ReadQueue::finish(const ReadResult& result, double now_s) {
  const Slot slot = slots_[static_cast<std::size_t>(result.slot)];
  free_slots_.push_back(result.slot);
  Read& read = *slot.read;
  --read.num_under_way;
  bytes_under_way_ -= slot.piece.length;
  const ReadEvent event{read.request.tag, slot.begin_s, now_s, result.num_bytes, slot.priority};
  take_result(read, slot.piece, result);
  end_if_ended(read);
  return event;
}

void ReadQueue::take_result(Read& read, const Piece& piece, const ReadResult& result) {
  const std::int64_t needed_end = std::min(piece.offset + piece.length, read.request.offset + read.request.length);
  if (result.error == 0 && piece.offset + result.num_bytes >= needed_end) return;
  const bool is_again = result.error == EINTR || result.error == EAGAIN;
  const std::int64_t arrived = result.error == 0 ? result.num_bytes / kDirectAlignment * kDirectAlignment : 0;
  const std::int32_t num_tries = arrived > 0 ? 0 : piece.num_tries + 1;
  // Kept also if nobody asks for it any more: it says that the read is not complete.
  read.rests.push_back({piece.offset + arrived, piece.length - arrived, num_tries});
  const bool is_over = result.error == 0 ? result.num_bytes == 0 : !is_again;
  if (is_over || num_tries == kMostTries) {
    fail(read, result.error);
  } else if (!read.is_failed && !read.is_cancelled) {
    waiting_[key(read)] = &read;
  }
}

void ReadQueue::fail(Read& read, std::int32_t error) {
  waiting_.erase(key(read));
  if (!read.is_failed) read.error = error;
  read.is_failed = true;
}

void ReadQueue::end_if_ended(Read& read) {
  const bool is_complete = read.next == read.end && read.rests.empty();
  if (read.num_under_way != 0 || !(is_complete || read.is_failed || read.is_cancelled)) return;
  ReadEnd end{read.request.tag, ReadOutcome::complete, read.request.file, 0};
  if (!is_complete) end.outcome = read.is_cancelled ? ReadOutcome::cancelled : ReadOutcome::failed;
  if (end.outcome == ReadOutcome::failed) end.error = read.error;
  ended_.push_back(end);
  reads_.erase(read.request.tag);
}

}  // namespace edgert
