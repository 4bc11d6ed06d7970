#include "probes.h"

#include <cmath>

namespace regard {

namespace {

bool is_column(const regard_probe &probe) { return probe.kind == REGARD_KEY_MASS || probe.kind == REGARD_HEAT_MAP; }

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Σ of weights[from, to).
float range_sum(const float *weights, int64_t from, int64_t to) {
  vfloat sum{};
  for (; from + kLanes <= to; from += kLanes) sum += load(weights + from);
  float total = sum_of(sum);
  for (; from < to; from++) total += weights[from];
  return total;
}

// Reads the weights of one row out of the strip.
class StripRow {
 public:
  StripRow(const Strip &strip, int r, const RowEnd &end, float largest)
      : strip_(strip), row_(r), scale_(end.scale), base_(base_of(largest)) {}

  // What the exponentials of a tile are multiplied by. Where it is 0 the tile may never have been written.
  float factor(int64_t tile) const { return tile_factor(strip_.tile_bases(tile)[row_], base_, scale_); }

  static float tile_factor(float tile_largest, float base, float scale) {
    return tile_largest == kMasked ? 0.f : scale * exp_of(tile_largest - base);
  }

  float weight(int64_t key) const {
    if (key < strip_.keys[0] || key >= strip_.keys[1]) return 0.f;
    const int64_t tile = strip_.tile_of(key);
    const float scale = factor(tile);
    return scale == 0 ? 0.f : scale * strip_.tile(tile)[row_ * kTileRow + key - strip_.tile_key(tile)];
  }

  float mass(int64_t from, int64_t to) const {
    from = std::max(from, strip_.keys[0]);
    to = std::min(to, strip_.keys[1]);
    float total = 0;
    for (int64_t tile = from < to ? strip_.tile_of(from) : strip_.tiles; tile < strip_.tiles; tile++) {
      const int64_t key = strip_.tile_key(tile), end = strip_.tile_end(tile);
      if (key >= to) break;
      const float scale = factor(tile);
      if (scale == 0) continue;
      const float *weights = strip_.tile(tile) + row_ * kTileRow;
      total += scale * range_sum(weights, std::max(from, key) - key, std::min(to, end) - key);
    }
    return total;
  }

  // All weights of the row, 0 outside the strip.
  void write(int64_t kv_len, float *out) const {
    std::fill(out, out + kv_len, 0.f);
    for (int64_t tile = 0; tile < strip_.tiles; tile++) {
      const int64_t key = strip_.tile_key(tile), end = std::min(strip_.tile_end(tile), kv_len);
      const float scale = factor(tile);
      if (scale == 0) continue;
      const float *weights = strip_.tile(tile) + row_ * kTileRow;
      for (int64_t j = key; j < end; j++) out[j] = scale * weights[j - key];
    }
  }

 private:
  const Strip &strip_;
  int row_;
  float scale_, base_;
};

}  // namespace

RowEnd end_row(const Block &block, int r, float largest, float sum) {
  const regard_call &call = block.call;
  double top = largest, total = sum, sink = -std::numeric_limits<double>::infinity();
  if (call.sinks != nullptr)
    sink = call.sinks[block.batch * call.sinks_batch + block.head[r] * call.sinks_head +
                      block.query[r] * call.sinks_row];
  const bool empty = largest == kMasked && sum == 0.f;
  if (empty) top = sink;
  const double peak = std::max(top, sink);
  if (empty && sink == -std::numeric_limits<double>::infinity()) return {kMasked, 0.f, 0.f, true};
  const double sink_part = sink == peak ? 1. : std::exp(sink - peak);
  const double keys_part = empty ? 0. : total * std::exp(top - peak);
  const double denominator = keys_part + (call.sinks != nullptr ? sink_part : 0.);
  const double lse = peak + std::log(denominator);
  RowEnd end;
  end.lse = static_cast<float>(lse);
  end.scale = empty ? 0.f : static_cast<float>(std::exp(top - peak) / denominator);
  end.sink = call.sinks != nullptr ? static_cast<float>(sink_part / denominator) : 0.f;
  end.regular = std::isfinite(sum) && std::isfinite(lse);
  return end;
}

// --- The plan -----------------------------------------------------------------------------------------------------------

ProbePlan::ProbePlan(const regard_call &call) : call(call) {
  for (int64_t i = 0; i < call.num_probes; i++) {
    const regard_probe &probe = call.probes[i];
    switch (probe.kind) {
      case REGARD_ENTROPY: gathered.entropy = true; break;
      case REGARD_DISTANCE: gathered.distance = true; break;
      case REGARD_TOP_K: gathered.k = std::max(gathered.k, static_cast<int>(probe.size)); break;
      case REGARD_SINK_SHARE: break;
      default: strip = true;
    }
    columns = columns || is_column(probe);
    std::vector<int64_t> place;
    if (probe.kind == REGARD_WEIGHTS) {
      place.assign(call.q_len, -1);
      for (int64_t n = 0; n < probe.size; n++) place[probe.list[n]] = n;
    }
    places.push_back(std::move(place));
    std::vector<int64_t> edges;
    if (probe.kind == REGARD_HEAT_MAP)
      for (int64_t bin = 0; bin <= probe.size2; bin++) edges.push_back(key_edge(probe, bin));
    key_edges.push_back(std::move(edges));
  }
}

int64_t ProbePlan::query_bin(const regard_probe &map, int64_t batch, int64_t query) const {
  if (map.length == 0) return query * map.size / call.q_len;
  return floor_divide(query_position(call, batch, query) * map.size, map.length);
}

int64_t ProbePlan::key_edge(const regard_probe &map, int64_t bin) const {
  const int64_t length = map.length == 0 ? call.kv_len : map.length;
  const int64_t before = map.length == 0 ? 0 : call.kv_start;
  return (bin * length + map.size2 - 1) / map.size2 - before;
}

namespace {

// Lowest and highest bin of the queries of rows [first, end) of a unit.
void bins_of(const ProbePlan &plan, const regard_probe &map, const Unit &unit, int64_t first_row, int64_t end_row,
             int64_t &lowest, int64_t &highest) {
  lowest = map.size;
  highest = -1;
  for (int64_t row = first_row; row < end_row; row++) {
    const int64_t bin = plan.query_bin(map, unit.batch, row % plan.call.q_len);
    lowest = std::min(lowest, bin);
    highest = std::max(highest, bin);
  }
}

}  // namespace

int64_t ProbePlan::column_size(const Unit &unit, int64_t first_row, int64_t end_row) const {
  int64_t size = 0;
  for (int64_t i = 0; i < call.num_probes; i++) {
    const regard_probe &probe = call.probes[i];
    if (probe.kind == REGARD_KEY_MASS) size += unit.heads * call.kv_len;
    if (probe.kind == REGARD_HEAT_MAP) {
      int64_t lowest, highest;
      bins_of(*this, probe, unit, first_row, end_row, lowest, highest);
      size += unit.heads * std::max<int64_t>(0, highest - lowest + 1) * probe.size2;
    }
  }
  return size;
}

// --- Sums over queries --------------------------------------------------------------------------------------------------

ColumnSums::ColumnSums(const ProbePlan &plan, const Unit &unit, int64_t first_row, int64_t end_row, double *sums)
    : plan_(plan), unit_(unit) {
  for (int64_t i = 0; i < plan.call.num_probes; i++) {
    const regard_probe &probe = plan.call.probes[i];
    if (!is_column(probe)) continue;
    Part part{&probe, plan.key_edges[i].data(), 0, 1, sums};
    if (probe.kind == REGARD_HEAT_MAP) {
      int64_t highest;
      bins_of(plan, probe, unit, first_row, end_row, part.first_bin, highest);
      part.bins = std::max<int64_t>(0, highest - part.first_bin + 1);
    }
    sums += unit.heads * part.bins * columns(part);
    parts_.push_back(part);
  }
}

void ColumnSums::clear() {
  for (const Part &part : parts_) std::fill(part.sums, part.sums + unit_.heads * part.bins * columns(part), 0.);
}

int64_t ColumnSums::columns(const Part &part) const {
  return part.probe->kind == REGARD_KEY_MASS ? plan_.call.kv_len : part.probe->size2;
}

void ColumnSums::add(const Block &block, const Strip &strip, const RowEnd *ends, const RowStatistics &rows) {
  // Runs of regular rows that agree in head and in every bin are added up together.
  auto same = [&](int a, int b) {
    if (block.head[a] != block.head[b] || !ends[b].regular) return false;
    for (const Part &part : parts_)
      if (part.probe->kind == REGARD_HEAT_MAP && plan_.query_bin(*part.probe, block.batch, block.query[a]) !=
                                                     plan_.query_bin(*part.probe, block.batch, block.query[b]))
        return false;
    return true;
  };
  for (int from = 0; from < block.rows;) {
    if (!ends[from].regular) {
      from++;
      continue;
    }
    int to = from + 1;
    while (to < block.rows && same(from, to)) to++;
    add_segment(block, strip, ends, rows, from, to);
    from = to;
  }
}

void ColumnSums::add_segment(const Block &block, const Strip &strip, const RowEnd *ends, const RowStatistics &rows,
                             int from, int to) {
  alignas(64) float key_sums[kTile];
  const int64_t head = block.head[from] - unit_.first_head;
  for (int64_t t = 0; t < strip.tiles; t++) {
    const int64_t key = strip.tile_key(t);
    const int64_t width = std::min(strip.tile_end(t), plan_.call.kv_len) - key;
    float factors[kBlock];
    bool any = false;
    for (int r = from; r < to; r++) {
      factors[r] = StripRow::tile_factor(strip.tile_bases(t)[r], base_of(rows.largest[r]), ends[r].scale);
      any = any || factors[r] != 0;
    }
    if (!any) continue;
    const float *tile = strip.tile(t);
    for (int64_t j = 0; j < width; j += kPanel) {
      vfloat sums[kVectors] = {};
      for (int r = from; r < to; r++) {
        const vfloat factor = broadcast(factors[r]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) sums[v] += factor * load(tile + r * kTileRow + j + v * kLanes);
      }
      for (int v = 0; v < kVectors; v++) store(key_sums + j + v * kLanes, sums[v]);
    }
    for (const Part &part : parts_) {
      if (part.probe->kind == REGARD_KEY_MASS) {
        double *sums = part.sums + head * plan_.call.kv_len + key;
        for (int64_t j = 0; j < width; j++) sums[j] += key_sums[j];
      } else {
        const int64_t bin = plan_.query_bin(*part.probe, block.batch, block.query[from]) - part.first_bin;
        add_to_map(part, part.sums + (head * part.bins + bin) * part.probe->size2, key, width, key_sums);
      }
    }
  }
}

void ColumnSums::add_to_map(const Part &part, double *row, int64_t key, int64_t width, const float *sums) const {
  const regard_probe &map = *part.probe;
  const int64_t length = map.length == 0 ? plan_.call.kv_len : map.length;
  const int64_t before = map.length == 0 ? 0 : plan_.call.kv_start;
  int64_t bin = std::clamp<int64_t>(floor_divide((key + before) * map.size2, length), 0, map.size2 - 1);
  for (int64_t j = 0; j < width;) {
    const int64_t edge = part.key_edges[bin + 1] - key;
    if (edge <= j) {
      if (++bin >= map.size2) return;
      continue;
    }
    const int64_t end = std::min(edge, width);
    float sum = 0;
    for (; j < end; j++) sum += sums[j];
    row[bin] += sum;
  }
}

void ColumnSums::add_one(const Block &block, int r, int64_t key, double weight) {
  const int64_t head = block.head[r] - unit_.first_head;
  for (const Part &part : parts_) {
    if (part.probe->kind == REGARD_KEY_MASS) {
      part.sums[head * plan_.call.kv_len + key] += weight;
      continue;
    }
    const regard_probe &map = *part.probe;
    const int64_t length = map.length == 0 ? plan_.call.kv_len : map.length;
    const int64_t place = map.length == 0 ? key : key + plan_.call.kv_start;
    const int64_t column = floor_divide(place * map.size2, length);
    const int64_t bin = plan_.query_bin(map, block.batch, block.query[r]) - part.first_bin;
    if (column >= 0 && column < map.size2) part.sums[(head * part.bins + bin) * map.size2 + column] += weight;
  }
}

void ColumnSums::flush() const {
  const regard_call &call = plan_.call;
  for (const Part &part : parts_) {
    const int64_t width = columns(part), rows = part.probe->kind == REGARD_KEY_MASS ? 1 : part.probe->size;
    for (int64_t h = 0; h < unit_.heads; h++)
      for (int64_t bin = 0; bin < part.bins; bin++) {
        const int64_t head = unit_.batch * call.num_heads + unit_.first_head + h;
        double *out = static_cast<double *>(part.probe->out) + (head * rows + part.first_bin + bin) * width;
        const double *from = part.sums + (h * part.bins + bin) * width;
        for (int64_t j = 0; j < width; j++) out[j] += from[j];
      }
  }
}

// --- Rows ---------------------------------------------------------------------------------------------------------------

namespace {

void write_top(const regard_probe &probe, const Block &block, int r, const RowEnd &end, RowStatistics &rows) {
  const int64_t k = probe.size, at = block.row_index(r);
  const float base = base_of(rows.largest[r]);
  float *weights = static_cast<float *>(probe.out) + at * k;
  int64_t *keys = probe.keys + at * k;
  const TopList &top = rows.top[r];
  float rest = rows.rest[r];
  for (int n = 0; n < top.k(); n++) {
    const float e = top.keys()[n] < 0 ? 0.f : exp_of(top.scores()[n] - base);
    if (n < k) {
      weights[n] = e * end.scale;
      keys[n] = top.keys()[n] < 0 ? -1 : top.keys()[n] + block.call.kv_start;
    } else {
      rest += e;
    }
  }
  probe.rest[at] = rest * end.scale;
}

void write_spans(const regard_probe &probe, const Block &block, int r, const StripRow &row) {
  float *out = static_cast<float *>(probe.out) + block.row_index(r) * probe.size;
  const int64_t first = block.call.kv_start;
  for (int64_t s = 0; s < probe.size; s++) out[s] = row.mass(probe.list[2 * s] - first, probe.list[2 * s + 1] - first);
}

void write_offsets(const regard_probe &probe, const Block &block, int r, const StripRow &row) {
  float *out = static_cast<float *>(probe.out) + block.row_index(r) * probe.size;
  for (int64_t n = 0; n < probe.size; n++)
    out[n] = row.weight(block.position[r] + probe.list[n] - block.call.kv_start);
}

}  // namespace

float *weights_row(const ProbePlan &plan, int64_t number, const Block &block, int r) {
  const regard_probe &probe = plan.call.probes[number];
  const int64_t place = plan.places[number][block.query[r]];
  if (place < 0) return nullptr;
  const int64_t head = block.batch * plan.call.num_heads + block.head[r];
  return static_cast<float *>(probe.out) + (head * probe.size + place) * plan.call.kv_len;
}

void write_rows(const ProbePlan &plan, const Block &block, const RowEnd *ends, RowStatistics &rows,
                const Strip *strip) {
  const Strip nothing{nullptr, nullptr, 0, 0, {0, 0}};
  for (int r = 0; r < block.rows; r++) {
    const RowEnd &end = ends[r];
    if (!end.regular) continue;
    const int64_t at = block.row_index(r);
    const StripRow row(strip == nullptr ? nothing : *strip, r, end, rows.largest[r]);
    for (int64_t i = 0; i < plan.call.num_probes; i++) {
      const regard_probe &probe = plan.call.probes[i];
      float *out = static_cast<float *>(probe.out);
      switch (probe.kind) {
        case REGARD_ENTROPY: {
          const float log_scale = end.scale > 0 ? std::log(end.scale) : 0.f;
          const float entropy = -end.scale * (rows.entropy[r] + log_scale * rows.sum[r]);
          out[at] = std::max(entropy, 0.f);
          break;
        }
        case REGARD_DISTANCE: out[at] = rows.distance[r] * end.scale; break;
        case REGARD_SINK_SHARE: out[at] = end.sink; break;
        case REGARD_TOP_K: write_top(probe, block, r, end, rows); break;
        case REGARD_FIRST_KEYS: out[at] = row.mass(0, probe.size - plan.call.kv_start); break;
        case REGARD_OFFSETS: write_offsets(probe, block, r, row); break;
        case REGARD_SPANS: write_spans(probe, block, r, row); break;
        case REGARD_WEIGHTS:
          if (float *to = weights_row(plan, i, block, r)) row.write(plan.call.kv_len, to);
          break;
        default: break;
      }
    }
  }
}

// --- The end of a block ---------------------------------------------------------------------------------------------------

namespace {

void write_output(const Block &block, const float *sums, int64_t value_dim) {
  by_dtype(block.call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    for (int r = 0; r < block.rows; r++) {
      T *out = const_cast<T *>(row_of<T>(block.call.output, block.batch, block.head[r], block.query[r]));
      for (int64_t d = 0; d < block.call.value_dim; d += kLanes)
        store_first(out + d, load(sums + r * value_dim + d), block.call.value_dim - d);
    }
  });
}

// Multiplies a row and says whether all of it is finite.
bool scale_row(float *sums, int64_t value_dim, float scale) {
  vfloat zero{};
  for (int64_t d = 0; d < value_dim; d += kLanes) {
    const vfloat x = scale * load(sums + d);
    zero += x * 0.f;
    store(sums + d, x);
  }
  return sum_of(zero) == 0.f;
}

}  // namespace

void finish_block(const ProbePlan &plan, const Block &block, RowStatistics &rows, float *sums, int64_t value_dim,
                  const Strip *strip, ColumnSums *columns) {
  const regard_call &call = block.call;
  RowEnd ends[kBlock];
  for (int r = 0; r < block.rows; r++) {
    ends[r] = end_row(block, r, rows.largest[r], rows.sum[r]);
    // Keys in range, yet nothing but −inf: either all are masked, or the scores themselves overflowed.
    if (rows.largest[r] == kMasked && block.low[r] < block.high[r]) ends[r].regular = false;
    const bool finite = scale_row(sums + r * value_dim, value_dim, ends[r].scale);
    if (call.lse != nullptr) call.lse[block.row_index(r)] = ends[r].lse;
    // A weight of 0 times NaN behind the mask, or behind a bias of −inf, is NaN: such a row is done again, without the
    // keys it may not see.
    const bool hides = call.bias.data != nullptr || !block.sees_all(r, 0, call.kv_len);
    if (!ends[r].regular || (!finite && hides))
      careful_row(plan, block, r, ends[r].regular ? nullptr : columns, value_dim > 0 ? sums + r * value_dim : nullptr);
  }
  write_rows(plan, block, ends, rows, strip);
  if (columns != nullptr) columns->add(block, *strip, ends, rows);
  if (value_dim > 0) write_output(block, sums, value_dim);
}

void clear_columns(const regard_call &call) {
  const int64_t heads = call.batch * call.num_heads;
  for (int64_t i = 0; i < call.num_probes; i++) {
    const regard_probe &probe = call.probes[i];
    double *out = static_cast<double *>(probe.out);
    if (probe.kind == REGARD_KEY_MASS) std::fill(out, out + heads * call.kv_len, 0.);
    if (probe.kind == REGARD_HEAT_MAP) std::fill(out, out + heads * probe.size * probe.size2, 0.);
  }
}

}  // namespace regard
