// How codes are taken out of the blocks of a file: 16 of them at a time.

typedef std::uint16_t Codes16 __attribute__((vector_size(16)));  // a code in each byte

// Bits `shift` and on of 16 bytes, those that `mask` keeps.
static inline Codes16 take_bits(const std::uint8_t* bytes, int shift, int mask) {
  Codes16 v;
  __builtin_memcpy(&v, bytes, 16);
  return (v >> static_cast<std::uint16_t>(shift)) & static_cast<std::uint16_t>(mask * 0x0101);
}
// The same, `place` bits up.
static inline Codes16 place_bits(const std::uint8_t* bytes, int shift, int mask, int place) {
  return take_bits(bytes, shift, mask) << static_cast<std::uint16_t>(place);
}
static inline void put_codes(std::uint8_t* codes, Codes16 v) { __builtin_memcpy(codes, &v, 16); }
