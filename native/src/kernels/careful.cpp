// Rows in which NaN or Inf is about, straight from the definitions: only keys the row may see have a say.
#include <algorithm>
#include <cmath>

#include "probes.h"

namespace regard {

namespace {

// The weights of one row with all its keys in view, NaN ordered above every number.
struct CarefulRow {
  const Block &block;
  int r;
  const std::vector<float> &weights;
  const std::vector<float> &scores;
  const std::vector<int32_t> &keys;  // those the row may see

  double mass(int64_t from, int64_t to) const {
    double total = 0;
    for (std::size_t n = 0; n < keys.size(); n++)
      if (keys[n] >= from && keys[n] < to) total += weights[n];
    return total;
  }

  void write_top(const regard_probe &probe) const {
    const int64_t at = block.row_index(r), k = probe.size;
    std::vector<std::size_t> order(keys.size());
    for (std::size_t n = 0; n < order.size(); n++) order[n] = n;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const bool a_nan = std::isnan(scores[a]), b_nan = std::isnan(scores[b]);
      return a_nan != b_nan ? a_nan : scores[a] > scores[b];
    });
    double rest = 0;
    for (std::size_t n = k; n < order.size(); n++) rest += weights[order[n]];
    for (int64_t n = 0; n < k; n++) {
      const bool present = n < static_cast<int64_t>(order.size()) && scores[order[n]] != kMasked;
      static_cast<float *>(probe.out)[at * k + n] = present ? weights[order[n]] : 0.f;
      probe.keys[at * k + n] = present ? keys[order[n]] + block.call.kv_start : -1;
    }
    probe.rest[at] = static_cast<float>(rest);
  }
};

// A row of a tensor as floats.
void read_row(const regard_call &call, const regard_tensor &tensor, int64_t batch, int64_t head, int64_t row,
              std::vector<float> &out, int64_t count) {
  out.resize(round_up(count, kLanes));
  by_dtype(call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    pack_rows(row_of<T>(tensor, batch, head, row), 0, 1, count, static_cast<int64_t>(out.size()), 1.f, out.data());
  });
}

// Scores of the keys a row may see.
void careful_scores(const Block &block, int r, std::vector<float> &scores, std::vector<int32_t> &keys) {
  const regard_call &call = block.call;
  const Adjustment adjustment(call);
  const BiasRow bias(block, r);
  std::vector<float> query, key;
  read_row(call, call.query, block.batch, block.head[r], block.query[r], query, call.head_dim);
  for (float &x : query) x *= call.scale;
  for (int64_t j = block.low[r]; j < block.high[r]; j++) {
    if (!(block.word(r, j / REGARD_TILE_KEYS * REGARD_TILE_KEYS) >> (j % REGARD_TILE_KEYS) & 1)) continue;
    read_row(call, call.key, block.batch, block.kv_head, j, key, call.head_dim);
    float score = 0;
    for (int64_t d = 0; d < call.head_dim; d++) score += query[d] * key[d];
    if (adjustment.caps) score = call.softcap * std::tanh(score / call.softcap);
    if (adjustment.biased) {
      const float added = bias.at(j)[0];
      if (added <= call.bias.blocked) continue;
      score += added;
    }
    if (adjustment.slopes)
      score -= call.bias.slopes[block.head[r]] *
               std::abs(static_cast<float>(block.position[r] - call.kv_start - j));
    scores.push_back(score);
    keys.push_back(static_cast<int32_t>(j));
  }
}

void careful_output(const Block &block, const std::vector<float> &weights, const std::vector<int32_t> &keys,
                    float *output) {
  const regard_call &call = block.call;
  std::vector<double> sums(call.value_dim, 0.);
  std::vector<float> value;
  for (std::size_t n = 0; n < keys.size(); n++) {
    read_row(call, call.value, block.batch, block.kv_head, keys[n], value, call.value_dim);
    for (int64_t d = 0; d < call.value_dim; d++) sums[d] += double{weights[n]} * value[d];
  }
  std::copy(sums.begin(), sums.end(), output);
}

}  // namespace

void careful_row(const ProbePlan &plan, const Block &block, int r, ColumnSums *columns, float *output) {
  const regard_call &call = plan.call;
  std::vector<float> scores, weights;
  std::vector<int32_t> keys;
  careful_scores(block, r, scores, keys);
  float largest = kMasked;
  for (float score : scores) largest = std::max(largest, score);
  // Where all scores are −inf there is still the sink to count from, if there is one.
  const float base = largest == kMasked ? end_row(block, r, kMasked, 0.f).lse : largest;
  double sum = 0;  // in floats, thousands of small weights would be rounded away one by one
  for (float score : scores) {
    weights.push_back(std::exp(score - base));
    sum += weights.back();
  }
  RowEnd end = keys.empty() ? end_row(block, r, kMasked, 0.f) : end_row(block, r, largest, static_cast<float>(sum));
  if (!keys.empty() && !std::isfinite(sum)) end.scale = std::numeric_limits<float>::quiet_NaN();
  for (float &weight : weights) weight *= end.scale;
  if (call.lse != nullptr)
    call.lse[block.row_index(r)] = keys.empty() ? end.lse : static_cast<float>(sum * 0 + end.lse);
  if (output != nullptr) careful_output(block, weights, keys, output);
  const CarefulRow row{block, r, weights, scores, keys};
  const int64_t at = block.row_index(r), first = call.kv_start;
  for (int64_t i = 0; i < call.num_probes; i++) {
    const regard_probe &probe = call.probes[i];
    float *out = static_cast<float *>(probe.out);
    double total = 0;
    switch (probe.kind) {
      case REGARD_ENTROPY:
        for (float w : weights) total -= w == 0 ? 0. : w * std::log(static_cast<double>(w));
        out[at] = static_cast<float>(total);
        break;
      case REGARD_DISTANCE:
        for (std::size_t n = 0; n < keys.size(); n++)
          total += weights[n] * std::abs(static_cast<double>(block.position[r] - first - keys[n]));
        out[at] = static_cast<float>(total);
        break;
      case REGARD_SINK_SHARE:
        out[at] = call.sinks == nullptr || keys.empty() ? end.sink : static_cast<float>(end.sink + sum * 0);
        break;
      case REGARD_TOP_K: row.write_top(probe); break;
      case REGARD_FIRST_KEYS: out[at] = static_cast<float>(row.mass(0, probe.size - first)); break;
      case REGARD_OFFSETS:
        for (int64_t n = 0; n < probe.size; n++) {
          const int64_t key = block.position[r] + probe.list[n] - first;
          out[at * probe.size + n] = static_cast<float>(row.mass(key, key + 1));
        }
        break;
      case REGARD_SPANS:
        for (int64_t n = 0; n < probe.size; n++)
          out[at * probe.size + n] =
              static_cast<float>(row.mass(probe.list[2 * n] - first, probe.list[2 * n + 1] - first));
        break;
      case REGARD_WEIGHTS:
        if (float *to = weights_row(plan, i, block, r)) {
          std::fill(to, to + call.kv_len, 0.f);
          for (std::size_t n = 0; n < keys.size(); n++) to[keys[n]] = weights[n];
        }
        break;
      default: break;
    }
  }
  if (columns != nullptr)
    for (std::size_t n = 0; n < keys.size(); n++) columns->add_one(block, r, keys[n], weights[n]);
}

}  // namespace regard
