// Gives the weight store requests that a hostile file could cause: each must be refused by an exception or read whole.
// Usage: edgert_fuzz_store SECONDS SEED. Built with sanitizers by `make fuzz`; exit code 0 if nothing was found.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/threads.h"
#include "weights/store.h"

namespace edgert {
namespace {

constexpr std::int64_t kFileBytes = 1 << 20;
constexpr std::int64_t kOddNumbers[] = {
    0,         1,         2,         15,  16,  17,        31,        32,        33,
    63,        64,        65,        255, 256, 257,       1 << 20,   1LL << 31, 1LL << 32,
    1LL << 62, INT64_MAX, INT64_MIN, -1,  -64, INT32_MAX, INT32_MIN, 4096,      (1LL << 31) - 1};

class Requests {
 public:
  explicit Requests(std::uint64_t seed) : random_(seed) {}

  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }
  bool happens(int percent) { return below(100) < percent; }
  std::int64_t odd_number() {
    return happens(70) ? kOddNumbers[below(std::ssize(kOddNumbers))] : static_cast<std::int64_t>(random_());
  }

  // A request that fits the file, in any format, with or without strips.
  WeightRequest valid(int index) {
    WeightRequest r;
    r.name = "weight" + std::to_string(index);
    r.format = static_cast<Format>(below(kNumFormats));
    const FormatSpec& s = spec(r.format);
    r.rows = 1 + below(96);
    r.cols = s.is_float && happens(20) ? 0 : (1 + below(8)) * std::max(s.block_columns, 32);
    r.is_packed = s.block_columns == 0 && !s.is_float ? true : happens(30);
    if (r.cols != 0 && !(r.is_packed && !s.is_float) && happens(30)) {
      r.unpermute_heads = static_cast<std::int32_t>(1 + below(4));
      r.rows = r.unpermute_heads * 2 * (1 + below(16));
    }
    if (r.cols != 0 && r.is_packed && !s.is_float) {
      if (neuron_bits(r.format) > 0 && happens(30)) r.neuron_bits = neuron_bits(r.format);
      const int num_parts = r.neuron_bits != 0 ? num_scale_parts(r.format) : s.num_parts;
      for (int p = 0; p < num_parts; ++p) r.parts.push_back(address(part_bytes(r.format, p, r.rows, r.cols)));
      if (r.neuron_bits != 0) r.parts.push_back(address(r.cols * neuron_bytes(r.neuron_bits, r.rows)));
      if (happens(10)) {
        const std::int64_t num_outliers = below(r.rows);
        r.outliers = {address(4 * (r.rows + 1)), address(2 * num_outliers), address(2 * num_outliers)};
      }
    } else {
      const std::int64_t values = r.rows * std::max<std::int64_t>(r.cols, 1);
      const std::int64_t num_bytes =
          s.is_float ? values * (r.format == Format::f32 ? 4 : 2) : values / s.block_columns * s.block_bytes;
      r.parts.push_back(address(num_bytes));
    }
    return r;
  }

  // One to three of its numbers are changed.
  void spoil(WeightRequest& r) {
    for (std::int64_t i = 1 + below(3); i > 0; --i) {
      std::vector<PartAddress>& parts = !r.outliers.empty() && happens(50) ? r.outliers : r.parts;
      PartAddress* part = parts.empty() ? nullptr : &parts[static_cast<std::size_t>(below(std::ssize(parts)))];
      switch (below(11)) {
        case 0:
          r.rows = odd_number();
          break;
        case 1:
          r.cols = odd_number();
          break;
        case 2:
          r.format = static_cast<Format>(below(kNumFormats));
          break;
        case 3:
          r.is_packed = !r.is_packed;
          break;
        case 4:
          r.unpermute_heads = static_cast<std::int32_t>(odd_number());
          break;
        case 5:
          if (part != nullptr) part->offset = odd_number();
          break;
        case 6:
          if (part != nullptr) part->length = odd_number();
          break;
        case 7:
          r.scale_exponent = static_cast<std::int32_t>(happens(50) ? below(8) : odd_number());
          break;
        case 8:
          if (part != nullptr) part->file = static_cast<std::int32_t>(odd_number());
          break;
        case 9:
          r.neuron_bits = static_cast<std::int32_t>(happens(50) ? below(9) : odd_number());
          break;
        default:
          if (happens(50))
            parts.push_back(address(64));
          else if (!parts.empty())
            parts.pop_back();
      }
    }
  }

 private:
  PartAddress address(std::int64_t length) {
    return {0, below(std::max<std::int64_t>(1, kFileBytes - length)), length};
  }

  std::mt19937_64 random_;
};

// Returns how many of the requests the store took.
int load_one_store(const std::string& path, Requests& requests) {
  WeightStore store;
  store.add_file(path);
  int taken = 0;
  const int count = static_cast<int>(1 + requests.below(6));
  for (int i = 0; i < count; ++i) {
    WeightRequest request = requests.valid(i);
    if (requests.happens(70)) requests.spoil(request);
    try {
      store.add(request);
      ++taken;
    } catch (const std::exception&) {  // refused, as it should be
    }
  }
  try {
    std::optional<ReaderOptions> direct;
    if (requests.happens(50)) direct = ReaderOptions{.depth = 4, .chunk_bytes = 4096 * (1 + requests.below(64))};
    store.start_loading(2, direct);
    store.finish_loading(nullptr);
  } catch (const std::invalid_argument&) {  // outliers are looked at when they are read
    return taken;
  }
  if (store.resident_bytes() > 8 * kFileBytes) {
    std::fprintf(stderr, "found %lld resident bytes of a file of %lld\n",
                 static_cast<long long>(store.resident_bytes()), static_cast<long long>(kFileBytes));
    std::exit(1);
  }
  return taken;
}

}  // namespace

int fuzz_store(double seconds, std::uint64_t seed) {
  Requests requests(seed);
  const auto path =
      std::filesystem::temp_directory_path() / ("edgert-fuzz-store-" + std::to_string(std::random_device{}()));
  std::ofstream out(path, std::ios::binary);
  for (std::int64_t i = 0; i < kFileBytes; ++i) out.put(static_cast<char>(requests.below(256)));
  out.close();
  long stores = 0, taken = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    taken += load_one_store(path.string(), requests);
    ++stores;
  }
  std::filesystem::remove(path);
  std::printf("%ld stores loaded, %ld requests taken, seed %llu\n", stores, taken,
              static_cast<unsigned long long>(seed));
  return taken > 0 ? 0 : 1;
}

}  // namespace edgert

int main(int argc, char** argv) {
  return edgert::fuzz_store(argc > 1 ? std::atof(argv[1]) : 10.0, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
