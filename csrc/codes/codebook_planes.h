// Codes of FieldPlanes that stand for the values of a table: one of int8 for the tensor, another for each width.
// Part 0 holds the tables, that of b bits in bytes 2^b to 2^(b + 1) - 1.
template <int kPlanes>
struct CodebookPlanes {
  using Indices = FieldPlanes<kPlanes>;
  static constexpr int kNumParts = 1 + Indices::kNumParts, kMaxCode = 128;
  static constexpr int kPartBytes[4] = {0, 256, 128, 128};  // every strip reads the same tables
  static constexpr bool kIsSigned = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    const Table table = signed_table(load_table(table_of(parts)));  // of fewer values: what follows is never looked up
    Indices::unpack(parts + 1, g, quads);
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) quads[q] = lookup(table, quads[q]);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    Bytes quads[16];
    unpack(parts, g, quads);
    unpacked_dots<CodebookPlanes>(quads, x, sums, out);
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return static_cast<std::int8_t>(table_of(parts)[Indices::get(parts + 1, g, lane, column)]);
  }

 private:
  static inline const std::uint8_t* table_of(const std::uint8_t* const parts[]) { return parts[0] + (4 << kPlanes); }
};
