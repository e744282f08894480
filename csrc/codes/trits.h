// Codes 0, 1 and 2, five in a byte: 1.625 bits each. For every four groups 13 vectors: vectors 3i, 3i + 1 and 3i + 2
// hold the first 15 quads of group i, five each; the last has the sixteenth quads, that of group i in bits 2i and 2i
// + 1.
//
// A byte q is a fraction of 256 whose first five digits in base 3 are the codes. So the next digit is floor(3 q / 256),
// and what is left of 3 q is the byte of the digits after it.

// Digit number `digit` of a byte.
static inline std::uint8_t get_trit(std::uint8_t byte, int digit) {
  for (int i = 0; i < digit; ++i) byte = static_cast<std::uint8_t>(3 * byte);
  return static_cast<std::uint8_t>((3 * byte) >> 8);
}
static inline std::uint8_t put_trits(const std::uint8_t (&digits)[5]) {
  int number = 0;
  for (const std::uint8_t digit : digits) number = 3 * number + digit;
  return static_cast<std::uint8_t>((256 * number + 242) / 243);  // rounded up: no digit falls short
}

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
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 1);
    const i32x16 last = widen(dot(no_sum(), sixteenth_quad(parts, g), x + 60));
    if constexpr (kLargestCode == 255 && kDotCapacity >= 15 * 255) {
      out[0] = add(last, dot_of_rests(fives(parts, g), x));
    } else {
      out[0] = add(last, dot_of_digits(fives(parts, g), x));
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    const int quad = column / 4, byte = 4 * lane + column % 4;
    if (quad == 15) return (sixteenths(parts, g)[byte] >> (2 * (g % 4))) & 3;
    return get_trit(fives(parts, g)[64 * (quad / 5) + byte], quad % 5);
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    std::uint8_t* block = parts[0] + 832 * (g / 4);
    for (int lane = 0; lane < kStripRows; ++lane) {
      for (int j = 0; j < 4; ++j) {
        const std::uint8_t* column = codes[lane] + j;  // of quad k: column[4 * k]
        for (int z = 0; z < 3; ++z) {
          const std::uint8_t* first = column + 20 * z;
          block[64 * (3 * (g % 4) + z) + 4 * lane + j] =
              put_trits({first[0], first[4], first[8], first[12], first[16]});
        }
        std::uint8_t& last = block[64 * 12 + 4 * lane + j];
        last = static_cast<std::uint8_t>((g % 4 == 0 ? 0 : last) | (column[60] << (2 * (g % 4))));
      }
    }
  }

 private:
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

  // No digit is made: digit = (3 q - next q) / 256, so the dots of all q and of all that follow them are enough.
  static inline i32x16 dot_of_rests(const std::uint8_t* part, const std::int8_t* x) {
    DotSum rests = no_sum(), next = no_sum();
    EDGERT_UNROLL
    for (int z = 0; z < 3; ++z) {
      Bytes rest = load_bytes(part + 64 * z);
      EDGERT_UNROLL
      for (int i = 0; i < 5; ++i) {
        const std::int8_t* quad = x + 20 * z + 4 * i;
        rests = dot(rests, rest, quad);
        rest = triple(rest);
        next = dot(next, rest, quad);
      }
    }
    const i32x16 once = widen(rests);
    return shift_right<8>(sub(add(add(once, once), once), widen(next)));
  }
};
