// What the bytes of a tile are: the codes of a group as signed values, where that takes work off the float lines, else
// as they are. A look-up of six bits (simd/amx.h) ignores the other two, so that codes become values where they lie.
// Included before generic/linear_tiles.inl.h.

// Scales with a uniform grid: the value of a code, kFactor * code - kOffset, goes into the byte, and Plain is left.
template <class Scales>
struct GridOf {
  static constexpr bool kIsInBytes = false;
  using Plain = Scales;
};
template <class PlainScales, int kFactorOfCode, int kOffsetOfCode>
struct GridInBytes {
  static constexpr bool kIsInBytes = true;
  static constexpr int kFactor = kFactorOfCode, kOffset = kOffsetOfCode;
  using Plain = PlainScales;
};
template <int kFactor, int kOffset>
struct GridOf<GroupScales<kFactor, kOffset>> : GridInBytes<GroupScales<1, 0>, kFactor, kOffset> {};
template <int kOffset>
struct GridOf<HalfGroupScales<kOffset>> : GridInBytes<HalfGroupScales<0>, 1, kOffset> {};
template <class Floats, int kOffset>
struct GridOf<FourGroupScales<Floats, kOffset>> : GridInBytes<FourGroupScales<Floats, 0>, 1, kOffset> {};

// kFactor * code - kOffset for codes of up to four bits.
template <int kFactor, int kOffset>
struct GridValues {
  alignas(16) std::uint8_t v[16];

  constexpr GridValues() : v() {
    for (int code = 0; code < 16; ++code) v[code] = static_cast<std::uint8_t>(kFactor * code - kOffset);
  }
};
template <int kFactor, int kOffset>
static constexpr GridValues<kFactor, kOffset> kGridValues;

// Of every number of six bits those from kFirst on.
template <int kFirst, int kBits>
struct BitsOfSix {
  alignas(64) std::uint8_t v[64];

  constexpr BitsOfSix() : v() {
    for (int i = 0; i < 64; ++i) v[i] = static_cast<std::uint8_t>((i >> kFirst) & ((1 << kBits) - 1));
  }
};
template <int kFirst, int kBits>
static constexpr BitsOfSix<kFirst, kBits> kBitsOfSix;

// The table for codes of kBits from bit kFirst of a byte on.
template <int kFirst, int kBits>
static inline Bytes six_bit_table(Table values) {
  return lookup(values, load_bytes(kBitsOfSix<kFirst, kBits>.v));
}

// How the values of a table take the place of codes: unpack(parts, g, values, quads).
template <class Codes>
struct ValuesOf {
  static constexpr bool kAreLookedUp = false;
};
template <>
struct ValuesOf<FieldPlanes<0>> {
  static constexpr bool kAreLookedUp = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Table values, Bytes (&quads)[16]) {
    const Bytes first = six_bit_table<0, 2>(values), second = six_bit_table<2, 2>(values);
    const Bytes third = six_bit_table<4, 2>(values);
    EDGERT_UNROLL
    for (int z = 0; z < 4; ++z) {
      const Bytes v = load_bytes(parts[0] + 256 * g + 64 * z);
      quads[4 * z] = lookup_six(first, v);
      quads[4 * z + 1] = lookup_six(second, v);
      quads[4 * z + 2] = lookup_six(third, v);
      quads[4 * z + 3] = lookup_six(third, shift_bits<2>(v));
    }
  }
};
template <int kPlanes>
  requires(kPlanes == 1 || kPlanes == 2)
struct ValuesOf<FieldPlanes<kPlanes>> {
  static constexpr bool kAreLookedUp = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Table values, Bytes (&quads)[16]) {
    const Bytes table = six_bit_table<0, 2 + kPlanes>(values);
    EDGERT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = 128 * g + 64 * half;
      Bytes nibbles[4];
      join_nibbles<kPlanes>(parts[0] + 2 * at, parts + 1, at, nibbles);
      EDGERT_UNROLL
      for (int i = 0; i < 4; ++i) {
        quads[8 * half + i] = lookup_six(table, nibbles[i]);
        quads[8 * half + i + 4] = lookup_six(table, shift_bits<4>(nibbles[i]));
      }
    }
  }
};
template <>
struct ValuesOf<NibbleCodes> {
  static constexpr bool kAreLookedUp = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Table values, Bytes (&quads)[16]) {
    const Bytes table = six_bit_table<0, 4>(values);
    EDGERT_UNROLL
    for (int z = 0; z < 8; ++z) {
      const Bytes v = load_bytes(parts[0] + 512 * g + 64 * z);
      quads[2 * z] = lookup_six(table, v);
      quads[2 * z + 1] = lookup_six(table, shift_bits<4>(v));
    }
  }
};

// Codes that stand for a table of their own.
template <class Codes>
struct OwnValues {
  static constexpr bool kAreThere = false;
};
template <int kPlanes>
struct OwnValues<CodebookPlanes<kPlanes>> {
  static constexpr bool kAreThere = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    const Table values = load_table(CodebookPlanes<kPlanes>::table_of(parts));
    ValuesOf<FieldPlanes<kPlanes>>::unpack(parts + 1, g, values, quads);
  }
};
template <const std::uint8_t (&kValues)[16], int kLargest, bool kAreSigned>
struct OwnValues<NibbleTableCodes<kValues, kLargest, kAreSigned>> {
  static constexpr bool kAreThere = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    ValuesOf<NibbleCodes>::unpack(parts, g, load_table(kValues), quads);
  }
};

template <class Codes, class Scales>
constexpr bool are_tile_values_signed() {
  return Codes::kIsSigned || GridOf<Scales>::kIsInBytes;
}

// The bytes of the tile of group g.
template <class F>
[[gnu::always_inline]] static inline void unpack_tile(const std::uint8_t* const parts[], std::int64_t g,
                                                      Bytes (&quads)[16]) {
  using Codes = typename F::Codes;
  using Grid = GridOf<typename F::Scales>;
  if constexpr (OwnValues<Codes>::kAreThere) {
    if constexpr (Grid::kIsInBytes) static_assert(Grid::kFactor == 1 && Grid::kOffset == 0);
    OwnValues<Codes>::unpack(parts, g, quads);
  } else if constexpr (Codes::kIsSigned) {
    if constexpr (Grid::kIsInBytes) static_assert(Grid::kFactor == 1 && Grid::kOffset == 0);
    Codes::unpack(parts, g, quads);
    EDGERT_UNROLL
    for (Bytes& quad : quads) quad = plain_bytes(quad);
  } else if constexpr (Grid::kIsInBytes) {
    static_assert(Grid::kFactor * Codes::kMaxCode - Grid::kOffset <= 127 && Grid::kOffset <= 128);
    if constexpr (ValuesOf<Codes>::kAreLookedUp) {
      ValuesOf<Codes>::unpack(parts, g, load_table(kGridValues<Grid::kFactor, Grid::kOffset>.v), quads);
    } else {
      Codes::unpack(parts, g, quads);
      EDGERT_UNROLL
      for (Bytes& quad : quads) quad = rescale_bytes<Grid::kFactor, Grid::kOffset>(quad);
    }
  } else {
    Codes::unpack(parts, g, quads);
  }
}
