// How soon the next bytes may be asked for if a disk is to look slower than it is.
#pragma once
#include <algorithm>
#include <cstdint>

namespace edgert {

// A bucket of credit that fills at the rate. A chunk begins when there is credit for all of it, so that it arrives when
// a disk of this rate would have read it, also after a pause; a waiter who was woken late makes up for it.
class RateLimit {
 public:
  explicit RateLimit(std::int64_t bytes_per_s) : rate_(static_cast<double>(bytes_per_s)) {}

  // A chunk of 10 ms, so that a slow disk does not come in lumps: a multiple of `alignment`, at least 64 KiB.
  std::int64_t chunk_bytes(std::int64_t most, std::int64_t alignment) const {
    if (rate_ <= 0) return most;
    const auto bytes = static_cast<std::int64_t>(rate_ * 0.01) / alignment * alignment;
    return std::min(most, std::max<std::int64_t>(bytes, 64 << 10));
  }
  // Seconds until the next chunk, of so many bytes, may begin.
  double wait_s(double now_s, std::int64_t num_bytes) {
    if (rate_ <= 0) return 0;
    const auto needed = static_cast<double>(num_bytes);
    credit_ = std::min(credit_ + (now_s - last_s_) * rate_, is_resting_ ? 0 : needed + kBurst_s * rate_);
    last_s_ = now_s;
    is_resting_ = false;
    return credit_ < needed ? (needed - credit_) / rate_ : 0;
  }
  void take(std::int64_t num_bytes) { credit_ -= static_cast<double>(num_bytes); }
  // Nothing waits to be read: a pause saves up no credit.
  void rest() { is_resting_ = true; }

 private:
  static constexpr double kBurst_s = 0.05;
  double rate_, credit_ = 0, last_s_ = 0;
  bool is_resting_ = true;
};

}  // namespace edgert
