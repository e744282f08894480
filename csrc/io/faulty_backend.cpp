#include "io/faulty_backend.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace edgert {
namespace {

using Clock = std::chrono::steady_clock;

class FaultyBackend final : public ReadBackend {
 public:
  FaultyBackend(std::unique_ptr<ReadBackend> inner, const Faults& faults) : inner_(std::move(inner)), faults_(faults) {}

  ReadMethod method() const override { return inner_->method(); }
  const std::string& path(std::int32_t file) const override { return inner_->path(file); }
  void wake() override { inner_->wake(); }

  void begin(const ReadChunk& chunk) override {
    begun_.push_back({num_begun_++, chunk, Clock::now()});
    inner_->begin(chunk);
  }

  void wait(double timeout_s, std::vector<ReadResult>& results) override {
    release(results);
    for (const Held& held : held_) {
      const double left_s = std::max(std::chrono::duration<double>(held.due - Clock::now()).count(), 0.0);
      if (!faults_.is_reversed) timeout_s = timeout_s < 0 ? left_s : std::min(timeout_s, left_s);
    }
    std::vector<ReadResult> arrived;
    inner_->wait(results.empty() ? timeout_s : 0, arrived);
    for (const ReadResult& result : arrived) hold(result);
    release(results);
  }

 private:
  struct Begun {
    std::int64_t number;
    ReadChunk chunk;
    Clock::time_point time;
  };
  struct Held {
    std::int64_t number;
    ReadResult result;
    Clock::time_point due;
  };

  void hold(ReadResult result) {
    const auto place =
        std::find_if(begun_.begin(), begun_.end(), [&](const Begun& b) { return b.chunk.slot == result.slot; });
    const Begun begun = *place;
    begun_.erase(place);
    if (begun.number < faults_.num_short && result.num_bytes > 0) {
      const std::int64_t kept = std::max<std::int64_t>(result.num_bytes - faults_.short_bytes, 1);
      // So that nobody finds by luck what was not given.
      std::memset(begun.chunk.out + kept, 0xEE, static_cast<std::size_t>(result.num_bytes - kept));
      result.num_bytes = kept;
    }
    if (begun.number == faults_.fail_at) result = {result.slot, EIO, 0};
    const double stall_s = begun.number == faults_.stall_at ? faults_.stall_s : 0;
    held_.push_back({begun.number, result,
                     begun.time + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(stall_s))});
  }

  void release(std::vector<ReadResult>& results) {
    if (faults_.is_reversed) {
      if (!begun_.empty()) return;
      std::sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) { return a.number > b.number; });
    }
    const Clock::time_point now = Clock::now();
    std::erase_if(held_, [&](const Held& held) {
      if (!faults_.is_reversed && held.due > now) return false;
      results.push_back(held.result);
      return true;
    });
  }

  const std::unique_ptr<ReadBackend> inner_;
  const Faults faults_;
  std::int64_t num_begun_ = 0;
  std::vector<Begun> begun_;  // under way in the inner one
  std::vector<Held> held_;    // have ended there, and are not told yet
};

}  // namespace

std::unique_ptr<ReadBackend> make_faulty_backend(std::unique_ptr<ReadBackend> inner, const Faults& faults) {
  return std::make_unique<FaultyBackend>(std::move(inner), faults);
}

}  // namespace edgert
