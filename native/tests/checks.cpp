#include "checks.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace driver {

namespace {

// Sums over queries, by the definition: of each probe the sums and what they may be off.
struct Columns {
  std::vector<double> sums, budgets;
};

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

double mass(const Row &row, int64_t from, int64_t to) {
  double total = 0;
  for (int64_t j = std::max<int64_t>(0, from); j < std::min<int64_t>(to, row.weights.size()); j++)
    if (row.visible[j]) total += row.weights[j];
  return total;
}

void check_mass(const char *what, int64_t at, float got, const Row &row, int64_t from, int64_t to, Faults &faults) {
  const double expected = mass(row, from, to);
  faults.compare(what, at, got, expected, row.budget * expected + kTiny);
}

void check_output(const RandomCall &asked, const Naive &naive, const Row &row, int64_t at, Faults &faults) {
  const regard_call &call = asked.call;
  const double unit = unit_roundoff(call.dtype);
  for (int64_t d = 0; d < call.value_dim; d++) {
    double expected = 0, size = 0;
    for (int64_t j = 0; j < call.kv_len; j++) {
      if (!row.visible[j]) continue;
      const double part = row.weights[j] * naive.value(row.batch, row.head, j)[d];
      expected += part;
      size += std::abs(part);
    }
    const double got = asked.output.get(row.batch, row.head, row.query, d);
    // 0 · Inf is NaN and a tiny weight times Inf is Inf: where a weight vanishes is not compared.
    if (!std::isfinite(expected) && !std::isfinite(got)) continue;
    // Weights that are multiplied in pairs are bfloat16.
    const double budget = (row.budget + (call.dtype == REGARD_BFLOAT16 ? unit : 0)) * size;
    faults.compare("output", at * call.value_dim + d, got, expected,
                   budget + unit * (std::abs(expected) + budget) + least_step(call.dtype));
  }
}

void check_entropy(const Row &row, int64_t at, float got, Faults &faults) {
  double expected = 0, size = 0;
  for (std::size_t j = 0; j < row.weights.size(); j++) {
    const double weight = row.weights[j];
    if (!row.visible[j] || weight == 0) continue;
    expected -= weight * std::log(weight);
    size += weight * (2 * std::abs(std::log(weight)) + 2 * std::log(double(row.weights.size())) + 2);
  }
  faults.compare("entropy", at, got, expected, row.budget * size + kTiny);
}

void check_distance(const RandomCall &asked, const Row &row, int64_t at, float got, Faults &faults) {
  double expected = 0;
  for (int64_t j = 0; j < asked.call.kv_len; j++)
    if (row.visible[j])
      expected += row.weights[j] * std::abs(double(asked.position(row.batch, row.query) - asked.call.kv_start - j));
  faults.compare("distance", at, got, expected, row.budget * expected + 1000 * kTiny);
}

void check_top(const RandomCall &asked, const Probe &probe, const Row &row, int64_t at, Faults &faults) {
  const int64_t k = probe.size;
  std::vector<int64_t> order;
  for (int64_t j = 0; j < asked.call.kv_len; j++)
    if (row.visible[j] && !(std::isinf(row.scores[j]) && row.scores[j] < 0)) order.push_back(j);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const bool a_nan = std::isnan(row.scores[a]), b_nan = std::isnan(row.scores[b]);
    return a_nan != b_nan ? a_nan : row.scores[a] > row.scores[b];
  });
  std::vector<char> seen(asked.call.kv_len, 0);
  for (int64_t n = 0; n < k; n++) {
    const float weight = probe.floats[at * k + n];
    const int64_t key = probe.keys[at * k + n];
    if (n >= static_cast<int64_t>(order.size())) {
      if (key != -1 || weight != 0) faults.add("top_k", at * k + n, "more keys than there are");
      continue;
    }
    const int64_t j = key - asked.call.kv_start;
    if (j < 0 || j >= asked.call.kv_len || !row.visible[j] || seen[j]++) {
      faults.add("top_k", at * k + n, "key " + std::to_string(key) + " is not visible, or there twice");
      continue;
    }
    const double expected = row.weights[order[n]];
    faults.compare("top_k by order", at * k + n, weight, expected, row.budget * expected + kTiny);
    faults.compare("top_k by key", at * k + n, weight, row.weights[j], row.budget * row.weights[j] + kTiny);
    if (asked.exact_scores && !row.broken() && j != order[n])
      faults.add("top_k", at * k + n, "key " + std::to_string(j) + " for its tie " + std::to_string(order[n]));
  }
  double rest = 0;
  for (std::size_t n = k; n < order.size(); n++) rest += row.weights[order[n]];
  // A row of NaN has a rest of NaN when there are more keys than k, those of -inf included.
  if (row.broken()) return;
  faults.compare("top_k rest", at, probe.rest[at], rest, row.budget * rest + kTiny);
}

void check_row_probe(const RandomCall &asked, const Probe &probe, const Row &row, int64_t at, Faults &faults) {
  const int64_t start = asked.call.kv_start, n = probe.size;
  switch (probe.kind) {
    case REGARD_ENTROPY: return check_entropy(row, at, probe.floats[at], faults);
    case REGARD_DISTANCE: return check_distance(asked, row, at, probe.floats[at], faults);
    case REGARD_SINK_SHARE:
      return faults.compare("sink_share", at, probe.floats[at], row.sink_share, row.budget * row.sink_share + kTiny);
    case REGARD_TOP_K: return check_top(asked, probe, row, at, faults);
    case REGARD_FIRST_KEYS: return check_mass("first_keys", at, probe.floats[at], row, 0, n - start, faults);
    case REGARD_OFFSETS:
      for (int64_t s = 0; s < n; s++) {
        const int64_t j = asked.position(row.batch, row.query) + probe.list[s] - start;
        check_mass("offsets", at * n + s, probe.floats[at * n + s], row, j, j + 1, faults);
      }
      return;
    case REGARD_SPANS:
      for (int64_t s = 0; s < n; s++)
        check_mass("spans", at * n + s, probe.floats[at * n + s], row, probe.list[2 * s] - start,
                   probe.list[2 * s + 1] - start, faults);
      return;
    case REGARD_WEIGHTS: {
      const int64_t place = std::find(probe.list.data(), probe.list.data() + n, row.query) - probe.list.data();
      const int64_t to = ((row.batch * asked.call.num_heads + row.head) * n + place) * asked.call.kv_len;
      for (int64_t j = 0; j < asked.call.kv_len && place < n; j++)
        check_mass("weights", to + j, probe.floats[to + j], row, j, j + 1, faults);
      return;
    }
    default: return;
  }
}

void add_to_columns(const RandomCall &asked, const Probe &probe, const Row &row, Columns &columns) {
  const regard_call &call = asked.call;
  const int64_t head = row.batch * call.num_heads + row.head;
  const bool by_index = probe.length == 0;
  const int64_t place = by_index ? row.query : asked.position(row.batch, row.query);
  for (int64_t j = 0; j < call.kv_len; j++) {
    int64_t at = head * call.kv_len + j;
    if (probe.kind == REGARD_HEAT_MAP) {
      const int64_t bin = floor_divide(place * probe.size, by_index ? call.q_len : probe.length);
      const int64_t key_place = by_index ? j : j + call.kv_start;
      const int64_t column = floor_divide(key_place * probe.size2, by_index ? call.kv_len : probe.length);
      at = (head * probe.size + bin) * probe.size2 + column;
    }
    if (!row.visible[j]) continue;
    columns.sums[at] += row.weights[j];
    columns.budgets[at] += row.budget * row.weights[j] + kTiny;
  }
}

}  // namespace

void Faults::compare(const char *what, int64_t at, double got, double expected, double budget) {
  const bool equal = std::isnan(expected) ? std::isnan(got)
                     : std::isinf(expected) ? got == expected
                                            : std::abs(got - expected) <= budget;
  if (equal) return;
  std::ostringstream text;
  text.precision(9);
  text << got << ", must be " << expected << " within " << budget;
  add(what, at, text.str());
}

void Faults::add(const char *what, int64_t at, const std::string &text) {
  count_++;
  if (last_ == what) return;
  last_ = what;
  if (text_.size() < 2000) text_ += std::string("  ") + what + "[" + std::to_string(at) + "]: " + text + "\n";
}

void check_forward(const RandomCall &asked, const Naive &naive, Faults &faults) {
  const regard_call &call = asked.call;
  std::vector<Columns> columns(asked.probes.size());
  for (std::size_t n = 0; n < columns.size(); n++) {
    columns[n].sums.assign(asked.probes[n].doubles.size(), 0);
    columns[n].budgets.assign(asked.probes[n].doubles.size(), kTiny);
  }
  for (int64_t at = 0; at < call.batch * call.num_heads * call.q_len; at++) {
    const Row row = naive.row(at / call.q_len / call.num_heads, at / call.q_len % call.num_heads, at % call.q_len);
    faults.compare("lse", at, call.lse[at], row.lse, row.budget + 2 * kUnit * std::abs(row.lse));
    if (call.output.data != nullptr) check_output(asked, naive, row, at, faults);
    for (std::size_t n = 0; n < columns.size(); n++) {
      if (columns[n].sums.empty())
        check_row_probe(asked, asked.probes[n], row, at, faults);
      else
        add_to_columns(asked, asked.probes[n], row, columns[n]);
    }
  }
  for (std::size_t n = 0; n < columns.size(); n++)
    for (std::size_t at = 0; at < columns[n].sums.size(); at++)
      faults.compare(asked.probes[n].kind == REGARD_KEY_MASS ? "key_mass" : "heat_map", at, asked.probes[n].doubles[at],
                     columns[n].sums[at], columns[n].budgets[at]);
  if (!asked.output.gaps_untouched()) faults.add("output", 0, "written between its rows");
}

}  // namespace driver
