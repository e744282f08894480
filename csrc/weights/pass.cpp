#include "weights/pass.h"

#include <utility>

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

void Pass::fail(const std::string& error, bool is_of_content) {
  if (error_.empty()) {
    error_ = error;
    is_of_content_ = is_of_content;
  }
  is_stopped_.store(true, std::memory_order_release);
  changed_.notify_all();
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
