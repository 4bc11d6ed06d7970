// Scores of a tile: scaled products, soft cap, bias, mask, in that order.
#pragma once

#include <cmath>
#include <limits>

#include "pack.h"

namespace regard {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// tanh by a quotient of polynomials (Eigen's), within a few units in the last place; NaN stays NaN.
inline vfloat tanh_of(vfloat x) {
  const float limit = 7.90531110763549805f;
  const vfloat clamped = x > limit ? broadcast(limit) : (x < -limit ? broadcast(-limit) : x);
  const vfloat square = clamped * clamped;
  vfloat p = broadcast(-2.76076847742355e-16f);
  p = p * square + 2.00018790482477e-13f;
  p = p * square - 8.60467152213735e-11f;
  p = p * square + 5.12229709037114e-08f;
  p = p * square + 1.48572235717979e-05f;
  p = p * square + 6.37261928875436e-04f;
  p = p * square + 4.89352455891786e-03f;
  vfloat q = broadcast(1.19825839466702e-06f);
  q = q * square + 1.18534705686654e-04f;
  q = q * square + 2.26843463243900e-03f;
  q = q * square + 4.89352518554385e-03f;
  const vfloat quotient = clamped * p / q;
  return abs_of(x) < 0.0004f ? x : quotient;
}

// The bias of one row, read a vector at a time.
class BiasRow {
 public:
  BiasRow(const Block &block, int r) : bias_(block.call.bias), kv_len_(block.call.kv_len) {
    start_ = block.batch * bias_.batch + block.head[r] * bias_.head + block.query[r] * bias_.row;
  }

  vfloat at(int64_t j) const {
    switch (bias_.dtype) {
      case REGARD_BFLOAT16: return read<bfloat16>(j);
      case REGARD_FLOAT16: return read<float16>(j);
      default: return read<float>(j);
    }
  }

 private:
  template <typename T>
  vfloat read(int64_t j) const {
    const T *data = static_cast<const T *>(bias_.data) + start_;
    if (bias_.column == 0) return broadcast(load_one(data));
    return j < kv_len_ ? load_first(data + j, kv_len_ - j) : vfloat{};
  }

  const regard_bias &bias_;
  int64_t kv_len_, start_;
};

// Distance |query position − key position| for the keys from j on.
class Distances {
 public:
  Distances(const Block &block, int r)
      : first_(lane_numbers() + static_cast<int32_t>(block.call.kv_start - block.position[r])) {}

  vfloat at(int64_t j) const { return abs_of(as_float(first_ + static_cast<int32_t>(j))); }

 private:
  vint first_;
};

// Which of the keys from j on a row may see, by range and bits; j is a multiple of kLanes.
class AllowedRow {
 public:
  AllowedRow(const Block &block, int r) : block_(block), row_(r), low_(block.low[r]), high_(block.high[r]) {}

  vint at(int64_t j) {
    const vint key = lane_numbers() + static_cast<int32_t>(j);
    vint allowed = (key >= low_) & (key < high_);
    if (block_.call.mask.tiles != nullptr) {
      const int64_t start = j / REGARD_TILE_KEYS * REGARD_TILE_KEYS;
      allowed &= lanes_of(static_cast<uint32_t>(block_.word(row_, start) >> (j - start)) & ((1u << kLanes) - 1));
    }
    return allowed;
  }

 private:
  const Block &block_;
  int row_;
  int32_t low_, high_;
};

// What happens to raw products of one row before the softmax. Also tells the backward pass which keys count.
struct Adjustment {
  explicit Adjustment(const regard_call &call)
      : caps(call.softcap != 0), biased(call.bias.data != nullptr), slopes(call.bias.slopes != nullptr) {}

  bool needed(const Block &block, int r, int64_t key, int64_t width) const {
    return caps || biased || slopes || !block.sees_all(r, key, key + width);
  }

  // Scales and adjusts the scores of the keys [key, key + width) of a row and returns their largest.
  vfloat apply(const Block &block, int r, int64_t key, int64_t width, float scale, float *scores) const {
    const regard_call &call = block.call;
    const BiasRow bias(block, r);
    const Distances distances(block, r);
    AllowedRow allowed(block, r);
    const vfloat cap = broadcast(call.softcap), masked = broadcast(kMasked);
    const vfloat slope = broadcast(slopes ? call.bias.slopes[block.head[r]] : 0.f);
    vfloat largest = masked;
    for (int64_t j = 0; j < width; j += kLanes) {
      vfloat x = scale * load(scores + j);
      vint visible = allowed.at(key + j);
      if (caps) x = cap * tanh_of(x / cap);
      if (biased) {
        const vfloat added = bias.at(key + j);
        visible &= ~(added <= call.bias.blocked);
        x += added;
      }
      if (slopes) x -= slope * distances.at(key + j);
      x = visible ? x : masked;
      store(scores + j, x);
      largest = max_of(x, largest);
    }
    return largest;
  }

  bool caps, biased, slopes;
};

// Products of packed queries and the panels from `key` on: scores[r · kTileRow + j], and the largest of each row by lanes.
template <typename Element>
inline void raw_scores(const Element *queries, int64_t dim, int rows, const Element *panels, int64_t key,
                       int64_t width, float *scores, vfloat *largest) {
  if constexpr (on_matrix_unit<Element>) {
    for (int64_t j = 0; j < width; j += kPanel)
      multiply_on_unit(queries, dim, panels + (key + j) * dim, kPanel, dim, scores + j, kTileRow, rows,
                       std::min<int64_t>(kPanel, width - j), false);
    for (int r = 0; r < rows; r++) {
      vfloat even = broadcast(kMasked), odd = even;
      for (int64_t j = 0; j < width; j += 2 * kLanes) {
        even = max_of(load(scores + r * kTileRow + j), even);
        odd = max_of(load(scores + r * kTileRow + j + kLanes), odd);
      }
      largest[r] = max_of(odd, even);
    }
    return;
  }
  for_column_groups(width, [&](int64_t j, auto vectors) {
    const Element *panel = panels + (key + j) * dim;
    for_row_groups<kRows>(rows, [&](int64_t row, auto size) {
      constexpr int R = decltype(size)::value, V = decltype(vectors)::value;
      vfloat sums[R][V];
      multiply_in_runs<R, V>(sums, queries + row * dim, dim, panel, kPanel, dim);
#pragma GCC unroll 12
      for (int i = 0; i < R; i++) {
        vfloat most = j == 0 ? broadcast(kMasked) : largest[row + i];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
          store(scores + (row + i) * kTileRow + j + v * kLanes, sums[i][v]);
          most = max_of(sums[i][v], most);
        }
        largest[row + i] = most;
      }
    });
  });
}

// Scores of a tile and what they are still to be multiplied by. Rows of queries and panels have `dim` elements.
//
// Queries of floats were scaled when they were packed; products of pairs are scaled here if there is more to do with them,
// else by the softmax.
template <typename Element>
inline void tile_scores(const Block &block, const Adjustment &adjustment, const Element *queries, int64_t dim,
                        const Element *panels, int64_t key, int64_t width, float *scores, vfloat *largest,
                        float *scale) {
  const float unscaled = std::is_same_v<Element, bfloat16_pair> ? block.call.scale : 1.f;
  raw_scores(queries, dim, block.rows, panels, key, width, scores, largest);
  for (int r = 0; r < block.rows; r++) {
    const bool adjusted = adjustment.needed(block, r, key, width);
    scale[r] = adjusted ? 1.f : unscaled;
    largest[r] = adjusted ? adjustment.apply(block, r, key, width, unscaled, scores + r * kTileRow)
                          : unscaled * largest[r];
  }
}

}  // namespace regard
