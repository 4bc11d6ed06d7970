#include "naive.h"

#include <limits>

namespace driver {

std::vector<double> all_of(const Strided &tensor, int64_t batch, int64_t heads, int64_t rows, int64_t dim) {
  std::vector<double> all;
  all.reserve(batch * heads * rows * dim);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < dim; d++) all.push_back(tensor.get(b, h, i, d));
  return all;
}

Naive::Naive(const RandomCall &asked)
    : asked_(asked),
      call_(asked.call),
      queries_(all_of(asked.query, call_.batch, call_.num_heads, call_.q_len, call_.head_dim)),
      keys_(all_of(asked.key, call_.batch, call_.num_kv_heads, call_.kv_len, call_.head_dim)),
      values_(all_of(asked.value, call_.batch, call_.num_kv_heads, call_.kv_len, call_.value_dim)) {}

// The score of a key, and the size of the numbers that went into it.
double Naive::score(Row &row, int64_t j, double &size) const {
  const double *q = query(row.batch, row.head, row.query), *k = key(row.batch, row.head, j);
  double score = 0;
  size = 0;
  for (int64_t d = 0; d < call_.head_dim; d++) {
    score += call_.scale * q[d] * k[d];
    size += std::abs(call_.scale * q[d] * k[d]);
  }
  if (call_.softcap != 0) {
    const double tanh = std::tanh(score / call_.softcap);
    score = call_.softcap * tanh;
    row.slopes[j] = 1 - tanh * tanh;
    size += std::abs(score);
  }
  const double added = asked_.bias_at(row.batch, row.head, row.query, j);
  score += added;
  size += std::abs(added);
  if (call_.bias.slopes != nullptr) {
    const double distance = std::abs(double(asked_.position(row.batch, row.query) - call_.kv_start - j));
    score -= call_.bias.slopes[row.head] * distance;
    size += call_.bias.slopes[row.head] * distance;
  }
  return score;
}

Row Naive::row(int64_t b, int64_t h, int64_t i) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Row row;
  row.batch = b, row.head = h, row.query = i;
  row.visible.assign(call_.kv_len, 0);
  row.scores.assign(call_.kv_len, -kInfinity);
  row.weights.assign(call_.kv_len, 0);
  row.slopes.assign(call_.kv_len, 1);
  double sink = -kInfinity, largest = 0, peak = -kInfinity;
  if (call_.sinks != nullptr) sink = call_.sinks[b * call_.sinks_batch + h * call_.sinks_head + i * call_.sinks_row];
  peak = sink;
  for (int64_t j = 0; j < call_.kv_len; j++) {
    if (!asked_.visible(b, h, i, j)) continue;
    double size;
    row.visible[j] = row.any = true;
    row.scores[j] = score(row, j, size);
    if (std::isfinite(size)) largest = std::max(largest, size);
    peak = std::max(peak, row.scores[j]);  // drops NaN, which comes back by the sum
  }
  double sum = sink == peak && sink != -kInfinity ? 1 : std::isfinite(sink) ? std::exp(sink - peak) : 0;
  const double sink_part = sum;
  for (int64_t j = 0; j < call_.kv_len; j++)
    if (row.visible[j]) sum += row.weights[j] = std::exp(row.scores[j] - peak);
  row.lse = peak == -kInfinity && !row.any ? -kInfinity : peak + std::log(sum);
  row.sink_share = call_.sinks == nullptr ? 0 : row.lse == -kInfinity ? 0 : sink_part / sum;
  for (int64_t j = 0; j < call_.kv_len; j++)
    if (row.visible[j]) row.weights[j] /= sum;
  row.budget = largest * sum_budget(call_.head_dim) + sum_budget(call_.kv_len) + 32 * kUnit;
  return row;
}

}  // namespace driver
