// Decoding reads every key and value once and does little with each, so memory sets its pace. Keys are cut into segments
// for the threads; each gathers its rows as the forward pass does, and the segments of a row are merged by their largest
// scores (the "split-K" of Flash-Decoding, Dao et al. 2023).
#include "decode.h"

#include "memory.h"
#include "probes.h"
#include "threads.h"

namespace regard {

namespace {

constexpr int64_t kMostRows = 16;
constexpr int64_t kFewestKeys = 64;
constexpr int kReadOnce = 4;           // rows for which keys and values are read once
constexpr int64_t kStep = 32;          // keys brought into the first-level cache together, whole vectors
constexpr double kSmallWork = 1 << 19;  // multiply-adds below which one thread is faster than two

// scores[j] of R rows, kTileRow apart, for the kLanes / R keys from `keys` on, rows of whole vectors.
template <int R, typename T>
inline void dot_products(const float *queries, const T *keys, int64_t key_row, int64_t dim, float *scores) {
  constexpr int kKeys = kLanes / R;
  vfloat sums[kLanes] = {};
  for (int64_t d = 0; d < dim; d += kLanes) {
    vfloat query[R];
#pragma GCC unroll 4
    for (int i = 0; i < R; i++) query[i] = load(queries + i * dim + d);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; j++) {
      const vfloat key = load(keys + j * key_row + d);
#pragma GCC unroll 4
      for (int i = 0; i < R; i++) sums[i * kKeys + j] += query[i] * key;
    }
  }
  float totals[kLanes];
  store(totals, sums_of(sums));
#pragma GCC unroll 4
  for (int i = 0; i < R; i++) std::memcpy(scores + i * kTileRow, totals + i * kKeys, sizeof(float) * kKeys);
}

// The same for all rows, in groups of four, two and one. `keys` are a multiple of kLanes.
template <typename T>
inline void score_keys(const float *queries, int rows, const T *keys, int64_t key_row, int64_t count, int64_t dim,
                       float *scores) {
  auto group = [&](int row, auto size) {
    constexpr int R = decltype(size)::value;
    for (int64_t j = 0; j < count; j += kLanes / R)
      dot_products<R>(queries + row * dim, keys + j * key_row, key_row, dim, scores + row * kTileRow + j);
  };
  int row = 0;
  for (; row + 4 <= rows; row += 4) group(row, std::integral_constant<int, 4>());
  if (rows & 2) group(row, std::integral_constant<int, 2>()), row += 2;
  if (rows & 1) group(row, std::integral_constant<int, 1>());
}

class Decode {
 public:
  explicit Decode(const regard_call &call) : call_(call), plan_(call), adjustment_(call) {
    group_ = call.num_heads / call.num_kv_heads;
    rows_ = group_ * call.q_len;
    units_ = call.batch * call.num_kv_heads;
    dim_ = round_up(call.head_dim, kLanes);
    value_dim_ = call.value.data != nullptr && call.output.data != nullptr ? padded_value_dim(call) : 0;
    tiles_ = (call.kv_len + kTile - 1) / kTile;
    const double work = double(units_) * rows_ * call.kv_len * (dim_ + value_dim_);
    const int threads = work < kSmallWork ? 1 : call.threads;
    segments_ = threads == 1 ? 1 : std::clamp<int64_t>((4 * threads + units_ - 1) / units_, 1, tiles_);
    threads_ = usable_threads(threads, units_ * segments_);
  }

  void run() {
    const int64_t parts = units_ * segments_, lanes = TopList::lanes(plan_.gathered.k) * rows_;
    const int64_t strip = plan_.strip ? units_ * tiles_ * rows_ * kTileRow : 0, bases = units_ * tiles_ * rows_;
    Lease shared(Lease::padded<float>(parts * rows_ * value_dim_) + Lease::padded<float>(parts * lanes) +
                 Lease::padded<int32_t>(parts * lanes) + Lease::padded<float>(strip) + Lease::padded<float>(bases));
    sums_ = shared.array<float>(parts * rows_ * value_dim_);
    top_scores_ = shared.array<float>(parts * lanes);
    top_keys_ = shared.array<int32_t>(parts * lanes);
    strip_ = shared.array<float>(strip);
    bases_ = shared.array<float>(bases);
    statistics_.resize(parts);
    clear_columns(call_);

    const int64_t tile = plan_.strip ? 0 : rows_ * kTileRow, step = kStep * std::max(dim_, value_dim_);
    int64_t columns = 0;
    for (int64_t unit = 0; unit < units_ && plan_.columns; unit++)
      columns = std::max(columns, plan_.column_size(this->unit(unit), 0, rows_));
    const std::size_t each = Lease::padded<float>(tile) + Lease::padded<float>(step) +
                             Lease::padded<float>(rows_ * dim_) + Lease::padded<double>(columns);
    Lease memory(each * threads_);
    std::vector<Space> spaces(threads_);
    for (Space &space : spaces)
      space = {memory.array<float>(tile), memory.array<float>(step), memory.array<float>(rows_ * dim_),
               memory.array<double>(columns)};
    parallel_for(parts, threads_, [&](int64_t part, int thread) {
      segment(part / segments_, part % segments_, spaces[thread]);
    });
    std::atomic<bool> failed{false};
    parallel_for(units_, usable_threads(threads_, units_), [&](int64_t index, int thread) {
      try {
        merge(index, spaces[thread]);
      } catch (const std::bad_alloc &) {
        failed = true;
      }
    });
    if (failed) throw std::bad_alloc();
  }

 private:
  struct Space {
    float *scores, *step, *queries;
    double *columns;
  };

  Unit unit(int64_t index) const {
    const int64_t kv_head = index % call_.num_kv_heads;
    return {index / call_.num_kv_heads, kv_head, kv_head * group_, group_};
  }

  float *sums(int64_t index, int64_t number) const {
    return sums_ + (index * segments_ + number) * rows_ * value_dim_;
  }

  Strip strip(int64_t index) const {
    return {strip_ + index * tiles_ * rows_ * kTileRow, bases_ + index * tiles_ * rows_, rows_, tiles_,
            {0, call_.kv_len}};
  }

  void segment(int64_t index, int64_t number, const Space &space) {
    const Unit unit = this->unit(index);
    const Block block(call_, unit, 0, rows_);
    const int64_t part = index * segments_ + number, lanes = TopList::lanes(plan_.gathered.k) * rows_;
    RowStatistics &rows = statistics_[part];
    rows.begin(block.rows, plan_.gathered.k, top_scores_ + part * lanes, top_keys_ + part * lanes);
    std::fill(sums(index, number), sums(index, number) + rows_ * value_dim_, 0.f);
    pack_queries(block, call_.query, call_.head_dim, dim_, call_.scale, space.queries);
    const Strip strip = this->strip(index);
    for (int64_t t = number * tiles_ / segments_; t < (number + 1) * tiles_ / segments_; t++) {
      const int64_t key = t * kTile, keys = std::min<int64_t>(kTile, call_.kv_len - key);
      if (!block.sees_any(key, key + keys)) {
        std::fill(strip.tile_bases(t), strip.tile_bases(t) + rows_, kMasked);
        continue;
      }
      float *scores = plan_.strip ? strip.tile(t) : space.scores;
      tile(block, key, keys, scores, space, rows, sums(index, number));
      std::copy(rows.largest, rows.largest + rows_, strip.tile_bases(t));
    }
    rows.end(block.rows);
  }

  void tile(const Block &block, int64_t key, int64_t keys, float *scores, const Space &space, RowStatistics &rows,
            float *sums) const {
    const int64_t width = round_up(keys, kPanel);
    for (int64_t j = 0; j < keys; j += kStep)
      read(call_.key, block, key + j, std::min(kStep, keys - j), call_.head_dim, dim_, space.step,
           [&](const auto *step, int64_t row) {
             score_keys(space.queries, block.rows, step, row, kStep, dim_, scores + j);
           });
    vfloat largest[kMostRows];
    for (int r = 0; r < block.rows; r++) {
      float *row = scores + r * kTileRow;
      std::fill(row + keys, row + width, kMasked);
      if (adjustment_.needed(block, r, key, width)) {
        largest[r] = adjustment_.apply(block, r, key, width, 1.f, row);
        continue;
      }
      largest[r] = broadcast(kMasked);
      for (int64_t j = 0; j < width; j += kLanes) largest[r] = max_of(load(row + j), largest[r]);
    }
    soften_tile(block, plan_.gathered, key, width, largest, scores, rows);
    for (int64_t j = 0; j < keys && value_dim_ > 0; j += kStep) {
      const int64_t count = std::min(kStep, keys - j);
      read(call_.value, block, key + j, count, call_.value_dim, value_dim_, space.step,
           [&](const auto *step, int64_t row) {
             accumulate_product(scores + j, kTileRow, 1, step, row, count, sums, value_dim_, block.rows, value_dim_,
                                j == 0 ? rows.factor : nullptr);
           });
    }
  }

  // Gives `use` kStep rows in whole vectors: where they are, if they need not be widened more than once, or else a copy as
  // floats in the first-level cache with zeros behind the last.
  template <typename Use>
  void read(const regard_tensor &tensor, const Block &block, int64_t first, int64_t count, int64_t dim, int64_t padded,
            float *copy, Use use) const {
    by_dtype(call_.dtype, [&](auto *type) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
      const T *rows = row_of<T>(tensor, block.batch, block.kv_head, first);
      const bool widened_once = std::is_same_v<T, float> || block.rows <= kReadOnce;
      if (dim == padded && count == kStep && widened_once) return use(rows, tensor.row);
      pack_rows(rows, tensor.row, count, dim, padded, 1.f, copy);
      std::fill(copy + count * padded, copy + kStep * padded, 0.f);
      use(static_cast<const float *>(copy), padded);
    });
  }

  // Brings the segments of a unit together in the first one, and ends the rows.
  void merge(int64_t index, const Space &space) {
    const Unit unit = this->unit(index);
    const Block block(call_, unit, 0, rows_);
    RowStatistics &rows = statistics_[index * segments_];
    float *sums = this->sums(index, 0);
    for (int64_t number = 1; number < segments_; number++)
      for (int r = 0; r < block.rows; r++) {
        const auto [mine, other] = merge_row(rows, statistics_[index * segments_ + number], r, plan_.gathered.k);
        const float *more = this->sums(index, number) + r * value_dim_;
        float *sum = sums + r * value_dim_;
        for (int64_t d = 0; d < value_dim_; d += kLanes)
          store(sum + d, mine * load(sum + d) + other * load(more + d));
      }
    const Strip strip = this->strip(index);
    if (!plan_.columns) {
      finish_block(plan_, block, rows, sums, value_dim_, plan_.strip ? &strip : nullptr, nullptr);
      return;
    }
    ColumnSums columns(plan_, unit, 0, rows_, space.columns);
    columns.clear();
    finish_block(plan_, block, rows, sums, value_dim_, &strip, &columns);
    columns.flush();
  }

  // Adds a later segment's row to an earlier one's. Returns what the sums of each are to be multiplied by.
  static std::pair<float, float> merge_row(RowStatistics &rows, RowStatistics &more, int r, int k) {
    const float largest = std::max(rows.largest[r], more.largest[r]), base = base_of(largest);
    auto factor = [&](float before) { return exp_of(before - base); };
    auto shift = [&](float before) { return before == kMasked ? 0.f : before - base; };
    const float mine = factor(rows.largest[r]), other = factor(more.largest[r]);
    rows.entropy[r] = mine * (rows.entropy[r] + shift(rows.largest[r]) * rows.sum[r]) +
                      other * (more.entropy[r] + shift(more.largest[r]) * more.sum[r]);
    rows.sum[r] = mine * rows.sum[r] + other * more.sum[r];
    rows.distance[r] = mine * rows.distance[r] + other * more.distance[r];
    rows.rest[r] = mine * rows.rest[r] + other * more.rest[r];
    if (k > 0) {
      Candidates candidates;
      candidates.count = 0;
      for (; candidates.count < k && more.top[r].keys()[candidates.count] >= 0; candidates.count++) {
        candidates.scores[candidates.count] = more.top[r].scores()[candidates.count];
        candidates.keys[candidates.count] = more.top[r].keys()[candidates.count];
      }
      rows.rest[r] += sum_of(rows.top[r].insert(candidates, base));
    }
    rows.largest[r] = largest;
    return {mine, other};
  }

  const regard_call &call_;
  const ProbePlan plan_;
  const Adjustment adjustment_;
  int64_t group_, rows_, units_, dim_, value_dim_, tiles_, segments_;
  int threads_;
  float *sums_ = nullptr, *top_scores_ = nullptr, *strip_ = nullptr, *bases_ = nullptr;
  int32_t *top_keys_ = nullptr;
  std::vector<RowStatistics> statistics_;
};

}  // namespace

bool is_decoding(const regard_call &call) {
  return call.num_heads / call.num_kv_heads * call.q_len <= kMostRows && call.kv_len >= kFewestKeys;
}

void decode(const regard_call &call) { Decode(call).run(); }

}  // namespace regard
