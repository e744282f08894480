// Codes 0, 1 and 2, five in a byte: 1.625 bits each. For every four groups 13 vectors: vectors 3i to 3i + 2 hold the
// first 15 quads of group i, five each; the last has the sixteenth quads, that of group i in bits 2i and 2i + 1.
//
// A byte q is a fraction of 256 whose first five digits in base 3 are the codes. So the next digit is floor(3 q / 256),
// and what is left of 3 q is the byte of the digits after it.

// Digit i of every byte. A file is packed twice as fast as by working them out.
struct TritTable {
  std::uint8_t digits[5][256];

  constexpr TritTable() : digits() {
    for (int byte = 0; byte < 256; ++byte) {
      int rest = byte;
      for (auto& digit : digits) {
        digit[byte] = static_cast<std::uint8_t>((3 * rest) >> 8);
        rest = (3 * rest) & 0xff;
      }
    }
  }
};
static constexpr TritTable kTrits;

struct TritCodes {
  static constexpr int kNumParts = 1, kMaxCode = 3;  // the two bits of a sixteenth quad hold 3 in a broken file
  static constexpr int kPartBytes[1] = {832}, kPartGroups[1] = {4};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int z = 0; z < 3; ++z) {
      Bytes rest = load_bytes(fives(parts, g) + 64 * z);
      EDGERT_UNROLL
      for (int i = 0; i < 5; ++i) {
        quads[5 * z + i] = thirds(rest);
        rest = triple(rest);
      }
    }
    quads[15] = sixteenth_quad(parts, g);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    static_assert(kDots == 1);
    const i32x16 last = widen(dot(no_sum(), sixteenth_quad(parts, g), x + 60));
    if constexpr (kDotCapacity >= 15 * 255) {
      out[0] = add(last, dot_of_rests(fives(parts, g), x, sums.of64 - x[60] - x[61] - x[62] - x[63]));
    } else {
      out[0] = add(last, dot_of_digits(fives(parts, g), x));
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    const int quad = column / 4, byte = 4 * lane + column % 4;
    if (quad == 15) return (sixteenths(parts, g)[byte] >> (2 * (g % 4))) & 3;
    return kTrits.digits[quad % 5][fives(parts, g)[64 * (quad / 5) + byte]];
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    std::uint8_t* block = parts[0] + 832 * (g / 4);
    std::uint8_t digits[64];
    for (int z = 0; z < 3; ++z) {
      std::uint16_t numbers[64] = {};
      for (int i = 0; i < 5; ++i) {
        take_quad(codes, 5 * z + i, digits);
        for (int k = 0; k < 64; ++k) numbers[k] = static_cast<std::uint16_t>(3 * numbers[k] + digits[k]);
      }
      // Rounded up, so that no digit falls short.
      std::uint8_t* out = block + 64 * (3 * (g % 4) + z);
      for (int k = 0; k < 64; ++k) {
        out[k] = static_cast<std::uint8_t>(static_cast<std::uint16_t>(256 * numbers[k] + 242) / 243);
      }
    }
    take_quad(codes, 15, digits);
    std::uint8_t* last = block + 768;
    for (int k = 0; k < 64; ++k) {
      const int others = g % 4 == 0 ? 0 : last[k];
      last[k] = static_cast<std::uint8_t>(others | (digits[k] << (2 * (g % 4))));
    }
  }

 private:
  static inline void take_quad(const GroupCodes& codes, int quad, std::uint8_t (&digits)[64]) {
    __builtin_memcpy(digits, codes[quad], 64);
  }
  static inline const std::uint8_t* fives(const std::uint8_t* const parts[], std::int64_t g) {
    return parts[0] + 832 * (g / 4) + 192 * (g % 4);
  }
  static inline const std::uint8_t* sixteenths(const std::uint8_t* const parts[], std::int64_t g) {
    return parts[0] + 832 * (g / 4) + 768;
  }
  static inline Bytes sixteenth_quad(const std::uint8_t* const parts[], std::int64_t g) {
    const Bytes v = load_bytes(sixteenths(parts, g));
    switch (g % 4) {
      case 0:
        return take<0, 3>(v);
      case 1:
        return take<2, 3>(v);
      case 2:
        return take<4, 3>(v);
      default:
        return take<6, 3>(v);
    }
  }

  static inline Bytes triple(Bytes rest) { return add_bytes(add_bytes(rest, rest), rest); }

  static inline i32x16 dot_of_digits(const std::uint8_t* part, const std::int8_t* x) {
    static_assert(15 * 2 <= kDotCapacity);
    DotSum sum = no_sum();
    EDGERT_UNROLL
    for (int z = 0; z < 3; ++z) {
      Bytes rest = load_bytes(part + 64 * z);
      EDGERT_UNROLL
      for (int i = 0; i < 5; ++i) {
        sum = dot(sum, thirds(rest), x + 20 * z + 4 * i);
        rest = triple(rest);
      }
    }
    return widen(sum);
  }

  // No digit is made: digit = (3 q - next q) / 256, so the dots of all q and of all that follow them are enough. Less
  // 128 each, 256 (digit - 1) is left, to which the sum of the activations is added.
  static inline i32x16 dot_of_rests(const std::uint8_t* part, const std::int8_t* x, std::int32_t activation_sum) {
    Bytes rest[3];
    EDGERT_UNROLL
    for (int z = 0; z < 3; ++z) rest[z] = whole_bytes(load_bytes(part + 64 * z));
    DotSum rests[3] = {no_sum(), no_sum(), no_sum()}, next[3] = {no_sum(), no_sum(), no_sum()};
    EDGERT_UNROLL
    for (int i = 0; i < 5; ++i) {
      EDGERT_UNROLL
      for (int z = 0; z < 3; ++z) {
        const std::int8_t* quad = x + 20 * z + 4 * i;
        rests[z] = dot(rests[z], rest[z], quad);
        rest[z] = triple(rest[z]);
        next[z] = dot(next[z], rest[z], quad);
      }
    }
    const i32x16 once = widen(add(add(rests[0], rests[1]), rests[2]));
    const i32x16 total = shift_right<8>(sub(add(add(once, once), once), widen(add(add(next[0], next[1]), next[2]))));
    static_assert(kByteOffset == 0 || kByteOffset == 128);
    return kByteOffset == 0 ? total : add(total, splat_int(activation_sum));
  }
};
