// Page-aligned, zero-filled memory; huge pages where the system grants them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace edgert {

inline constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Owns one anonymous mapping. Throws std::bad_alloc when the system has none.
class Memory {
 public:
  Memory() = default;
  // with_huge_pages: where the system grants them; without, only pages of its least size that are written to are taken.
  explicit Memory(std::size_t num_bytes, bool with_huge_pages = true);
  ~Memory();
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint8_t* data() const { return data_; }
  std::size_t num_bytes() const { return num_bytes_; }
  // Gives the whole pages of a range back to the system; they read as zero when they are touched again.
  void give_back(std::size_t begin, std::size_t end) const;
  template <typename T>
  T* as(std::size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(data_ + offset_bytes);
  }

 private:
  void swap(Memory& other) {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
  }
  std::uint8_t* data_ = nullptr;
  std::size_t num_bytes_ = 0;
};

// Gives back to the system what the process has freed and malloc still holds.
void give_back_freed();

}  // namespace edgert
