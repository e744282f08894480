// Codes of 2 bits and more: a field part with the top two bits, then planes that append one lower bit each.
// Field vector z, bits 2f and 2f + 1: quad 4z + f. Plane vector z, bit t: quad 8z + t.

// The dot of a field part with 16 quads: four pieces a vector, each at its own power of four.
template <int kPiece>
static inline void add_field_piece(DotSum (&sums)[4], Bytes v, const std::int8_t* quads) {
  constexpr int kDown = kFieldDown[kPiece], kUp = 2 * kPiece - kDown;
  sums[kUp / 2] = dot(sums[kUp / 2], take<kDown, 3 << kUp>(v), quads + 4 * kPiece);
}

static inline DotSum field_dot(const std::uint8_t* part, const std::int8_t* x) {
  DotSum sums[4] = {no_sum(), no_sum(), no_sum(), no_sum()};
  for (int z = 0; z < 4; ++z) {
    const Bytes v = load_bytes(part + 64 * z);
    add_field_piece<0>(sums, v, x + 16 * z);
    add_field_piece<1>(sums, v, x + 16 * z);
    add_field_piece<2>(sums, v, x + 16 * z);
    add_field_piece<3>(sums, v, x + 16 * z);
  }
  return add(add(sums[0], shift_right<2>(sums[1])), add(shift_right<4>(sums[2]), shift_right<6>(sums[3])));
}

template <int kBit>
static inline void add_plane_bit(DotSum (&sums)[8], Bytes v, const std::int8_t* quads) {
  constexpr int kDown = kPlaneDown[kBit], kUp = kBit - kDown;
  sums[kUp] = dot(sums[kUp], take<kDown, 1 << kUp>(v), quads + 4 * kBit);
}

static inline DotSum plane_dot(const std::uint8_t* part, const std::int8_t* x) {
  DotSum sums[8] = {no_sum(), no_sum(), no_sum(), no_sum(), no_sum(), no_sum(), no_sum(), no_sum()};
  for (int z = 0; z < 2; ++z) {
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
  const DotSum low = add(add(sums[0], shift_right<1>(sums[1])), add(shift_right<2>(sums[2]), shift_right<3>(sums[3])));
  const DotSum high =
      add(add(shift_right<4>(sums[4]), shift_right<5>(sums[5])), add(shift_right<6>(sums[6]), shift_right<7>(sums[7])));
  return add(low, high);
}

static inline void unpack_field(const std::uint8_t* part, Bytes (&quads)[16]) {
  for (int z = 0; z < 4; ++z) {
    const Bytes v = load_bytes(part + 64 * z);
    quads[4 * z] = take<0, 3>(v);
    quads[4 * z + 1] = take<2, 3>(v);
    quads[4 * z + 2] = take<4, 3>(v);
    quads[4 * z + 3] = take<6, 3>(v);
  }
}

// Appends bit kBit of every plane byte, to be bit 0 of a code that was shifted up before.
template <int kUp>
static inline void append_plane(const std::uint8_t* part, Bytes (&quads)[16]) {
  for (int z = 0; z < 2; ++z) {
    const Bytes v = load_bytes(part + 64 * z);
    Bytes* q = quads + 8 * z;
    q[0] = or_bytes(take<-1, kUp>(q[0]), take<0, 1>(v));
    q[1] = or_bytes(take<-1, kUp>(q[1]), take<1, 1>(v));
    q[2] = or_bytes(take<-1, kUp>(q[2]), take<2, 1>(v));
    q[3] = or_bytes(take<-1, kUp>(q[3]), take<3, 1>(v));
    q[4] = or_bytes(take<-1, kUp>(q[4]), take<4, 1>(v));
    q[5] = or_bytes(take<-1, kUp>(q[5]), take<5, 1>(v));
    q[6] = or_bytes(take<-1, kUp>(q[6]), take<6, 1>(v));
    q[7] = or_bytes(take<-1, kUp>(q[7]), take<7, 1>(v));
  }
}

template <int kPlanes>
struct FieldPlanes {
  static constexpr int kNumParts = 1 + kPlanes, kMaxCode = (4 << kPlanes) - 1;
  static constexpr int kPartBytes[3] = {256, 128, 128};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], Bytes (&quads)[16]) {
    unpack_field(parts[0], quads);
    if constexpr (kPlanes >= 1) append_plane<0x06>(parts[1], quads);
    if constexpr (kPlanes >= 2) append_plane<0x0e>(parts[2], quads);
  }

  // No unpacking: masked pieces go into the dots where they stand (docs/numerics.md).
  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 1);
    DotSum sum = field_dot(parts[0], x);
    if constexpr (kPlanes == 0) {
      out[0] = widen(sum);
    } else {
      sum = add(add(sum, sum), plane_dot(parts[1], x));  // codes below 8, 16 quads: 112 of kDotCapacity
      if constexpr (kPlanes == 1) {
        out[0] = widen(sum);
      } else if constexpr (16 * kMaxCode <= kDotCapacity) {
        out[0] = widen(add(add(sum, sum), plane_dot(parts[2], x)));
      } else {
        const i32x16 wide = widen(sum);
        out[0] = add(add(wide, wide), widen(plane_dot(parts[2], x)));
      }
    }
  }

  static inline int get(const std::uint8_t* const parts[], int lane, int column) {
    const int quad = column / 4, byte = 4 * lane + column % 4;
    int code = (parts[0][64 * (quad / 4) + byte] >> (2 * (quad % 4))) & 3;
    for (int p = 1; p <= kPlanes; ++p) code = 2 * code + ((parts[p][64 * (quad / 8) + byte] >> (quad % 8)) & 1);
    return code;
  }
};
