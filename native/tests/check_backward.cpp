// Gradients by their definition:
//
//   d value  = weightᵀ · grad             d query = scale · (d score · key)
//   d score  = weight · (grad · valueᵀ − Σ grad · output) · slope of the soft cap
//   d bias   = d score before the cap     d key   = scale · (d scoreᵀ · query)
#include <cmath>
#include <limits>

#include "checks.h"

namespace driver {

namespace {

// Sums with their budgets, as large as a gradient.
struct Sums {
  explicit Sums(int64_t size) : sums(size, 0), sizes(size, 0), budgets(size, kTiny) {}

  // Adds a product whose first factor may be off by `budget`.
  void add(int64_t at, double factor, double budget, double other) {
    sums[at] += factor * other;
    sizes[at] += std::abs(factor * other);
    budgets[at] += budget * std::abs(other);
  }

  void compare(const char *what, const Exact<float> &got, int64_t terms, Faults &faults) const {
    for (int64_t n = 0; n < got.size(); n++)
      faults.compare(what, n, got[n], sums[n], budgets[n] + sum_budget(terms) * sizes[n]);
  }

  std::vector<double> sums, sizes, budgets;
};

struct Gradients {
  explicit Gradients(const regard_call &call)
      : query(call.batch * call.num_heads * call.q_len * call.head_dim),
        key(call.batch * call.num_kv_heads * call.kv_len * call.head_dim),
        value(call.batch * call.num_kv_heads * call.kv_len * call.value_dim),
        bias(call.batch * call.num_heads * call.q_len * call.kv_len) {}

  Sums query, key, value, bias;
};

void add_key(const RandomCall &asked, const Naive &naive, const Row &row, int64_t j, const std::vector<double> &grad,
             double delta, double delta_size, Gradients &all) {
  const regard_call &call = asked.call;
  const int64_t at = (row.batch * call.num_heads + row.head) * call.q_len + row.query;
  const int64_t kv = (row.batch * call.num_kv_heads + row.head / asked.group()) * call.kv_len + j;
  const double weight = row.weights[j], budget = row.budget + 2 * kUnit * std::abs(row.lse);
  const double *value = naive.value(row.batch, row.head, j);
  double product = 0, size = delta_size;
  for (int64_t d = 0; d < call.value_dim; d++) {
    product += grad[d] * value[d];
    size += std::abs(grad[d] * value[d]);
    all.value.add(kv * call.value_dim + d, weight, budget * weight, grad[d]);
  }
  const double before_cap = weight * (product - delta);
  const double before_budget = weight * size * (budget + sum_budget(call.value_dim)) + kTiny;
  all.bias.add(at * call.kv_len + j, before_cap, before_budget, 1);
  double score = before_cap * row.slopes[j], off = before_budget;
  if (call.softcap != 0) off += std::abs(before_cap) * (8 * kUnit + 2 * budget / call.softcap);
  const double *query = naive.query(row.batch, row.head, row.query), *key = naive.key(row.batch, row.head, j);
  for (int64_t d = 0; d < call.head_dim; d++) {
    all.query.add(at * call.head_dim + d, score, off, call.scale * key[d]);
    all.key.add(kv * call.head_dim + d, score, off, call.scale * query[d]);
  }
}

Gradients naive_gradients(const RandomCall &asked, const Naive &naive, const Strided &grads) {
  const regard_call &call = asked.call;
  Gradients all(call);
  std::vector<double> grad(call.value_dim);
  for (int64_t b = 0; b < call.batch; b++)
    for (int64_t h = 0; h < call.num_heads; h++)
      for (int64_t i = 0; i < call.q_len; i++) {
        const Row row = naive.row(b, h, i);
        double delta = 0, size = 0;
        for (int64_t d = 0; d < call.value_dim; d++) {
          grad[d] = grads.get(b, h, i, d);
          delta += grad[d] * asked.output.get(b, h, i, d);
          size += std::abs(grad[d] * asked.output.get(b, h, i, d));
        }
        for (int64_t j = 0; j < call.kv_len; j++)
          if (row.visible[j]) add_key(asked, naive, row, j, grad, delta, size, all);
      }
  return all;
}

}  // namespace

void check_backward(RandomCall &asked, const Naive &naive, Faults &faults) {
  const regard_call &call = asked.call;
  Random &random = asked.random;
  if (call.output.data == nullptr || asked.poison == Poison::kVisible || random.chance(0.5)) return;
  Strided grads(random, call.dtype, call.batch, call.num_heads, call.q_len, call.value_dim);
  for (int64_t b = 0; b < call.batch; b++)
    for (int64_t h = 0; h < call.num_heads; h++)
      for (int64_t i = 0; i < call.q_len; i++)
        for (int64_t d = 0; d < call.value_dim; d++) grads.set(b, h, i, d, random.normal());
  const Gradients expected = naive_gradients(asked, naive, grads);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto wanted = [&](const Sums &sums) {
    return random.chance(0.75) ? Exact<float>(static_cast<int64_t>(sums.sums.size()), nan) : Exact<float>();
  };
  const Exact<float> query = wanted(expected.query), key = wanted(expected.key), value = wanted(expected.value),
                     bias = wanted(expected.bias);
  const regard_gradients gradients{grads.tensor(), call.output,  call.lse,    query.data(),
                                   key.data(),     value.data(), bias.data()};
  if (regard_backward(&call, &gradients) != REGARD_OK) faults.add("status", 0, "out of memory");
  expected.query.compare("d query", query, call.kv_len, faults);
  expected.key.compare("d key", key, call.q_len * asked.group(), faults);
  expected.value.compare("d value", value, call.q_len * asked.group(), faults);
  expected.bias.compare("d bias", bias, 1, faults);
}

}  // namespace driver
