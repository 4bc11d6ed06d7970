// Output, lse and probes of a call.
#include <cmath>
#include <new>

#include "decode.h"
#include "memory.h"
#include "probes.h"
#include "threads.h"

namespace regard {

std::atomic<bool> g_forked{false};

namespace {

constexpr double kSmallWork = 2e6;                  // multiply-adds below which one thread is faster than two
constexpr int64_t kLargestStrip = int64_t{1} << 21;  // floats (8 MiB) a thread's strip may take

template <typename Element>
struct Workspace {
  Element *queries, *panels, *values;
  bfloat16 *weights;  // of a tile, where elements are pairs
  float *sums, *scores, *bases, *top_scores;
  int32_t *top_keys;
  double *columns;
};

// One forward call: what is decided once for all blocks. Products are of floats, or of pairs of bfloat16.
template <typename Element>
class Forward {
  static constexpr bool kPairs = std::is_same_v<Element, bfloat16_pair>;

 public:
  explicit Forward(const regard_call &call)
      : call_(call), plan_(call), adjustment_(call), layout_(call, block_rows(call, plan_)) {
    wants_output_ = call.value.data != nullptr && call.output.data != nullptr;
    dim_ = padded_elements<Element>(call.head_dim);
    value_dim_ = wants_output_ ? padded_value_dim(call) : 0;
    tiles_ = plan_.strip ? call.kv_len / kTile + 2 : 1;
    const double work = double(call.batch) * call.num_heads * call.q_len * call.kv_len * (dim_ + value_dim_);
    const int threads = work < kSmallWork ? 1 : call.threads;
    const int64_t wanted = int64_t{plan_.columns ? 4 : 16} * threads;
    parts_ = threads == 1 ? 1 : std::clamp<int64_t>((wanted + layout_.units - 1) / layout_.units, 1, layout_.blocks);
    if (layout_.heads_together > 1 && plan_.columns) parts_ = 1;
    packs_inside_ = parts_ == 1 && layout_.heads_together == layout_.group;
    threads_ = usable_threads(threads, layout_.units * parts_);
  }

  void run() {
    const int64_t kv_units = call_.batch * call_.num_kv_heads;
    const int64_t shared = packs_inside_ ? 0 : kv_units;
    Lease packed(Lease::padded<Element>(shared * panels_size()) + Lease::padded<Element>(shared * values_size()));
    panels_ = packed.array<Element>(shared * panels_size());
    values_ = packed.array<Element>(shared * values_size());
    if (!packs_inside_) pack_ahead();

    find_column_places();
    const int64_t column_doubles = parts_ == 1 ? threads_ * largest_part_ : total_parts_;
    Lease columns(Lease::padded<double>(column_doubles));
    columns_ = columns.array<double>(column_doubles);

    const std::size_t each = workspace_bytes();
    Lease memory(each * threads_);
    std::vector<Workspace<Element>> spaces(threads_);
    for (Workspace<Element> &space : spaces) space = cut(memory);
    clear_columns(call_);

    std::atomic<bool> failed{false};
    const int64_t tasks = layout_.units * parts_;
    parallel_for(tasks, threads_, [&](int64_t task, int thread) {
      try {
        // Late rows of a causal call see most keys: they come first.
        part(task / parts_, parts_ - 1 - task % parts_, thread, spaces[thread]);
      } catch (const std::bad_alloc &) {
        failed = true;
      }
    });
    if (failed) throw std::bad_alloc();
    if (plan_.columns && parts_ > 1)
      parallel_for(layout_.units, threads_, [&](int64_t unit, int) {
        for (int64_t p = 0; p < parts_; p++) flush_part(unit, p);
      });
  }

 private:
  // Fewer rows where the strip of a whole block would be too large.
  static int64_t block_rows(const regard_call &call, const ProbePlan &plan) {
    if (!plan.strip) return kBlock;
    return std::clamp<int64_t>(kLargestStrip / std::max<int64_t>(call.kv_len, 1) / kRows * kRows, kRows, kBlock);
  }

  // Values are read where they are if they are floats in whole vectors.
  bool copies_values() const {
    return wants_output_ && (kPairs || call_.dtype != REGARD_FLOAT32 || call_.value_dim % kLanes != 0);
  }

  int64_t panels_size() const { return panel_size(call_.kv_len, dim_); }
  int64_t values_size() const {
    return copies_values() ? elements_of<Element>(padded_keys<Element>(call_.kv_len)) * value_dim_ : 0;
  }

  int64_t first_row(int64_t part) const {
    return std::min(layout_.rows, part * layout_.blocks / parts_ * layout_.block_rows);
  }

  std::size_t workspace_bytes() const {
    std::size_t bytes = Lease::padded<Element>(kBlock * dim_) + Lease::padded<float>(kBlock * value_dim_) +
                        Lease::padded<float>(tiles_ * kBlock * kTileRow) + Lease::padded<float>(tiles_ * kBlock) +
                        Lease::padded<bfloat16>(kPairs ? kBlock * kTileRow : 0);
    bytes += Lease::padded<float>(top_lanes()) + Lease::padded<int32_t>(top_lanes());
    if (packs_inside_) bytes += Lease::padded<Element>(panels_size()) + Lease::padded<Element>(values_size());
    return bytes;
  }

  int64_t top_lanes() const { return int64_t{kBlock} * TopList::lanes(plan_.gathered.k); }

  Workspace<Element> cut(Lease &memory) const {
    Workspace<Element> space{};
    space.queries = memory.array<Element>(kBlock * dim_);
    space.sums = memory.array<float>(kBlock * value_dim_);
    space.scores = memory.array<float>(tiles_ * kBlock * kTileRow);
    space.bases = memory.array<float>(tiles_ * kBlock);
    space.weights = memory.array<bfloat16>(kPairs ? kBlock * kTileRow : 0);
    space.top_scores = memory.array<float>(top_lanes());
    space.top_keys = memory.array<int32_t>(top_lanes());
    if (packs_inside_) {
      space.panels = memory.array<Element>(panels_size());
      space.values = memory.array<Element>(values_size());
    }
    return space;
  }

  void pack_ahead() {
    const int64_t panels = panels_of(call_.kv_len), step = std::max<int64_t>(1, 1024 / kPanel);
    const int64_t steps = (panels + step - 1) / step, kv_units = call_.batch * call_.num_kv_heads;
    parallel_for(kv_units * steps, usable_threads(threads_, kv_units * steps), [&](int64_t task, int) {
      const int64_t unit = task / steps, first = task % steps * step, end = std::min(panels, first + step);
      const int64_t batch = unit / call_.num_kv_heads, head = unit % call_.num_kv_heads;
      pack_keys(call_, batch, head, first, end, panels_ + unit * panels_size());
      if (copies_values())
        pack_values(call_, batch, head, first * kPanel, std::min(call_.kv_len, end * kPanel),
                    values_ + unit * values_size());
    });
  }

  // Where the column sums of each part lie: one place per thread while units are whole, else one per part.
  void find_column_places() {
    if (!plan_.columns) return;
    for (int64_t unit = 0; unit < layout_.units; unit++)
      for (int64_t p = 0; p < parts_; p++) {
        const int64_t size = plan_.column_size(layout_.unit(call_, unit), first_row(p), first_row(p + 1));
        places_.push_back(total_parts_);
        total_parts_ += size;
        largest_part_ = std::max(largest_part_, size);
      }
  }

  double *column_place(int64_t unit, int64_t part, int thread) const {
    return parts_ == 1 ? columns_ + thread * largest_part_ : columns_ + places_[unit * parts_ + part];
  }

  void part(int64_t index, int64_t number, int thread, const Workspace<Element> &space) {
    [[maybe_unused]] const std::conditional_t<on_matrix_unit<Element>, MatrixUnit, std::nullptr_t> unit_shapes{};
    const Unit unit = layout_.unit(call_, index);
    const int64_t kv_unit = unit.batch * call_.num_kv_heads + unit.kv_head;
    const Element *panels = packs_inside_ ? space.panels : panels_ + kv_unit * panels_size();
    Values values{packs_inside_ ? space.values : values_ + kv_unit * values_size(), value_dim_};
    if (packs_inside_) {
      pack_keys(call_, unit.batch, unit.kv_head, 0, panels_of(call_.kv_len), space.panels);
      if (copies_values()) pack_values(call_, unit.batch, unit.kv_head, 0, call_.kv_len, space.values);
    }
    if (wants_output_ && !copies_values())
      values = {row_of<Element>(call_.value, unit.batch, unit.kv_head, 0), call_.value.row};
    const int64_t first = first_row(number), end = first_row(number + 1);
    if (!plan_.columns) {
      for (int64_t row = first; row < end; row += layout_.block_rows)
        block(Block(call_, unit, row, std::min(end, row + layout_.block_rows)), panels, values, space, nullptr);
      return;
    }
    ColumnSums sums(plan_, unit, first, end, column_place(index, number, thread));
    sums.clear();
    for (int64_t row = first; row < end; row += layout_.block_rows)
      block(Block(call_, unit, row, std::min(end, row + layout_.block_rows)), panels, values, space, &sums);
    if (parts_ == 1) sums.flush();
  }

  void flush_part(int64_t index, int64_t number) const {
    const Unit unit = layout_.unit(call_, index);
    ColumnSums(plan_, unit, first_row(number), first_row(number + 1), column_place(index, number, 0)).flush();
  }

  // Rows of values, from the first key on: data[key / kValues · row + …].
  struct Values {
    const Element *data;
    int64_t row;
  };

  void block(const Block &block, const Element *panels, const Values &values, const Workspace<Element> &space,
             ColumnSums *columns) const {
    RowStatistics rows;
    rows.begin(block.rows, plan_.gathered.k, space.top_scores, space.top_keys);
    std::fill(space.sums, space.sums + block.rows * value_dim_, 0.f);
    if constexpr (kPairs) {
      pack_queries(block, space.queries);
    } else {
      pack_queries(block, call_.query, dim_, dim_, call_.scale, space.queries);
    }
    Strip strip{space.scores, space.bases, kBlock, 0, {block.first_key, block.end_key}};
    const bool masked = call_.mask.low != nullptr || call_.mask.tiles != nullptr;
    vfloat largest[kBlock];
    for (int64_t key = block.first_key; key < block.end_key; key = tile_start_after(key), strip.tiles++) {
      const int64_t keys = std::min(tile_start_after(key), block.end_key) - key;
      const int64_t width = round_up(keys, kKeysTogether<Element>);
      float *scores = strip.tile(plan_.strip ? strip.tiles : 0);
      float *bases = strip.tile_bases(plan_.strip ? strip.tiles : 0);
      if (masked && !block.sees_any(key, key + keys)) {
        std::fill(bases, bases + block.rows, kMasked);
        continue;
      }
      tile_scores(block, adjustment_, space.queries, dim_, panels, key, width, scores, largest, rows.scale);
      if constexpr (!kPairs)
        soften_tile(block, plan_.gathered, key, width, largest, scores, rows);
      else if (plan_.strip)
        soften_tile<Into::kBoth>(block, plan_.gathered, key, width, largest, scores, rows, space.weights);
      else
        soften_tile<Into::kPairs>(block, plan_.gathered, key, width, largest, scores, rows, space.weights);
      std::copy(rows.largest, rows.largest + block.rows, bases);
      if (!wants_output_) continue;
      const Element *weights = kPairs ? reinterpret_cast<const Element *>(space.weights)
                                      : reinterpret_cast<const Element *>(scores);
      accumulate_product(weights, kTileRow / kValues<Element>, 1, values.data + key / kValues<Element> * values.row,
                         values.row, elements_of<Element>(keys), space.sums, value_dim_, block.rows, value_dim_,
                         rows.factor);
    }
    rows.end(block.rows);
    finish_block(plan_, block, rows, space.sums, value_dim_, plan_.strip ? &strip : nullptr, columns);
  }

  const regard_call &call_;
  const ProbePlan plan_;
  const Adjustment adjustment_;
  const Layout layout_;
  bool wants_output_, packs_inside_;
  int threads_;
  int64_t dim_, value_dim_, tiles_, parts_;
  Element *panels_ = nullptr, *values_ = nullptr;
  double *columns_ = nullptr;
  std::vector<int64_t> places_;
  int64_t total_parts_ = 0, largest_part_ = 0;
};

void forward(const regard_call &call) {
  if constexpr (kPairProducts)
    if (call.dtype == REGARD_BFLOAT16 && call.scale > 0) return Forward<bfloat16_pair>(call).run();
  Forward<float>(call).run();
}

}  // namespace
}  // namespace regard

int32_t regard_forward(const regard_call *call) {
  try {
    if (regard::is_decoding(*call))
      regard::decode(*call);
    else
      regard::forward(*call);
  } catch (const std::bad_alloc &) {
    return REGARD_OUT_OF_MEMORY;
  }
  return REGARD_OK;
}
