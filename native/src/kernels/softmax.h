// The online softmax of a block, and what is gathered of each row on the way.
//
// A row is seen tile by tile. Its scores turn into exponentials of their distance to the largest score so far; when a
// larger one comes, what was gathered before is scaled down (Milakov and Gimelshein 2018, "Online normalizer
// calculation for softmax").
#pragma once

#include "top_list.h"

namespace regard {

struct RowStatistics {
  float largest[kBlock];   // so far
  float sum[kBlock];       // Σ e, with e = exp(score − largest)
  float factor[kBlock];    // what the last tile scaled earlier sums by
  float entropy[kBlock];   // Σ e · log2(e)
  float distance[kBlock];  // Σ e · |i − j|
  float rest[kBlock];      // Σ e over keys known not to be among the k best
  TopList top[kBlock];

  void begin(int rows, int k, float *top_scores, int32_t *top_keys) {
    for (int r = 0; r < rows; r++) {
      largest[r] = kMasked;
      sum[r] = entropy[r] = distance[r] = rest[r] = 0;
      if (k > 0) top[r].begin(top_scores + r * TopList::lanes(k), top_keys + r * TopList::lanes(k), k);
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

// Σ exp(score − base) over the first `count`, which may be overwritten behind.
inline float exponentials(float *scores, int count, float base) {
  vfloat sum{};
  for (int i = 0; i < kLanes; i++) scores[count + i] = kMasked;
  for (int i = 0; i < count; i += kLanes) sum += exp2_of((load(scores + i) - base) * kLog2E);
  return sum_of(sum);
}

// Turns the scores of a tile's row into exponentials and updates the row's statistics. Element pairs want them rounded too.
template <bool kEntropy, bool kDistance, bool kTop, bool kRounded>
inline void soften_row(const Block &block, int r, int64_t key, int64_t width, vfloat tile_largest, float *scores,
                       bfloat16 *rounded, RowStatistics &rows) {
  const float before = rows.largest[r];
  const float largest = std::max(before, largest_of(tile_largest));
  const float base = base_of(largest);
  const float factor = before == kMasked ? 0.f : exp2_of((before - base) * kLog2E);
  const vfloat from = broadcast(base);
  const Distances distances(block, r);
  vfloat sum{}, entropy{}, distance{}, rest{};
  Candidates candidates;
  TopList &top = rows.top[r];
  vfloat bar{};
  if (kTop) {
    // The bar must be passed; a bound that k scores reach may also be met.
    const float bound = top.full() ? kMasked : TopList::first_bar(scores, width, top.k());
    bar = broadcast(std::max(top.bar(), std::nextafter(bound, kMasked)));
    candidates.count = 0;
  }
  for (int64_t j = 0; j < width; j += kLanes) {
    const vfloat score = load(scores + j);
    const vfloat power = (score - from) * kLog2E;
    const vfloat e = exp2_of(power);
    if (kTop) {
      const vint candidate = score > bar;
      const uint32_t lanes = bits_of(candidate);
      rest += candidate ? vfloat{} : e;
      if (lanes != 0)
        candidates.count += store_chosen(candidates.scores + candidates.count, candidates.keys + candidates.count,
                                         score, static_cast<int32_t>(key + j), lanes);
    }
    store(scores + j, e);
    if (kRounded) store_normal(rounded + j, e);
    sum += e;
    if (kEntropy) entropy += power < kLowestPower ? vfloat{} : e * power;
    if (kDistance) distance += e * distances.at(key + j);
  }
  if (kEntropy) {
    const float shift = before == kMasked ? 0.f : (before - base) * kLog2E;
    rows.entropy[r] = factor * (rows.entropy[r] + shift * rows.sum[r]) + sum_of(entropy);
  }
  if (kDistance) rows.distance[r] = factor * rows.distance[r] + sum_of(distance);
  if (kTop) {
    top.insert(candidates);
    rows.rest[r] = factor * rows.rest[r] + sum_of(rest) + exponentials(candidates.dropped, candidates.count, base);
  }
  rows.sum[r] = factor * rows.sum[r] + sum_of(sum);
  rows.largest[r] = largest;
  rows.factor[r] = factor;
}

template <bool kEntropy, bool kDistance, bool kTop, bool kRounded>
inline void soften_rows(const Block &block, int64_t key, int64_t width, const vfloat *largest, float *scores,
                        bfloat16 *rounded, RowStatistics &rows) {
  for (int r = 0; r < block.rows; r++)
    soften_row<kEntropy, kDistance, kTop, kRounded>(block, r, key, width, largest[r], scores + r * kTile,
                                                    rounded + r * kTile, rows);
}

// The same for all rows of a block: scores[r · kTile + j], and rounded[r · kTile + j] if asked for.
template <bool kRounded = false>
inline void soften_tile(const Block &block, const Gathered &gathered, int64_t key, int64_t width,
                        const vfloat *largest, float *scores, RowStatistics &rows, bfloat16 *rounded = nullptr) {
  constexpr bool R = kRounded;
  auto run = gathered.k > 0 ? (gathered.distance ? soften_rows<true, true, true, R> : soften_rows<true, false, true, R>)
             : gathered.distance ? soften_rows<true, true, false, R>
             : gathered.entropy  ? soften_rows<true, false, false, R>
                                 : soften_rows<false, false, false, R>;
  run(block, key, width, largest, scores, rounded, rows);
}

}  // namespace regard
