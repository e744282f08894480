// Reads ranges of a file that does not change while it is open.
#pragma once
#include <cstdint>
#include <string>

namespace edgert {

class File {
 public:
  // `path` must not be a link. Throws std::system_error, with the path, if the file cannot be opened.
  explicit File(const std::string& path);
  // One that is open already, and belongs to this object from now on. `name`: for messages.
  File(const std::string& name, int descriptor, std::int64_t num_bytes)
      : path_(name), descriptor_(descriptor), num_bytes_(num_bytes) {}
  ~File();
  File(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t num_bytes() const { return num_bytes_; }

  // Throws std::out_of_range unless 0 <= offset, 0 <= length and the range ends inside the file.
  void check_range(std::int64_t offset, std::int64_t length) const;
  // Fills `out` with the range. Throws as check_range, and std::system_error on a failed or short read.
  void read(std::int64_t offset, std::int64_t length, void* out) const;
  // The system may read this range into its page cache; does not wait for the disk.
  void read_ahead(std::int64_t offset, std::int64_t length) const;
  // The system need not keep these bytes in its page cache. A length of 0: all from there on.
  void drop_cached(std::int64_t offset, std::int64_t length) const;
  // A second descriptor of the file that is open here, whatever has its name by now; the caller closes it. If
  // `is_direct`, reads from it pass the page cache by. Throws std::system_error, with the path, where that cannot be
  // had.
  int open_again(bool is_direct) const;

 private:
  int open_same(int flags) const;

  std::string path_;
  int descriptor_ = -1;
  std::int64_t num_bytes_ = 0;
};

}  // namespace edgert
