// Codes of FieldPlanes that stand for the values of a table: one of int8 for the tensor, another for each width.
// Part 0 holds the tables, that of b bits in bytes 2^b to 2^(b + 1) - 1.
template <int kPlanes>
struct CodebookPlanes {
  using Indices = FieldPlanes<kPlanes>;
  static constexpr int kNumParts = 1 + Indices::kNumParts, kMaxCode = 128, kCodeBits = 2 + kPlanes;
  static constexpr int kPartBytes[4] = {0, 256, 128, 128};  // every strip reads the same tables
  static constexpr bool kIsSigned = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    const Table table = signed_table(load_table(table_of(parts)));  // of fewer values: what follows is never looked up
    Indices::unpack(parts + 1, g, quads);
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) quads[q] = lookup(table, quads[q]);
  }

  // What unpack makes of codes of four columns that lie as bytes.
  static inline Bytes quad(const std::uint8_t* const parts[], Bytes codes) {
    return lookup(signed_table(load_table(table_of(parts))), codes);
  }

  // Half a group at a time: a whole one unpacked is more than the registers hold.
  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    static_assert(kDots == 1);
    const Table table = signed_table(load_table(table_of(parts)));
    if constexpr (kPlanes == 0) {
      out[0] = dot_of_pairs(table, parts[1] + 256 * g, x, sums);
      return;
    }
    i32x16 even = signed_start(sums.of64), odd = splat_int(0);
    EDGERT_UNROLL
    for (int half = 0; half < 2; ++half) {
      Bytes indices[8];
      Indices::unpack_half(parts + 1, g, half, indices);
      EDGERT_UNROLL
      for (int q = 0; q < 8; q += 2) {
        even = signed_dot(even, lookup(table, indices[q]), x + 32 * half + 4 * q);
        odd = signed_dot(odd, lookup(table, indices[q + 1]), x + 32 * half + 4 * q + 4);
      }
    }
    out[0] = add(even, odd);
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return static_cast<std::int8_t>(table_of(parts)[Indices::get(parts + 1, g, lane, column)]);
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    Indices::put(parts + 1, g, codes);
  }

  static inline const std::uint8_t* table_of(const std::uint8_t* const parts[]) { return parts[0] + (4 << kPlanes); }

 private:
  // Two codes of two bits are one index: a table for the first of them, another for the second.
  static inline i32x16 dot_of_pairs(Table table, const std::uint8_t* field, const std::int8_t* x,
                                    const GroupSums& sums) {
    static constexpr std::uint8_t kFirst[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    static constexpr std::uint8_t kSecond[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const Table first = rearrange(table, load_table(kFirst)), second = rearrange(table, load_table(kSecond));
    i32x16 even = signed_start(sums.of64), odd = splat_int(0);
    EDGERT_UNROLL
    for (int z = 0; z < 4; ++z) {
      const Bytes v = load_bytes(field + 64 * z), low = take<0, 0x0f>(v), high = take<4, 0x0f>(v);
      const std::int8_t* quads = x + 16 * z;
      even = signed_dot(even, lookup(first, low), quads);
      odd = signed_dot(odd, lookup(second, low), quads + 4);
      even = signed_dot(even, lookup(first, high), quads + 8);
      odd = signed_dot(odd, lookup(second, high), quads + 12);
    }
    return add(even, odd);
  }
};
