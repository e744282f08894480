#include "io/pass.h"

#include <utility>

#include "io/reader.h"

namespace edgert {
namespace {

constexpr std::chrono::milliseconds kStopInterval{10};
constexpr std::chrono::seconds kOverdue{5};

}  // namespace

void Pass::begin(std::function<bool()> should_stop) {
  should_stop_ = std::move(should_stop);
  caller_ = std::this_thread::get_id();
  is_running_ = true;
  last_change_ = std::chrono::steady_clock::now();
}

bool Pass::reset() {
  should_stop_ = nullptr;
  if (!is_stopped_.exchange(false)) return true;
  const std::string error = std::exchange(error_, {});
  if (error.empty()) return false;
  if (std::exchange(is_of_content_, false)) throw std::invalid_argument(error);
  throw ReadError(error);
}

void Pass::stop() {
  if (!is_running_) return;
  is_stopped_.store(true, std::memory_order_release);
  cancel_reads_();
  changed_.notify_all();
}

void Pass::poll() {
  if (std::this_thread::get_id() != caller_ || !should_stop_) return;
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (now - last_poll_ < kStopInterval) return;
  last_poll_ = now;
  if (!should_stop_()) return;
  const std::unique_lock<std::mutex> held = lock();
  stop();
}

void Pass::fail(const std::string& error, bool is_of_content) {
  if (error_.empty()) {
    error_ = error;
    is_of_content_ = is_of_content;
  }
  is_stopped_.store(true, std::memory_order_release);
  changed_.notify_all();
}

double Pass::waited(std::int32_t weight, std::chrono::steady_clock::time_point start) {
  const auto seconds = [](std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (is_tracing_ && std::this_thread::get_id() == caller_ && waits_.size() < kMaxTraceEvents)
    waits_.push_back({weight, seconds(start.time_since_epoch()), seconds(now.time_since_epoch())});
  return seconds(now - start);
}

void Pass::start_trace() {
  waits_.clear();
  waits_.reserve(kMaxTraceEvents);
  is_tracing_ = true;
}

std::vector<WaitEvent> Pass::stop_trace() {
  is_tracing_ = false;
  return std::exchange(waits_, {});
}

bool Pass::wait_a_moment(std::unique_lock<std::mutex>& lock) {
  if (changed_.wait_for(lock, kStopInterval) != std::cv_status::timeout) return true;
  if (std::this_thread::get_id() != caller_ || !should_stop_) return false;
  lock.unlock();
  const bool stops = should_stop_();
  lock.lock();
  if (stops) stop();
  return false;
}

bool Pass::is_overdue() const { return std::chrono::steady_clock::now() - last_change_ > kOverdue; }

}  // namespace edgert
