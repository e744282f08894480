// Codes of 2 bits and more: a field part with the top two bits, then planes that append one lower bit each.
// Field vector z, bits 2f and 2f + 1: quad 4z + f. Plane vector z, bit t: quad 8z + t.

// Sums at different powers of two: sums[i] holds 2^(kStep i) times what it stands for. Only the first kCount are used.
template <int kStep, int kCount>
static inline DotSum merge_sums(const DotSum* sums) {
  DotSum total = sums[0];
  if constexpr (kCount > 1) total = add(total, shift_right<kStep>(sums[1]));
  if constexpr (kCount > 2) total = add(total, shift_right<2 * kStep>(sums[2]));
  if constexpr (kCount > 3) total = add(total, shift_right<3 * kStep>(sums[3]));
  static_assert(kCount <= 4);
  return total;
}

// How many sums the pieces of a vector need: one for each place to which kDown leaves them.
template <int kPieces>
constexpr int count_sums(const int (&down)[kPieces], int piece_bits) {
  int count = 1;
  for (int i = 0; i < kPieces; ++i) {
    const int place = i - down[i] / piece_bits;
    if (place + 1 > count) count = place + 1;
  }
  return count;
}
// The largest sum of codes that one vector adds up in one place, of all sums.
template <int kPieces>
constexpr int largest_sum(const int (&down)[kPieces], int piece_bits) {
  int largest = 0;
  for (int place = 0; place < kPieces; ++place) {
    int sum = 0;
    for (int i = 0; i < kPieces; ++i) {
      const int up = piece_bits * i - down[i];
      if (up == piece_bits * place) sum += ((1 << piece_bits) - 1) << up;
    }
    if (sum > largest) largest = sum;
  }
  return largest;
}
constexpr int kFieldSums = count_sums(kFieldDown, 2), kPlaneSums = count_sums(kPlaneDown, 1);

// Two bits of every byte, times the quad that they are codes of.
template <int kPiece>
static inline void add_field_piece(DotSum (&sums)[kFieldSums], Bytes v, const std::int8_t* quad) {
  constexpr int kDown = kFieldDown[kPiece], kUp = 2 * kPiece - kDown;
  sums[kUp / 2] = dot(sums[kUp / 2], take<kDown, 3 << kUp>(v), quad);
}

// A vector of four pieces; piece f belongs to quad f * kQuadStep.
template <int kQuadStep>
static inline void add_field_vector(DotSum (&sums)[kFieldSums], Bytes v, const std::int8_t* quads) {
  add_field_piece<0>(sums, v, quads);
  add_field_piece<1>(sums, v, quads + 4 * kQuadStep);
  add_field_piece<2>(sums, v, quads + 8 * kQuadStep);
  add_field_piece<3>(sums, v, quads + 12 * kQuadStep);
}

static inline DotSum field_dot(const std::uint8_t* part, const std::int8_t* x) {
  static_assert(4 * largest_sum(kFieldDown, 2) <= kDotCapacity);
  DotSum sums[kFieldSums];
  for (DotSum& sum : sums) sum = no_sum();
  EDGERT_UNROLL
  for (int z = 0; z < 4; ++z) add_field_vector<1>(sums, load_bytes(part + 64 * z), x + 16 * z);
  return merge_sums<2, kFieldSums>(sums);
}

template <int kBit>
static inline void add_plane_bit(DotSum (&sums)[kPlaneSums], Bytes v, const std::int8_t* quads) {
  constexpr int kDown = kPlaneDown[kBit], kUp = kBit - kDown;
  sums[kUp] = dot(sums[kUp], take<kDown, 1 << kUp>(v), quads + 4 * kBit);
}

// kVectors vectors of a plane, 32 columns each.
template <int kVectors>
static inline DotSum plane_dot(const std::uint8_t* part, const std::int8_t* x) {
  static_assert(kVectors * largest_sum(kPlaneDown, 1) <= kDotCapacity);
  DotSum sums[kPlaneSums];
  for (DotSum& sum : sums) sum = no_sum();
  EDGERT_UNROLL
  for (int z = 0; z < kVectors; ++z) {
    const Bytes v = load_bytes(part + 64 * z);
    const std::int8_t* quads = x + 32 * z;
    add_plane_bit<0>(sums, v, quads);
    add_plane_bit<1>(sums, v, quads);
    add_plane_bit<2>(sums, v, quads);
    add_plane_bit<3>(sums, v, quads);
    add_plane_bit<4>(sums, v, quads);
    add_plane_bit<5>(sums, v, quads);
    add_plane_bit<6>(sums, v, quads);
    add_plane_bit<7>(sums, v, quads);
  }
  return merge_sums<1, kPlaneSums>(sums);
}

// Two planes at once: their bits of a quad side by side are a two-bit piece. Piece f of `even` belongs to quad 2f of
// the eight, piece f of `odd` to quad 2f + 1.
struct PairedPlanes {
  Bytes even, odd;
};
static inline PairedPlanes pair_planes(const std::uint8_t* high, const std::uint8_t* low) {
  const Bytes h = load_bytes(high), l = load_bytes(low);
  return {select_bits<0xaa>(shift_bits<-1>(h), l), select_bits<0xaa>(h, shift_bits<1>(l))};
}

// Codes of 32 columns as nibbles: quad i is in the low, quad i + 4 in the high half of every byte of nibbles[i]. The
// field and two planes, `at` bytes on, fill them; with one plane the codes are the lower three bits, and the fourth
// means nothing.
template <int kPlanes>
static inline void join_nibbles(const std::uint8_t* field, const std::uint8_t* const planes[], std::int64_t at,
                                Bytes (&nibbles)[4]) {
  static_assert(kPlanes == 1 || kPlanes == 2);
  const Bytes first = load_bytes(field), second = load_bytes(field + 64);
  const Bytes fields01 = select_bits<0x0f>(first, shift_bits<-4>(second));
  const Bytes fields23 = select_bits<0x0f>(shift_bits<4>(first), second);
  if constexpr (kPlanes == 1) {
    const Bytes plane = load_bytes(planes[0] + at);
    nibbles[0] = select_bits<0x66>(shift_bits<-1>(fields01), plane);
    nibbles[1] = select_bits<0x66>(shift_bits<1>(fields01), shift_bits<1>(plane));
    nibbles[2] = select_bits<0x66>(shift_bits<-1>(fields23), shift_bits<2>(plane));
    nibbles[3] = select_bits<0x66>(shift_bits<1>(fields23), shift_bits<3>(plane));
  } else {
    const PairedPlanes pair = pair_planes(planes[0] + at, planes[1] + at);
    nibbles[0] = select_bits<0xcc>(shift_bits<-2>(fields01), pair.even);
    nibbles[1] = select_bits<0xcc>(fields01, pair.odd);
    nibbles[2] = select_bits<0xcc>(shift_bits<-2>(fields23), shift_bits<2>(pair.even));
    nibbles[3] = select_bits<0xcc>(fields23, shift_bits<2>(pair.odd));
  }
}

// Of the field and one or two planes.
template <int kPlanes>
static inline i32x16 nibble_dot(const std::uint8_t* field, const std::uint8_t* const planes[], std::int64_t at,
                                const std::int8_t* x) {
  constexpr int kUp = 4 - kNibbleDown, kMask = (4 << kPlanes) - 1, kMost = 8 * kMask;
  static_assert(kMost << kUp <= kDotCapacity);
  DotSum lower = no_sum(), upper = no_sum();
  EDGERT_UNROLL
  for (int half = 0; half < 2; ++half) {
    Bytes nibbles[4];
    join_nibbles<kPlanes>(field + 128 * half, planes, at + 64 * half, nibbles);
    EDGERT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::int8_t* quad = x + 32 * half + 4 * i;
      lower = dot(lower, take<0, kMask>(nibbles[i]), quad);
      upper = dot(upper, take<kNibbleDown, kMask << kUp>(nibbles[i]), quad + 16);
    }
  }
  if constexpr (2 * kMost <= kDotCapacity) {
    return widen(add(lower, shift_right<kUp>(upper)));
  } else {
    return add(widen(lower), widen(upper));
  }
}

static inline DotSum two_planes_dot(const std::uint8_t* high, const std::uint8_t* low, const std::int8_t* x) {
  static_assert(4 * largest_sum(kFieldDown, 2) <= kDotCapacity);
  DotSum sums[kFieldSums];
  for (DotSum& sum : sums) sum = no_sum();
  EDGERT_UNROLL
  for (int z = 0; z < 2; ++z) {
    const PairedPlanes planes = pair_planes(high + 64 * z, low + 64 * z);
    add_field_vector<2>(sums, planes.even, x + 32 * z);
    add_field_vector<2>(sums, planes.odd, x + 32 * z + 4);
  }
  return merge_sums<2, kFieldSums>(sums);
}

// The four pieces of a field vector, shifted up by kUp bits to leave room for the planes.
template <int kUp>
static inline void unpack_pieces(Bytes v, Bytes* quads) {
  quads[0] = take<-kUp, 3 << kUp>(v);
  quads[1] = take<2 - kUp, 3 << kUp>(v);
  quads[2] = take<4 - kUp, 3 << kUp>(v);
  quads[3] = take<6 - kUp, 3 << kUp>(v);
}

// One plane vector becomes bit 0 of eight quads.
static inline void append_plane(Bytes v, Bytes* quads) {
  quads[0] = or_bytes(quads[0], take<0, 1>(v));
  quads[1] = or_bytes(quads[1], take<1, 1>(v));
  quads[2] = or_bytes(quads[2], take<2, 1>(v));
  quads[3] = or_bytes(quads[3], take<3, 1>(v));
  quads[4] = or_bytes(quads[4], take<4, 1>(v));
  quads[5] = or_bytes(quads[5], take<5, 1>(v));
  quads[6] = or_bytes(quads[6], take<6, 1>(v));
  quads[7] = or_bytes(quads[7], take<7, 1>(v));
}

// Two plane vectors become bits kUp + 1 and kUp of eight quads.
template <int kUp>
static inline void append_planes(PairedPlanes planes, Bytes* quads) {
  Bytes even[4], odd[4];
  unpack_pieces<kUp>(planes.even, even);
  unpack_pieces<kUp>(planes.odd, odd);
  EDGERT_UNROLL
  for (int i = 0; i < 4; ++i) {
    quads[2 * i] = or_bytes(quads[2 * i], even[i]);
    quads[2 * i + 1] = or_bytes(quads[2 * i + 1], odd[i]);
  }
}

template <int kPlanes>
struct FieldPlanes {
  static_assert(kPlanes <= 5);
  static constexpr int kNumParts = 1 + kPlanes, kMaxCode = (4 << kPlanes) - 1, kCodeBits = 2 + kPlanes;
  static constexpr int kPartBytes[6] = {256, 128, 128, 128, 128, 128};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    unpack_half(parts, g, 0, quads);
    unpack_half(parts, g, 1, quads + 8);
  }

  // What unpack makes of codes of four columns that lie as bytes.
  static inline Bytes quad(const std::uint8_t* const[], Bytes codes) { return codes; }

  // One dot of 64 columns needs no unpacking: masked pieces go in where they stand (docs/numerics.md). Of the four runs
  // of 16 columns each is a single field vector, whose pieces would need a sum each: unpacking takes less.
  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 1 || kDots == 4);
    if constexpr (kDots == 4) {
      EDGERT_UNROLL
      for (int half = 0; half < 2; ++half) {
        Bytes quads[8];
        unpack_half(parts, g, half, quads);
        out[2 * half] = dot_quads<kMaxCode, 4>(quads, x + 32 * half);
        out[2 * half + 1] = dot_quads<kMaxCode, 4>(quads + 4, x + 32 * half + 16);
      }
    } else {
      out[0] = dot_in_place(parts, g, x);
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    int code = get_bits<2>(parts[0] + 256 * g, lane, column);
    for (int p = 1; p <= kPlanes; ++p) code = 2 * code + get_bits<1>(parts[p] + 128 * g, lane, column);
    return code;
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    put_bits<2, kPlanes>(parts[0] + 256 * g, codes);
    put_from<1>(parts, g, codes);
  }

  // 32 columns: two field vectors and one vector of each plane.
  static inline void unpack_half(const std::uint8_t* const parts[], std::int64_t g, int half, Bytes* quads) {
    const std::uint8_t* field = parts[0] + 256 * g + 128 * half;
    const std::int64_t at = 128 * g + 64 * half;
    if constexpr (kPlanes == 0) {
      unpack_pieces<0>(load_bytes(field), quads);
      unpack_pieces<0>(load_bytes(field + 64), quads + 4);
    } else {
      constexpr int kUp = kPlanes - kJoined, kMask = ((4 << kJoined) - 1) << kUp;
      Bytes nibbles[4];
      join_nibbles<kJoined>(field, parts + 1, at, nibbles);
      EDGERT_UNROLL
      for (int i = 0; i < 4; ++i) {
        quads[i] = take<-kUp, kMask>(nibbles[i]);
        quads[i + 4] = take<4 - kUp, kMask>(nibbles[i]);
      }
      append_from<kJoined + 1>(parts, at, quads);
    }
  }

 private:
  static constexpr int kJoined = kPlanes < 2 ? kPlanes : 2;  // planes that fill nibbles with the field

  template <int kFirst>
  static inline void put_from(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    if constexpr (kFirst <= kPlanes) {
      put_bits<1, kPlanes - kFirst>(parts[kFirst] + 128 * g, codes);
      put_from<kFirst + 1>(parts, g, codes);
    }
  }

  // Planes kFirst and on: two at a time, and the last alone where their number is odd.
  template <int kFirst>
  static inline void append_from(const std::uint8_t* const parts[], std::int64_t at, Bytes* quads) {
    if constexpr (kFirst < kPlanes) {
      append_planes<kPlanes - kFirst - 1>(pair_planes(parts[kFirst] + at, parts[kFirst + 1] + at), quads);
      append_from<kFirst + 2>(parts, at, quads);
    } else if constexpr (kFirst == kPlanes) {
      append_plane(load_bytes(parts[kFirst] + at), quads);
    }
  }

  static inline i32x16 dot_in_place(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x) {
    const std::uint8_t* field = parts[0] + 256 * g;
    if constexpr (kPlanes == 0) {
      return widen(field_dot(field, x));
    } else {
      const i32x16 sum = nibble_dot<kJoined>(field, parts + 1, 128 * g, x);
      return add_planes<kJoined + 1>(sum, parts, 128 * g, x);
    }
  }

  // `sum` holds the bits before plane kFirst.
  template <int kFirst>
  static inline i32x16 add_planes(i32x16 sum, const std::uint8_t* const parts[], std::int64_t at,
                                  const std::int8_t* x) {
    if constexpr (kFirst < kPlanes) {
      const DotSum two = two_planes_dot(parts[kFirst] + at, parts[kFirst + 1] + at, x);
      return add_planes<kFirst + 2>(add(shift_left<2>(sum), widen(two)), parts, at, x);
    } else if constexpr (kFirst == kPlanes) {
      return add(shift_left<1>(sum), widen(plane_dot<2>(parts[kFirst] + at, x)));
    } else {
      return sum;
    }
  }
};
