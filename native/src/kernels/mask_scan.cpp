// A bool tensor read as key ranges, or cut into tiles of bits.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "regard.h"

namespace {

// 64 cells of a row as bits; `count` of them exist.
uint64_t bits_at(const uint8_t *cells, int64_t stride, int64_t count) {
  uint64_t word = 0;
  if (stride == 1 && count == 64) {
    for (int byte = 0; byte < 8; byte++) {
      uint64_t eight;
      std::memcpy(&eight, cells + 8 * byte, 8);
      // A bool is true if it is not 0: bytes seen as bools (torch's `view`) may hold any number.
      const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
      const uint64_t ones = ((((eight & low) + low) | eight) >> 7) & UINT64_C(0x0101010101010101);
      word |= ((ones * UINT64_C(0x0102040810204080)) >> 56) << (8 * byte);
    }
    return word;
  }
  for (int64_t j = 0; j < count; j++) word |= uint64_t{cells[j * stride] != 0} << j;
  return word;
}

}  // namespace

int64_t regard_mask_ranges(const uint8_t *allowed, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                           const int64_t strides[4], int32_t *low, int32_t *high) {
  int64_t gaps = 0;
  for (int64_t row = 0; row < batch * heads * q_len; row++) {
    const int64_t i = row % q_len, h = row / q_len % heads, b = row / q_len / heads;
    const uint8_t *cells = allowed + b * strides[0] + h * strides[1] + i * strides[2];
    int64_t first = kv_len, end = 0, seen = 0;
    for (int64_t j = 0; j < kv_len; j += 64) {
      const uint64_t word = bits_at(cells + j * strides[3], strides[3], std::min<int64_t>(64, kv_len - j));
      if (word == 0) continue;
      first = std::min(first, j + __builtin_ctzll(word));
      end = j + 64 - __builtin_clzll(word);
      seen += __builtin_popcountll(word);
    }
    low[row] = static_cast<int32_t>(seen > 0 ? first : 0);
    high[row] = static_cast<int32_t>(end);
    gaps += seen > 0 && seen != end - first;
  }
  return gaps;
}

int64_t regard_mask_tiles(const uint8_t *allowed, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len,
                          const int64_t strides[4], int32_t *tiles, uint64_t *bits) {
  const int64_t q_tiles = (q_len + REGARD_TILE_QUERIES - 1) / REGARD_TILE_QUERIES;
  const int64_t k_tiles = (kv_len + REGARD_TILE_KEYS - 1) / REGARD_TILE_KEYS;
  int64_t count = 0;
  for (int64_t number = 0; number < batch * heads * q_tiles * k_tiles; number++) {
    const int64_t kt = number % k_tiles, qt = number / k_tiles % q_tiles;
    const int64_t h = number / k_tiles / q_tiles % heads, b = number / k_tiles / q_tiles / heads;
    const int64_t keys = std::min<int64_t>(REGARD_TILE_KEYS, kv_len - kt * REGARD_TILE_KEYS);
    const uint64_t all = keys == 64 ? ~uint64_t{0} : (uint64_t{1} << keys) - 1;
    uint64_t words[REGARD_TILE_QUERIES] = {};
    bool some = false, every = true;
    for (int64_t i = 0; i < std::min<int64_t>(REGARD_TILE_QUERIES, q_len - qt * REGARD_TILE_QUERIES); i++) {
      const int64_t row = qt * REGARD_TILE_QUERIES + i;
      const uint8_t *cells = allowed + b * strides[0] + h * strides[1] + row * strides[2];
      words[i] = bits_at(cells + kt * REGARD_TILE_KEYS * strides[3], strides[3], keys);
      some = some || words[i] != 0;
      every = every && words[i] == all;
    }
    tiles[number] = every ? REGARD_TILE_ALL : some ? static_cast<int32_t>(count) : REGARD_TILE_NONE;
    if (every || !some) continue;
    if (bits != nullptr) std::memcpy(bits + count * REGARD_TILE_QUERIES, words, sizeof words);
    count++;
  }
  return count;
}
