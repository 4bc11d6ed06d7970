// The largest scores of a row, in exact order: by score, then by lowest key.
//
// A tile's candidates (scores above the bar, which is the k-th best so far) are gathered first, then inserted one by one
// into a list that stays sorted. Both without branches on the data: an insertion shifts the list by one lane from where
// the newcomer belongs.
#pragma once

#include <algorithm>

#include "scores.h"

namespace regard {

// Scores and keys above the bar of one tile.
struct Candidates {
  float scores[kTile + kLanes];
  int32_t keys[kTile + kLanes];
  int count;
};

class TopList {
 public:
  static constexpr int kMost = 64;

  // Lanes the list takes: whole vectors.
  static int64_t lanes(int k) { return round_up(k, kLanes); }

  void begin(float *scores, int32_t *keys, int k) {
    scores_ = scores;
    keys_ = keys;
    k_ = k;
    std::fill(scores_, scores_ + lanes(k), kMasked);
    std::fill(keys_, keys_ + lanes(k), -1);
  }

  // The worst of the k best: what a newcomer must be above.
  float bar() const { return scores_[k_ - 1]; }

  int k() const { return k_; }

  bool full() const { return bar() != kMasked; }

  // A bound that at least k of a tile's scores reach: the smallest of as many maxima over parts of the tile.
  static float first_bar(const float *scores, int64_t width, int k) {
    constexpr int kParts = kMost / kLanes;
    const int parts = static_cast<int>(lanes(k) / kLanes);
    if (width < lanes(k)) return kMasked;
    vfloat most[kParts];
    for (int p = 0; p < parts; p++) most[p] = load(scores + p * kLanes);
    for (int64_t j = parts * kLanes, p = 0; j < width; j += kLanes, p = p + 1 == parts ? 0 : p + 1)
      most[p] = max_of(load(scores + j), most[p]);
    vfloat least = most[0];
    for (int p = 1; p < parts; p++) least = most[p] < least ? most[p] : least;
    return -largest_of(-least);
  }

  // Inserts a tile's candidates, in order of their keys. Returns, by lanes, Σ exp(score − base) of whoever leaves the list
  // or never gets in.
  vfloat insert(const Candidates &candidates, float base) {
    const int vectors = static_cast<int>(lanes(k_) / kLanes);
    switch (vectors) {
      case 1: return insert_into<1>(candidates, base, vectors);
      case 2: return insert_into<2>(candidates, base, vectors);
      default: return insert_into<kMost / kLanes>(candidates, base, vectors);
    }
  }

  const float *scores() const { return scores_; }
  const int32_t *keys() const { return keys_; }

 private:
  template <int Vectors>
  vfloat insert_into(const Candidates &candidates, float base, int vectors) {
    vfloat scores[Vectors];
    vint keys[Vectors];
    if (Vectors < 3) vectors = Vectors;  // known to the compiler, which then keeps the list in registers
    for (int v = 0; v < vectors; v++) {
      scores[v] = load(scores_ + v * kLanes);
      keys[v] = load_int(keys_ + v * kLanes);
    }
    // Behind the k-th place nothing may be dropped twice: what is there is -inf, or was counted when it left place k.
    const vint last_lane = broadcast_int((k_ - 1) % kLanes);
    vfloat dropped = broadcast(kMasked), sum{};
    for (int n = 0; n < candidates.count; n++) {
      const vfloat newcomer = broadcast(candidates.scores[n]);
      const vint newcomer_key = broadcast_int(candidates.keys[n]);
      const vfloat worst = __builtin_shuffle(scores[vectors - 1], last_lane);
      dropped = lane_numbers() == n % kLanes ? (newcomer > worst ? worst : newcomer) : dropped;
      if (n % kLanes == kLanes - 1) {
        sum += exp_of(dropped - base);
        dropped = broadcast(kMasked);
      }
      // Nobody is better than what stands left of the first place.
      vfloat score_before = broadcast(-kMasked);
      vint key_before = newcomer_key;
      for (int v = 0; v < vectors; v++) {
        const vfloat score = scores[v], shifted_score = shift_in(score, score_before);
        const vint key = keys[v], shifted_key = shift_in(key, key_before);
        const vint better = newcomer > score, better_before = newcomer > shifted_score;
        const vfloat moved = better_before ? shifted_score : newcomer;
        const vint moved_key = better_before ? shifted_key : newcomer_key;
        scores[v] = better ? moved : score;
        keys[v] = better ? moved_key : key;
        score_before = score;
        key_before = key;
      }
    }
    for (int v = 0; v < vectors; v++) {
      store(scores_ + v * kLanes, scores[v]);
      store_int(keys_ + v * kLanes, keys[v]);
    }
    return sum + exp_of(dropped - base);
  }

  float *scores_;
  int32_t *keys_;
  int k_;
};

}  // namespace regard
