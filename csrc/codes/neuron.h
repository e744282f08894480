// Codes of one column, 16 rows after the other: how a record of a neuron holds them (docs/formats.md).
// The bits of a code are cut into pieces of 8, 4, 2 and 1, as its width is the sum of these, the leading bits first. A
// piece of k bits takes 2k bytes: bits k t and on of byte i are of row i + 2k t.

// Appends a piece of 16 rows of four columns: word r of `quad` has their codes of row r, a byte each.
template <int kBits>
static inline int append_neuron_piece(const std::uint8_t* const columns[4], std::int64_t at,
                                      std::uint32_t (&quad)[kStripRows]) {
  constexpr int kBytes = 2 * kBits;
  constexpr std::uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  std::uint32_t words[kBytes];
  for (int i = 0; i < kBytes; ++i) {
    words[i] = static_cast<std::uint32_t>(columns[0][at + i]) | static_cast<std::uint32_t>(columns[1][at + i]) << 8 |
               static_cast<std::uint32_t>(columns[2][at + i]) << 16 |
               static_cast<std::uint32_t>(columns[3][at + i]) << 24;
  }
  for (int t = 0; t < 8 / kBits; ++t) {
    for (int i = 0; i < kBytes; ++i) {
      std::uint32_t& codes = quad[kBytes * t + i];
      codes = (codes << (kBits % 8)) | ((words[i] >> (kBits * t)) & kMask);
    }
  }
  return kBytes;
}

// Codes of 16 rows of four columns, from byte `at` of their records on: codes of `bits` bits without the last
// `dropped`.
static inline void unpack_neurons(const std::uint8_t* const columns[4], std::int64_t at, int bits, int dropped,
                                  std::uint32_t (&quad)[kStripRows]) {
  for (std::uint32_t& codes : quad) codes = 0;
  if ((bits & 8) != 0) at += append_neuron_piece<8>(columns, at, quad);
  if ((bits & 4) != 0) at += append_neuron_piece<4>(columns, at, quad);
  if ((bits & 2) != 0) at += append_neuron_piece<2>(columns, at, quad);
  if ((bits & 1) != 0) at += append_neuron_piece<1>(columns, at, quad);
  if (dropped == 0) return;
  const std::uint32_t mask = (0xffu >> dropped) * 0x01010101u;
  for (std::uint32_t& codes : quad) codes = (codes >> dropped) & mask;
}
