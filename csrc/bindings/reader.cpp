// The background reader for tests: Python asks for ranges and gets bytes.
#include "io/reader.h"

#include <pybind11/stl.h>

#include <chrono>
#include <condition_variable>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/memory.h"
#include "bindings/bindings.h"
#include "io/read_backend.h"
#include "io/read_rate.h"

namespace py = pybind11;

namespace edgert {
namespace {

using Names = std::vector<std::string>;  // in the order of the enumeration

const Names kMethods{"auto", "uring", "threads", "buffered"};
const Names kPriorities{"demand", "planned", "predicted"};
const Names kOutcomes{"complete", "failed", "cancelled"};

template <typename T>
T named(const Names& names, const std::string& what, const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<T>(i);
    known += (i == 0 ? "" : ", ") + names[i];
  }
  throw std::invalid_argument(what + ": found '" + name + "', expected one of: " + known);
}

using Ended = std::tuple<ReadTag, std::string, std::string>;

// A reader with the memory that it reads to.
class BufferedReader {
 public:
  BufferedReader(const std::vector<std::string>& paths, const std::string& method, std::int32_t depth,
                 std::int64_t chunk_bytes, std::int64_t limit, const std::optional<Faults>& faults) {
    for (const std::string& path : paths) files_.emplace_back(path);
    reader_.emplace(std::span<const File>(files_), reader_options(method, depth, chunk_bytes, limit, faults),
                    [this](ReadTag tag, ReadOutcome outcome, const std::string& error) {
                      const std::lock_guard lock(mutex_);
                      if (outcome != ReadOutcome::complete) buffers_.erase(tag);
                      ended_.emplace_back(tag, kOutcomes[static_cast<std::size_t>(outcome)], error);
                      has_ended_.notify_all();
                    });
  }

  Reader& reader() {
    if (!reader_) throw std::invalid_argument("reader: it is closed");
    return *reader_;
  }

  void submit(ReadTag tag, std::int32_t file, std::int64_t offset, std::int64_t length, const std::string& priority) {
    const ReadPriority level = named<ReadPriority>(kPriorities, "priority", priority);
    files_.at(static_cast<std::size_t>(file)).check_range(offset, length);
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = buffers_.try_emplace(tag);
    if (!is_new) throw std::invalid_argument("tag: found " + std::to_string(tag) + ", expected one that is not in use");
    place->second = {Memory(static_cast<std::size_t>(window_bytes(length))), offset, length};
    reader().submit({tag, file, offset, length, place->second.memory.data(), level});
  }

  // What has ended since the last call, once that is `num_ends` reads or the time is over.
  std::vector<Ended> wait(std::size_t num_ends, double timeout_s) {
    std::unique_lock lock(mutex_);
    has_ended_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return ended_.size() >= num_ends; });
    return std::exchange(ended_, {});
  }

  py::bytes take(ReadTag tag) {
    const std::lock_guard lock(mutex_);
    const auto node = buffers_.extract(tag);
    if (node.empty()) throw std::invalid_argument("tag: found " + std::to_string(tag) + ", expected one that was read");
    const Buffer& buffer = node.mapped();
    return {reinterpret_cast<const char*>(buffer.memory.data() + window_lead(buffer.offset)),
            static_cast<std::size_t>(buffer.length)};
  }

  void close() {
    reader_.reset();
    files_.clear();
  }

 private:
  struct Buffer {
    Memory memory;
    std::int64_t offset = 0, length = 0;
  };

  std::vector<File> files_;
  std::mutex mutex_;
  std::condition_variable has_ended_;
  std::unordered_map<ReadTag, Buffer> buffers_;
  std::vector<Ended> ended_;
  std::optional<Reader> reader_;  // ends before what it uses
};

std::tuple<double, bool> read_rate(const std::string& path, std::int64_t offset, std::int64_t num_bytes, double most_s,
                                   std::int64_t chunk_bytes, std::int32_t depth) {
  const ReaderOptions options{.depth = depth, .chunk_bytes = chunk_bytes};
  const auto [rate, is_direct] = measure_read_rate(File(path), offset, num_bytes, most_s, options);
  return {rate, is_direct};
}

}  // namespace

ReaderOptions reader_options(const std::string& method, std::int32_t depth, std::int64_t chunk_bytes,
                             std::int64_t limit_bytes_per_s, const std::optional<Faults>& faults) {
  ReaderOptions options{.method = named<ReadMethod>(kMethods, "method", method),
                        .depth = depth,
                        .chunk_bytes = chunk_bytes,
                        .limit_bytes_per_s = limit_bytes_per_s};
  if (faults) options.wrap = with_faults(*faults);
  return options;
}

void init_reader(py::module_& m) {
  const ReaderOptions defaults;
  const py::call_guard<py::gil_scoped_release> release;
  m.attr("DIRECT_ALIGNMENT") = kDirectAlignment;
  m.attr("DEFAULT_CHUNK_BYTES") = defaults.chunk_bytes;
  m.attr("DEFAULT_DEPTH") = defaults.depth;
  m.def("read_rate", &read_rate, py::arg("path"), py::kw_only(), py::arg("offset"), py::arg("num_bytes"),
        py::arg("most_s"), py::arg("chunk_bytes") = defaults.chunk_bytes, py::arg("depth") = defaults.depth, release,
        "(bytes/s, whether the page cache was bypassed) of a range, read for most_s seconds at most.");
  py::class_<Faults>(m, "Faults", "How a disk misbehaves, for tests.")
      .def(py::init<std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, bool>(), py::kw_only(),
           py::arg("num_short") = 0, py::arg("short_bytes") = 0, py::arg("fail_at") = -1, py::arg("stall_at") = -1,
           py::arg("stall_s") = 0.0, py::arg("is_reversed") = false);
  py::class_<BufferedReader>(m, "Reader", "Reads ranges of files in the background; for tests.")
      .def(py::init<const std::vector<std::string>&, const std::string&, std::int32_t, std::int64_t, std::int64_t,
                    const std::optional<Faults>&>(),
           py::arg("paths"), py::kw_only(), py::arg("method") = "auto", py::arg("depth") = defaults.depth,
           py::arg("chunk_bytes") = defaults.chunk_bytes, py::arg("limit_bytes_per_s") = 0,
           py::arg("faults") = py::none())
      .def_property_readonly("method",
                             [](BufferedReader& r) { return kMethods[static_cast<std::size_t>(r.reader().method())]; })
      .def_property_readonly("is_idle", [](BufferedReader& r) { return r.reader().is_idle(); })
      .def("submit", &BufferedReader::submit, py::arg("tag"), py::kw_only(), py::arg("file") = 0, py::arg("offset"),
           py::arg("length"), py::arg("priority") = "planned", release)
      .def(
          "set_priority",
          [](BufferedReader& r, ReadTag tag, const std::string& priority) {
            r.reader().set_priority(tag, named<ReadPriority>(kPriorities, "priority", priority));
          },
          py::arg("tag"), py::arg("priority"))
      .def(
          "cancel", [](BufferedReader& r, ReadTag tag) { r.reader().cancel(tag); }, py::arg("tag"))
      .def("cancel_all", [](BufferedReader& r) { r.reader().cancel_all(); })
      .def("wait", &BufferedReader::wait, py::arg("num_ends"), py::arg("timeout_s"), release,
           "(tag, outcome, error) of each read that has ended.")
      .def("take", &BufferedReader::take, py::arg("tag"), "The bytes of a read that is complete.")
      .def("counters",
           [](BufferedReader& r) {
             const auto [num_reads, num_bytes, busy_s] = r.reader().counters();
             return std::tuple(num_reads, num_bytes, busy_s);
           })
      .def("start_trace", [](BufferedReader& r) { r.reader().start_trace(); })
      .def(
          "stop_trace",
          [](BufferedReader& r) {
            std::vector<std::tuple<ReadTag, double, double, std::int64_t, int>> out;
            for (const ReadEvent& e : r.reader().stop_trace())
              out.emplace_back(e.tag, e.begin_s, e.end_s, e.num_bytes, static_cast<int>(e.priority));
            return out;
          },
          "(tag, begin_s, end_s, num_bytes, priority) of each request to the system.")
      .def("close", &BufferedReader::close, release);
}

}  // namespace edgert
