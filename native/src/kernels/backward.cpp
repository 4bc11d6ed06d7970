// Gradients of a call, by recomputing its weights from lse (Dao et al. 2022, "FlashAttention", appendix B).
//
//   weight   = exp(score − lse)                d value = weightᵀ · grad
//   d weight = grad · valueᵀ                   d query = scale · (d score · key)
//   d score  = weight · (d weight − delta)     d key   = d scoreᵀ · (scale · query)      delta = Σ grad · output
//
// A task has the rows of all heads that read one kv head and goes through their keys tile by tile: the sums of a tile's
// keys stay in the cache while the rows pass by. Where there are fewer kv heads than threads, a task takes every n-th
// block of rows, or every n-th tile of keys, and has sums of its own, which are added up in order at the end.
#include <cmath>
#include <new>
#include <vector>

#include "memory.h"
#include "scores.h"
#include "threads.h"

namespace regard {
namespace {

constexpr double kSmallWork = 1e6;             // multiply-adds of a product below which one thread is faster than two
constexpr int kKeys = 128;                     // keys of a tile
constexpr int kStride = kKeys + 16;            // floats from row to row: a power of two would share few cache sets
constexpr int64_t kAddedTogether = 1 << 14;    // floats

static_assert(kKeys % kPanel == 0 && kStride % kLanes == 0);

// What a thread works in.
struct Workspace {
  // Of all rows of a task.
  Block *blocks;
  bool *finite;  // of each block: neither queries nor grad hold NaN or Inf
  float *queries, *grads, *query_sums, *lse, *delta;
  // Of the keys of a tile: transposed, as they are, and what is summed for them.
  float *key_panels, *value_panels, *keys, *key_sums, *value_sums;
  // Of a block of rows and a tile of keys: [row · kStride + key].
  float *weights, *scores, *cap_slopes;  // weights; gradients of scores; derivatives of the soft cap
};

struct KeyTile {
  int64_t first, end;
  bool packed, finite;
};

// One result: part 0 of the tasks writes straight to it, the others to sums of their own.
struct Result {
  float *out, *others;
  int64_t size, parts;

  float *part(int64_t number) const { return out == nullptr || number == 0 ? out : others + (number - 1) * size; }
};

// Counts what a lease would be asked for.
struct Count {
  std::size_t bytes = 0;

  template <typename T>
  T *array(int64_t count) {
    bytes += Lease::padded<T>(count);
    return nullptr;
  }
};

bool all_finite(const float *values, int64_t count) {
  vfloat sum{};
  for (int64_t i = 0; i < count; i += kLanes) sum += load(values + i) * 0.f;
  return sum_of(sum) == 0.f;
}

// out[r · kStride + j] = Σ_d rows[r · stride + d] · panels[d, j]; width is a multiple of kLanes.
void row_products(const float *rows, int64_t stride, int64_t dim, int64_t count, const float *panels, int64_t width,
                  float *out) {
  for_column_groups(width, [&](int64_t column, auto vectors) {
    for_row_groups<kRows>(count, [&](int64_t row, auto size) {
      constexpr int R = decltype(size)::value, V = decltype(vectors)::value;
      vfloat sums[R][V];
      multiply_in_runs<R, V>(sums, rows + row * stride, stride, panels + column * dim, kPanel, dim);
#pragma GCC unroll 12
      for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < V; j++) store(out + (row + i) * kStride + column + j * kLanes, sums[i][j]);
    });
  });
}

// Scores of a row become weights, gradients of weights become gradients of scores.
//
// A masked key gets exactly 0 in both, whatever lse, delta and its value hold. `is_masked` is given an offset and scores.
template <typename IsMasked>
void weigh_row(int64_t width, float lse, float delta, float *weights, float *scores, IsMasked is_masked) {
  for (int64_t j = 0; j < width; j += kLanes) {
    const vfloat score = load(weights + j);
    const vfloat weight = exp_of(score - lse);
    const vfloat gradient = weight * (load(scores + j) - delta);
    const vint masked = is_masked(j, score);
    store(weights + j, masked ? vfloat{} : weight);
    store(scores + j, masked ? vfloat{} : gradient);
  }
}

// sums += factor · values, a vector at a time.
void add_scaled(float factor, const float *values, int64_t dim, float *sums) {
  for (int64_t d = 0; d < dim; d += kLanes) store(sums + d, load(sums + d) + factor * load(values + d));
}

// Writes padded rows as rows of `dim` values, times a factor.
void write_row(const float *row, int64_t dim, float factor, float *out) {
  for (int64_t d = 0; d < dim; d += kLanes) store_first(out + d, factor * load(row + d), dim - d);
}

// One backward call: what is decided once for all tasks.
class Backward {
 public:
  Backward(const regard_call &call, const regard_gradients &gradients)
      : call_(call), gradients_(gradients), adjustment_(call) {
    hides_ = call.mask.low != nullptr || call.mask.tiles != nullptr || adjustment_.biased;
    wants_scores_ = gradients.query != nullptr || gradients.key != nullptr || gradients.bias != nullptr;
    group_ = call.num_heads / std::max<int64_t>(call.num_kv_heads, 1);
    units_ = call.batch * call.num_kv_heads;
    rows_ = group_ * call.q_len;
    blocks_ = (rows_ + kBlock - 1) / kBlock;
    tiles_ = (call.kv_len + kKeys - 1) / kKeys;
    dim_ = round_up(call.head_dim, kLanes);
    value_dim_ = round_up(call.value_dim, kLanes);
    const double work = double(units_) * rows_ * call.kv_len * (dim_ + value_dim_);
    const int threads = work < kSmallWork ? 1 : call.threads;
    if (rows_ >= call.kv_len)
      row_parts_ = parts_for(threads, blocks_);
    else
      key_parts_ = parts_for(threads, tiles_);
    threads_ = usable_threads(threads, units_ * row_parts_ * key_parts_);
  }

  void run() const {
    Result query{gradients_.query, nullptr, units_ * rows_ * call_.head_dim, key_parts_};
    Result key{gradients_.key, nullptr, units_ * call_.kv_len * call_.head_dim, row_parts_};
    Result value{gradients_.value, nullptr, units_ * call_.kv_len * call_.value_dim, row_parts_};
    Count needed;
    for (Result *result : {&query, &key, &value}) needed.array<float>(others(*result));
    Lease partial(needed.bytes);
    for (Result *result : {&query, &key, &value}) result->others = partial.array<float>(others(*result));

    Count each;
    cut(each);
    Lease memory(each.bytes * threads_);
    std::vector<Workspace> spaces(threads_);
    for (Workspace &space : spaces) space = cut(memory);
    const int64_t parts = row_parts_ * key_parts_;
    parallel_for(units_ * parts, threads_, [&](int64_t task, int thread) {
      const int64_t row_part = task % parts % row_parts_, key_part = task % parts / row_parts_;
      run_task(task / parts, row_part, key_part, query.part(key_part), key.part(row_part), value.part(row_part),
               spaces[thread]);
    });
    for (const Result *result : {&query, &key, &value}) add_up(*result);
  }

 private:
  // Into how many parts a kv head is cut, so that all threads have about the same to do.
  int64_t parts_for(int threads, int64_t most) const {
    int64_t parts = 1;
    while (parts < std::min<int64_t>(threads, most) && units_ * parts < 4 * threads && units_ * parts % threads != 0)
      parts++;
    return parts;
  }

  static int64_t others(const Result &result) {
    return result.out == nullptr ? 0 : (result.parts - 1) * result.size;
  }

  template <typename Memory>
  Workspace cut(Memory &memory) const {
    Workspace space{};
    const int64_t blocks = (blocks_ + row_parts_ - 1) / row_parts_, rows = std::min(rows_, blocks * kBlock);
    space.blocks = memory.template array<Block>(blocks);
    space.finite = memory.template array<bool>(blocks);
    space.queries = memory.template array<float>(rows * dim_);
    space.grads = memory.template array<float>(rows * value_dim_);
    space.query_sums = memory.template array<float>(rows * dim_);
    space.lse = memory.template array<float>(rows);
    space.delta = memory.template array<float>(rows);
    space.key_panels = memory.template array<float>(kKeys * dim_);
    space.value_panels = memory.template array<float>(kKeys * value_dim_);
    space.keys = memory.template array<float>(kKeys * dim_);
    space.key_sums = memory.template array<float>(kKeys * dim_);
    space.value_sums = memory.template array<float>(kKeys * value_dim_);
    space.weights = memory.template array<float>(kBlock * kStride);
    space.scores = memory.template array<float>(kBlock * kStride);
    space.cap_slopes = memory.template array<float>(adjustment_.caps ? kBlock * kStride : 0);
    return space;
  }

  // query, key, value: where the task's sums go, each a whole result; NULL for nowhere.
  void run_task(int64_t unit_index, int64_t row_part, int64_t key_part, float *query, float *key, float *value,
                const Workspace &space) const {
    const int64_t kv_head = unit_index % call_.num_kv_heads;
    const Unit unit{unit_index / call_.num_kv_heads, kv_head, kv_head * group_, group_};
    int64_t blocks = 0;
    for (int64_t block = row_part; block < blocks_; block += row_parts_, blocks++)
      open_block(unit, block * kBlock, blocks, space);
    for (int64_t number = key_part; number < tiles_; number += key_parts_) {
      KeyTile tile{number * kKeys, std::min(call_.kv_len, (number + 1) * kKeys), false, true};
      sum_tile(unit, tile, blocks, space);
      for (int64_t j = tile.first; j < tile.end; j++) {
        const int64_t row = unit_index * call_.kv_len + j, at = j - tile.first;
        if (key != nullptr) write_row(space.key_sums + at * dim_, call_.head_dim, 1.f, key + row * call_.head_dim);
        if (value != nullptr)
          write_row(space.value_sums + at * value_dim_, call_.value_dim, 1.f, value + row * call_.value_dim);
      }
    }
    if (query == nullptr) return;
    for (int64_t b = 0; b < blocks; b++)
      for (int r = 0; r < space.blocks[b].rows; r++)
        write_row(space.query_sums + (b * kBlock + r) * dim_, call_.head_dim, call_.scale,
                  query + space.blocks[b].row_index(r) * call_.head_dim);
  }

  // Packs a block's rows as number `index` of the task. Queries are scaled.
  void open_block(const Unit &unit, int64_t first_row, int64_t index, const Workspace &space) const {
    const Block &block = *new (space.blocks + index) Block(call_, unit, first_row, std::min(rows_, first_row + kBlock));
    const int64_t row = index * kBlock;
    float *queries = space.queries + row * dim_, *grads = space.grads + row * value_dim_;
    pack_queries(block, call_.query, call_.head_dim, dim_, call_.scale, queries);
    pack_queries(block, gradients_.grad, call_.value_dim, value_dim_, 1.f, grads);
    std::fill(space.query_sums + row * dim_, space.query_sums + (row + block.rows) * dim_, 0.f);
    space.finite[index] = !hides_ || (all_finite(queries, block.rows * dim_) && all_finite(grads, block.rows * value_dim_));
    by_dtype(call_.dtype, [&](auto *type) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      for (int r = 0; r < block.rows; r++) {
        const T *output = row_of<T>(gradients_.output, block.batch, block.head[r], block.query[r]);
        vfloat sum{};
        for (int64_t d = 0; d < call_.value_dim; d += kLanes)
          sum += load(grads + r * value_dim_ + d) * load_first(output + d, call_.value_dim - d);
        space.delta[row + r] = sum_of(sum);
        space.lse[row + r] = gradients_.lse[block.row_index(r)];
      }
    });
  }

  void pack_tile(const Unit &unit, KeyTile &tile, const Workspace &space) const {
    const int64_t count = tile.end - tile.first;
    by_dtype(call_.dtype, [&](auto *type) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      const T *keys = row_of<T>(call_.key, unit.batch, unit.kv_head, tile.first);
      const T *values = row_of<T>(call_.value, unit.batch, unit.kv_head, tile.first);
      for (int64_t j = 0; j < count; j += kPanel) {
        pack_panel(keys + j * call_.key.row, call_.key.row, count - j, call_.head_dim,
                   space.key_panels + j * call_.head_dim);
        if (wants_scores_)
          pack_panel(values + j * call_.value.row, call_.value.row, count - j, call_.value_dim,
                     space.value_panels + j * call_.value_dim);
      }
      if (gradients_.query != nullptr)
        pack_rows(keys, call_.key.row, count, call_.head_dim, dim_, 1.f, space.keys);
    });
    tile.finite = !hides_ || gradients_.query == nullptr || all_finite(space.keys, count * dim_);
    tile.packed = true;
  }

  // Sums of a tile's keys over the rows of a task, and what the tile adds to the sums of the rows.
  void sum_tile(const Unit &unit, KeyTile &tile, int64_t blocks, const Workspace &space) const {
    const int64_t count = tile.end - tile.first;
    std::fill(space.key_sums, space.key_sums + count * dim_, 0.f);
    std::fill(space.value_sums, space.value_sums + count * value_dim_, 0.f);
    for (int64_t b = 0; b < blocks; b++) {
      const Block &block = space.blocks[b];
      const int64_t first = std::max(tile.first, block.first_key), end = std::min(tile.end, block.end_key);
      if (first >= end || (hides_ && !block.sees_any(first, end))) {
        write_bias(block, tile, tile.end, tile.end, space.scores);
        continue;
      }
      if (!tile.packed) pack_tile(unit, tile, space);
      const bool hidden = recompute(block, b * kBlock, first, end, first - tile.first, space);
      write_bias(block, tile, first, end, space.scores);
      if (adjustment_.caps) through_cap(block, round_up(end - first, kLanes), space);
      if (hidden && !(tile.finite && space.finite[b]))
        add_visible(block, b * kBlock, first, end, first - tile.first, space);
      else
        add_products(block, b * kBlock, end - first, first - tile.first, space);
    }
  }

  // Weights of a block's rows and the keys [first, end), and gradients of scores before the soft cap. Returns whether
  // any of the pairs may be masked.
  bool recompute(const Block &block, int64_t row, int64_t first, int64_t end, int64_t offset,
                 const Workspace &space) const {
    const int64_t width = round_up(end - first, kLanes);
    row_products(space.queries + row * dim_, dim_, call_.head_dim, block.rows,
                 space.key_panels + offset * call_.head_dim, width, space.weights);
    if (wants_scores_)
      row_products(space.grads + row * value_dim_, value_dim_, call_.value_dim, block.rows,
                   space.value_panels + offset * call_.value_dim, width, space.scores);
    bool hidden = adjustment_.biased;
    for (int r = 0; r < block.rows; r++) {
      float *weights = space.weights + r * kStride;
      if (adjustment_.caps) find_cap_slopes(weights, width, space.cap_slopes + r * kStride);
      if (adjustment_.needed(block, r, first, width)) adjustment_.apply(block, r, first, width, 1.f, weights);
      hidden = hidden || (hides_ && !block.sees_all(r, first, end));
      weigh_row(block, r, first, width, space.lse[row + r], space.delta[row + r], weights, space.scores + r * kStride);
    }
    return hidden;
  }

  // Where lse and delta are finite a score of −inf means weight and gradient 0, masked or not. In a row of NaN only masked
  // keys have that.
  void weigh_row(const Block &block, int r, int64_t first, int64_t width, float lse, float delta, float *weights,
                 float *scores) const {
    if (lse == kMasked || std::isfinite(lse + delta))
      return regard::weigh_row(width, lse, delta, weights, scores, [](int64_t, vfloat score) { return score == kMasked; });
    AllowedRow allowed(block, r);
    const BiasRow bias(block, r);
    regard::weigh_row(width, lse, delta, weights, scores, [&](int64_t j, vfloat) {
      vint visible = allowed.at(first + j);
      if (adjustment_.biased) visible &= ~(bias.at(first + j) <= call_.bias.blocked);
      return ~visible;
    });
  }

  // Derivative 1 − tanh² of the soft cap at the raw scores of a row.
  void find_cap_slopes(const float *scores, int64_t width, float *slopes) const {
    for (int64_t j = 0; j < width; j += kLanes) {
      const vfloat capped = tanh_of(load(scores + j) / call_.softcap);
      store(slopes + j, 1.f - capped * capped);
    }
  }

  // A gradient of exactly 0 stays so: the raw score behind a mask may be NaN.
  void through_cap(const Block &block, int64_t width, const Workspace &space) const {
    for (int64_t i = 0; i < block.rows * kStride; i += kStride)
      for (int64_t j = i; j < i + width; j += kLanes) {
        const vfloat gradient = load(space.scores + j);
        store(space.scores + j, gradient == 0.f ? gradient : gradient * load(space.cap_slopes + j));
      }
  }

  // Gradients of a tile's biases: those of the scores for the keys [first, end), 0 for the others.
  void write_bias(const Block &block, const KeyTile &tile, int64_t first, int64_t end, const float *scores) const {
    if (gradients_.bias == nullptr) return;
    for (int r = 0; r < block.rows; r++) {
      float *out = gradients_.bias + block.row_index(r) * call_.kv_len;
      std::fill(out + tile.first, out + first, 0.f);
      std::copy(scores + r * kStride, scores + r * kStride + (end - first), out + first);
      std::fill(out + end, out + tile.end, 0.f);
    }
  }

  void add_products(const Block &block, int64_t row, int64_t keys, int64_t offset, const Workspace &space) const {
    if (gradients_.value != nullptr)
      accumulate_product(space.weights, 1, kStride, space.grads + row * value_dim_, value_dim_, block.rows,
                         space.value_sums + offset * value_dim_, value_dim_, keys, value_dim_, nullptr);
    if (gradients_.key != nullptr)
      accumulate_product(space.scores, 1, kStride, space.queries + row * dim_, dim_, block.rows,
                         space.key_sums + offset * dim_, dim_, keys, dim_, nullptr);
    if (gradients_.query != nullptr)
      accumulate_product(space.scores, kStride, 1, space.keys + offset * dim_, dim_, keys,
                         space.query_sums + row * dim_, dim_, block.rows, dim_, nullptr);
  }

  // The same over visible pairs only, for a tile in which 0 · NaN would carry NaN across the mask.
  void add_visible(const Block &block, int64_t row, int64_t first, int64_t end, int64_t offset,
                   const Workspace &space) const {
    for (int r = 0; r < block.rows; r++) {
      AllowedRow allowed(block, r);
      const BiasRow bias(block, r);
      const float *query = space.queries + (row + r) * dim_, *grad = space.grads + (row + r) * value_dim_;
      for (int64_t j = first; j < end; j += kLanes) {
        vint visible = allowed.at(j);
        if (adjustment_.biased) visible &= ~(bias.at(j) <= call_.bias.blocked);
        for (uint32_t lanes = bits_of(visible); lanes != 0; lanes &= lanes - 1) {
          const int64_t key = j - first + __builtin_ctz(lanes);
          const float weight = space.weights[r * kStride + key], score = space.scores[r * kStride + key];
          add_scaled(weight, grad, value_dim_, space.value_sums + (offset + key) * value_dim_);
          if (gradients_.key != nullptr) add_scaled(score, query, dim_, space.key_sums + (offset + key) * dim_);
          if (gradients_.query != nullptr)
            add_scaled(score, space.keys + (offset + key) * dim_, dim_, space.query_sums + (row + r) * dim_);
        }
      }
    }
  }

  void add_up(const Result &result) const {
    if (result.out == nullptr || result.parts == 1) return;
    const int64_t chunks = (result.size + kAddedTogether - 1) / kAddedTogether;
    parallel_for(chunks, usable_threads(threads_, chunks), [&](int64_t chunk, int) {
      const int64_t first = chunk * kAddedTogether, end = std::min(result.size, first + kAddedTogether);
      for (int64_t p = 1; p < result.parts; p++) {
        const float *part = result.part(p);
        for (int64_t i = first; i < end; i++) result.out[i] += part[i];
      }
    });
  }

  const regard_call &call_;
  const regard_gradients &gradients_;
  const Adjustment adjustment_;
  bool hides_;         // whether any pair may be masked, by the mask or by the bias
  bool wants_scores_;  // whether gradients of scores are needed
  int64_t group_, units_, rows_, blocks_, tiles_;  // a unit: the heads of a kv head, `rows_` rows
  int64_t dim_, value_dim_;                        // in whole vectors
  int64_t row_parts_ = 1, key_parts_ = 1;
  int threads_;
};

}  // namespace
}  // namespace regard

int32_t regard_backward(const regard_call *call, const regard_gradients *gradients) {
  try {
    regard::Backward(*call, *gradients).run();
  } catch (const std::bad_alloc &) {
    return REGARD_OUT_OF_MEMORY;
  }
  return REGARD_OK;
}
