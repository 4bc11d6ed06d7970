// The online softmax of a block, and what is gathered of each row on the way.
//
// A row is seen tile by tile. Its scores turn into exponentials of their distance to the largest score so far; when a
// larger one comes, what was gathered before is scaled down (Milakov and Gimelshein 2018, "Online normalizer
// calculation for softmax").
#pragma once

#include "top_list.h"

namespace regard {

struct RowStatistics {
  float largest[kBlock];  // so far
  float factor[kBlock];   // what the last tile scaled earlier sums by
  float shift[kBlock];    // and added to the exponents of earlier weights: 0, or the logarithm of that
  float scale[kBlock];    // what the tile's scores are still to be multiplied by, above 0; 1 if nobody says
  // While tiles come, by lanes of keys; e = exp(score − largest).
  vfloat sums[kBlock];       // Σ e
  vfloat entropies[kBlock];  // Σ e · ln(e)
  vfloat distances[kBlock];  // Σ e · |i − j|
  vfloat rests[kBlock];      // Σ e over keys known not to be among the k best
  // The same, added up by `end`.
  float sum[kBlock], entropy[kBlock], distance[kBlock], rest[kBlock];
  TopList top[kBlock];

  void begin(int rows, int k, float *top_scores, int32_t *top_keys) {
    for (int r = 0; r < rows; r++) {
      largest[r] = kMasked;
      scale[r] = 1;
      sums[r] = entropies[r] = distances[r] = rests[r] = vfloat{};
      if (k > 0) top[r].begin(top_scores + r * TopList::lanes(k), top_keys + r * TopList::lanes(k), k);
    }
  }

  // Takes in the largest scores of a tile, by lanes of keys.
  void raise(int rows, const vfloat *tile_largest) {
    for (int r = 0; r < rows; r += kLanes) {
      vfloat most[kLanes];
      for (int i = 0; i < kLanes; i++) most[i] = r + i < rows ? tile_largest[r + i] : broadcast(kMasked);
      const vfloat before = load(largest + r), now = max_of(largests_of(most), before);
      const vfloat gap = before - (now == kMasked ? vfloat{} : now);
      store(largest + r, now);
      store(factor + r, exp_of(gap));
      store(shift + r, before == kMasked ? vfloat{} : gap);
    }
  }

  void end(int rows) {
    for (int r = 0; r < rows; r++) {
      sum[r] = sum_of(sums[r]);
      entropy[r] = sum_of(entropies[r]);
      distance[r] = sum_of(distances[r]);
      rest[r] = sum_of(rests[r]);
    }
  }
};

// What to gather beside the sum.
struct Gathered {
  bool entropy = false, distance = false;
  int k = 0;  // of the top list; 0 for none
};

// A base that exponents can be taken from: the largest score, or 0 where there is none yet.
inline float base_of(float largest) { return largest == kMasked ? 0.f : largest; }

// Where a tile's exponentials go: in place of the scores, rounded beside them for products of pairs, or both.
enum class Into { kScores, kPairs, kBoth };

// Turns the scores of a tile's row into exponentials and updates the row's statistics, once its largest is known.
template <bool kEntropy, bool kDistance, bool kTop, Into kInto>
inline void soften_row(const Block &block, int r, int64_t key, int64_t width, float *scores, bfloat16 *rounded,
                       RowStatistics &rows) {
  const float base = base_of(rows.largest[r]);
  const vfloat from = broadcast(base), scale = broadcast(rows.scale[r]);
  const Distances distances(block, r);
  vfloat sum{}, entropy{}, distance{}, rest{};
  Candidates candidates;
  TopList &top = rows.top[r];
  vfloat bar{};
  if (kTop) {
    // The bar must be passed; a bound that k scores reach may also be met.
    const float bound = top.full() ? kMasked : rows.scale[r] * TopList::first_bar(scores, width, top.k());
    bar = broadcast(std::max(top.bar(), std::nextafter(bound, kMasked)));
    candidates.count = 0;
  }
  for (int64_t j = 0; j < width; j += kLanes) {
    const vfloat raw = load(scores + j), score = scale * raw;
    const vfloat exponent = multiply_subtract(scale, raw, from);
    const vfloat e = exp_of(exponent);
    if (kTop) {
      const vint candidate = score > bar;
      const uint32_t lanes = bits_of(candidate);
      rest += candidate ? vfloat{} : e;
      if (lanes != 0)
        candidates.count += store_chosen(candidates.scores + candidates.count, candidates.keys + candidates.count,
                                         score, static_cast<int32_t>(key + j), lanes);
    }
    if (kInto != Into::kPairs) store(scores + j, e);
    if (kInto != Into::kScores) store_normal(rounded + j, e);
    sum += e;
    if (kEntropy) entropy += exponent < kLowestExponent ? vfloat{} : e * exponent;
    if (kDistance) distance += e * distances.at(key + j);
  }
  const vfloat factor = broadcast(rows.factor[r]);
  if (kEntropy) rows.entropies[r] = factor * (rows.entropies[r] + rows.shift[r] * rows.sums[r]) + entropy;
  if (kDistance) rows.distances[r] = factor * rows.distances[r] + distance;
  if (kTop) {
    rows.rests[r] = factor * rows.rests[r] + rest;
    if (candidates.count > 0) rows.rests[r] += top.insert(candidates, base);
  }
  rows.sums[r] = factor * rows.sums[r] + sum;
}

template <bool kEntropy, bool kDistance, bool kTop, Into kInto>
inline void soften_rows(const Block &block, int64_t key, int64_t width, float *scores, bfloat16 *rounded,
                        RowStatistics &rows) {
  for (int r = 0; r < block.rows; r++)
    soften_row<kEntropy, kDistance, kTop, kInto>(block, r, key, width, scores + r * kTileRow, rounded + r * kTileRow,
                                                 rows);
}

// The same for all rows of a block: scores[r · kTileRow + j], and rounded[r · kTileRow + j] if asked for.
template <Into kInto = Into::kScores>
inline void soften_tile(const Block &block, const Gathered &gathered, int64_t key, int64_t width,
                        const vfloat *largest, float *scores, RowStatistics &rows, bfloat16 *rounded = nullptr) {
  rows.raise(block.rows, largest);
  auto run = gathered.k > 0 ? (gathered.distance ? soften_rows<true, true, true, kInto>
                                                 : soften_rows<true, false, true, kInto>)
             : gathered.distance ? soften_rows<true, true, false, kInto>
             : gathered.entropy  ? soften_rows<true, false, false, kInto>
                                 : soften_rows<false, false, false, kInto>;
  run(block, key, width, scores, rounded, rows);
}

}  // namespace regard
