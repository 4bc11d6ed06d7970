// A block of query rows: which rows they are, which keys each may see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lanes.h"
#include "product.h"
#include "regard.h"

namespace regard {

constexpr int kBlock = 48;  // query rows that are worked on together
constexpr int kTile = 256;  // keys of one step of the online softmax; a multiple of kPanel
constexpr int kTileRow = kTile + 16;  // from row to row of a tile's scores: a power of two would share few cache sets

static_assert(kTile % kPanel == 0 && kPanel % kLanes == 0 && kTileRow % kLanes == 0 && kBlock % kLanes == 0);
static_assert(!kMatrixUnit || kBlock % kSquare == 0);

// Tiles start at multiples of kTile, wherever a block's keys start: how rows are grouped then changes no bit of a result.
inline int64_t tile_start_after(int64_t key) { return (key / kTile + 1) * kTile; }

// Query rows that read the same keys. One head each, or, where queries are few, all heads of a kv head.
struct Unit {
  int64_t batch, kv_head, first_head, heads;
};

// How a call is cut into units and blocks.
struct Layout {
  explicit Layout(const regard_call &call, int64_t block_rows = kBlock) : block_rows(block_rows) {
    group = call.num_heads / call.num_kv_heads;
    heads_together = group > 1 && call.q_len < kBlock ? group : 1;
    units = call.batch * call.num_heads / heads_together;
    rows = heads_together * call.q_len;
    blocks = (rows + block_rows - 1) / block_rows;
  }

  Unit unit(const regard_call &call, int64_t index) const {
    const int64_t per_batch = call.num_heads / heads_together;
    const int64_t first_head = index % per_batch * heads_together;
    return {index / per_batch, first_head / group, first_head, heads_together};
  }

  int64_t block_rows, group, heads_together, units, rows, blocks;
};

inline int64_t query_position(const regard_call &call, int64_t batch, int64_t query) {
  if (call.q_positions == nullptr) return call.kv_start + call.kv_len - call.q_len + query;
  return call.q_positions[batch * call.q_positions_batch + query];
}

struct Block {
  Block(const regard_call &call, const Unit &unit, int64_t first_row, int64_t end_row)
      : call(call), batch(unit.batch), kv_head(unit.kv_head), rows(static_cast<int>(end_row - first_row)) {
    first_key = call.kv_len;
    end_key = 0;
    for (int r = 0; r < rows; r++) {
      head[r] = unit.first_head + (first_row + r) / call.q_len;
      query[r] = (first_row + r) % call.q_len;
      position[r] = query_position(call, batch, query[r]);
      low[r] = 0;
      high[r] = static_cast<int32_t>(call.kv_len);
      if (call.mask.low != nullptr) {
        const int64_t at = batch * call.mask.range_batch + head[r] * call.mask.range_head + query[r];
        low[r] = call.mask.low[at];
        high[r] = std::min(high[r], call.mask.high[at]);
      }
      if (low[r] < high[r]) {
        first_key = std::min<int64_t>(first_key, low[r]);
        end_key = std::max<int64_t>(end_key, high[r]);
      }
    }
    first_key = std::min(first_key, end_key) / kPanel * kPanel;
  }

  // Where a row's value lies in an array [batch, heads, q_len].
  int64_t row_index(int r) const { return (batch * call.num_heads + head[r]) * call.q_len + query[r]; }

  // 64 bits of the mask of a row, from key j on, a multiple of 64. All set where there are no bits.
  uint64_t word(int r, int64_t j) const {
    const regard_mask &mask = call.mask;
    if (mask.tiles == nullptr) return ~uint64_t{0};
    const int64_t columns = (call.kv_len + REGARD_TILE_KEYS - 1) / REGARD_TILE_KEYS;
    if (j / REGARD_TILE_KEYS >= columns) return 0;
    const int64_t at = batch * mask.tiles_batch + head[r] * mask.tiles_head +
                       query[r] / REGARD_TILE_QUERIES * columns + j / REGARD_TILE_KEYS;
    const int32_t tile = mask.tiles[at];
    if (tile == REGARD_TILE_ALL) return ~uint64_t{0};
    if (tile == REGARD_TILE_NONE) return 0;
    return mask.bits[int64_t{tile} * REGARD_TILE_QUERIES + query[r] % REGARD_TILE_QUERIES];
  }

  // Whether any row may see any of the keys [begin, end).
  bool sees_any(int64_t begin, int64_t end) const {
    for (int r = 0; r < rows; r++) {
      const int64_t from = std::max<int64_t>(begin, low[r]), to = std::min<int64_t>(end, high[r]);
      if (from >= to) continue;
      if (call.mask.tiles == nullptr) return true;
      for (int64_t j = from / REGARD_TILE_KEYS * REGARD_TILE_KEYS; j < to; j += REGARD_TILE_KEYS)
        if (word(r, j) != 0) return true;
    }
    return false;
  }

  // Whether a row may see all of the keys [begin, end), which start at a multiple of kPanel.
  bool sees_all(int r, int64_t begin, int64_t end) const {
    if (low[r] > begin || high[r] < end) return false;
    if (call.mask.tiles == nullptr) return true;
    for (int64_t j = begin / REGARD_TILE_KEYS * REGARD_TILE_KEYS; j < end; j += REGARD_TILE_KEYS)
      if (word(r, j) != ~uint64_t{0}) return false;
    return true;
  }

  const regard_call &call;
  int64_t batch, kv_head;
  int rows;
  int64_t head[kBlock], query[kBlock], position[kBlock];
  int32_t low[kBlock], high[kBlock];
  int64_t first_key, end_key;  // keys any row may see; first_key is a multiple of kPanel
};

template <typename T>
inline const T *row_of(const regard_tensor &tensor, int64_t batch, int64_t head, int64_t row) {
  return static_cast<const T *>(tensor.data) + batch * tensor.batch + head * tensor.head + row * tensor.row;
}

// Calls body with a null pointer of the call's element type, to choose by it.
template <typename Body>
inline auto by_dtype(int32_t dtype, Body body) {
  switch (dtype) {
    case REGARD_BFLOAT16: return body(static_cast<const bfloat16 *>(nullptr));
    case REGARD_FLOAT16: return body(static_cast<const float16 *>(nullptr));
    default: return body(static_cast<const float *>(nullptr));
  }
}

}  // namespace regard
