// A call by its definition: loops over doubles, and how far floats may be from them.
//
// Budgets count roundings. n of them in a sum grow like a random walk, so a sum of n products is given 4·√n + 16 units
// of float32; an error of a score is a relative error of its weight. Results in half types get one rounding of theirs.
#pragma once

#include <cmath>
#include <vector>

#include "random_call.h"

namespace driver {

constexpr double kUnit = 0x1p-24;  // of float32
constexpr double kTiny = 1e-34;    // above the sum of all weights that float32 cannot hold

inline double sum_budget(int64_t count) { return kUnit * (4 * std::sqrt(static_cast<double>(count)) + 16); }

// One row of the attention matrix. Keys that are not visible have weight 0.
struct Row {
  int64_t batch, head, query;
  std::vector<char> visible;
  std::vector<double> scores, weights, slopes;  // slopes: derivative of the soft cap
  double lse, sink_share;
  double budget;  // relative, of a weight; absolute, of lse
  bool any = false;

  bool broken() const { return lse != lse; }
};

class Naive {
 public:
  explicit Naive(const RandomCall &asked);

  Row row(int64_t b, int64_t h, int64_t i) const;

  const double *query(int64_t b, int64_t h, int64_t i) const {
    return &queries_[((b * call_.num_heads + h) * call_.q_len + i) * call_.head_dim];
  }
  const double *key(int64_t b, int64_t h, int64_t j) const {
    return &keys_[((b * call_.num_kv_heads + h / asked_.group()) * call_.kv_len + j) * call_.head_dim];
  }
  const double *value(int64_t b, int64_t h, int64_t j) const {
    return &values_[((b * call_.num_kv_heads + h / asked_.group()) * call_.kv_len + j) * call_.value_dim];
  }

 private:
  double score(Row &row, int64_t j, double &size) const;

  const RandomCall &asked_;
  const regard_call &call_;
  std::vector<double> queries_, keys_, values_;
};

std::vector<double> all_of(const Strided &tensor, int64_t batch, int64_t heads, int64_t rows, int64_t dim);

}  // namespace driver
