// How blocks of 256 columns hold two bits of each: per half of 128 columns 32 bytes, bits 2i and 2i + 1 of which are
// columns 32i to 32i + 31. Gives 64 columns, the first one a multiple of 64.
static inline void decode_fields(const std::uint8_t (&fields)[64], int first_column, std::uint8_t* codes) {
  const int half = first_column / 128, quarter = first_column % 128 / 64;
  for (int i = 0; i < 32; i += 16) {
    put_codes(codes + i, take_bits(fields + 32 * half + i, 4 * quarter, 3));
    put_codes(codes + 32 + i, take_bits(fields + 32 * half + i, 4 * quarter + 2, 3));
  }
}
