// The one matrix-product kernel everything is made of, written so that its sums stay in registers.
//
// Its elements are floats, or pairs of bfloat16 where the CPU multiplies those: then a step of a sum is two steps. `b` may
// be of half precision beside floats: it is widened as it is read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lanes.h"
#include "matrix_unit.h"

namespace regard {

// Registers: kRows · kVectors sums, kVectors of b and one of a, of 16 (AVX2) or 32 (AVX-512).
constexpr int kRows = 6;
constexpr int kVectors = kLanes == 16 ? 4 : 2;
constexpr int kPanel = kVectors * kLanes;  // columns of one pass
constexpr int64_t kRun = 64;               // steps of a scalar product that are added up in one chain
constexpr int64_t kStepsTogether = 128;    // rows of b that the first-level cache holds while all rows of a pass by

// sums[i][j] += Σ_s a[i · a_row + s · a_step] · b[s · b_step + j · kLanes …]
template <int R, int V, typename Left, typename Right>
[[gnu::always_inline]] inline void multiply(vfloat (&sums)[R][V], const Left *a, int64_t a_row, int64_t a_step,
                                            const Right *b, int64_t b_step, int64_t steps) {
  for (int64_t s = 0; s < steps; s++) {
    decltype(load(b)) right[V];
#pragma GCC unroll 4
    for (int j = 0; j < V; j++) right[j] = load(b + s * b_step + j * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < R; i++) {
      const auto left = broadcast(a[i * a_row + s * a_step]);
#pragma GCC unroll 4
      for (int j = 0; j < V; j++) sums[i][j] = multiply_add(left, right[j], sums[i][j]);
    }
  }
}

// sums[i][j] = the same products, added up in runs: one long chain of additions would lose digits.
template <int R, int V, typename Left, typename Right>
[[gnu::always_inline]] inline void multiply_in_runs(vfloat (&sums)[R][V], const Left *a, int64_t a_row, const Right *b,
                                                    int64_t b_step, int64_t steps) {
#pragma GCC unroll 12
  for (int i = 0; i < R; i++)
#pragma GCC unroll 4
    for (int j = 0; j < V; j++) sums[i][j] = vfloat{};
  multiply<R, V>(sums, a, a_row, 1, b, b_step, std::min(kRun, steps));
  for (int64_t first = kRun; first < steps; first += kRun) {
    vfloat more[R][V] = {};
    multiply<R, V>(more, a + first, a_row, 1, b + first * b_step, b_step, std::min(kRun, steps - first));
#pragma GCC unroll 12
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
      for (int j = 0; j < V; j++) sums[i][j] += more[i][j];
  }
}

template <typename Element>
constexpr bool on_matrix_unit = kMatrixUnit && std::is_same_v<Element, bfloat16_pair>;

// Calls kernel with the constant R for every group of rows; groups are as even as can be, none above `most`.
template <int Most, typename Kernel>
inline void for_row_groups(int64_t rows, Kernel kernel) {
  const int64_t groups = (rows + Most - 1) / Most;
  int64_t row = 0;
  for (int64_t g = 0; g < groups; g++) {
    const int64_t size = (rows - row + groups - g - 1) / (groups - g);
    switch (size) {
      case 1: kernel(row, std::integral_constant<int, 1>()); break;
      case 2: kernel(row, std::integral_constant<int, 2>()); break;
      case 3: kernel(row, std::integral_constant<int, 3>()); break;
      case 4: kernel(row, std::integral_constant<int, 4>()); break;
      case 5: kernel(row, std::integral_constant<int, 5>()); break;
      default: kernel(row, std::integral_constant<int, 6>()); break;
    }
    row += size;
  }
}

// Calls kernel with the constant V for every run of up to kVectors vectors of columns.
template <typename Kernel>
inline void for_column_groups(int64_t columns, Kernel kernel) {
  for (int64_t column = 0; column < columns; column += kPanel) {
    const int64_t vectors = (columns - column) / kLanes;
    if (vectors >= kVectors) {
      kernel(column, std::integral_constant<int, kVectors>());
    } else if (vectors == 3) {
      kernel(column, std::integral_constant<int, kVectors < 3 ? kVectors : 3>());
    } else if (vectors == 2) {
      kernel(column, std::integral_constant<int, 2>());
    } else {
      kernel(column, std::integral_constant<int, 1>());
    }
  }
}

// c [rows, columns] = factor[row] · c + a · b, with a[i, s] at a[i · a_row + s · a_step]; columns are whole vectors.
//
// `factor` NULL stands for 1. On a matrix unit a_step is 1, and whole squares are read: zeros behind the last step, and
// rows of a and c up to the next square. Serves weights · values, and in the backward pass both transposed products.
template <typename Left, typename Right>
inline void accumulate_product(const Left *a, int64_t a_row, int64_t a_step, const Right *b, int64_t b_step,
                               int64_t steps, float *c, int64_t c_row, int64_t rows, int64_t columns,
                               const float *factor) {
  if constexpr (on_matrix_unit<Left>) {
    for (int64_t i = 0; i < rows; i++)
      if (factor != nullptr && factor[i] != 1.f)
        for (int64_t j = 0; j < columns; j += kLanes)
          store(c + i * c_row + j, factor[i] * load(c + i * c_row + j));
    return multiply_on_unit(a, a_row, b, b_step, round_up(steps, kSquare), c, c_row, rows, columns, true);
  }
  for (int64_t first = 0; first < steps; first += kStepsTogether) {
    const int64_t count = std::min(kStepsTogether, steps - first);
    const float *scales = first == 0 ? factor : nullptr;
    for_column_groups(columns, [&](int64_t column, auto vectors) {
      for_row_groups<kRows>(rows, [&](int64_t row, auto size) {
        constexpr int R = decltype(size)::value, V = decltype(vectors)::value;
        // From 0, and added to c once: c may be the sum of very many passes, next to which single products lose digits.
        vfloat sums[R][V] = {};
        multiply<R, V>(sums, a + row * a_row + first * a_step, a_row, a_step, b + first * b_step + column, b_step, count);
#pragma GCC unroll 12
        for (int i = 0; i < R; i++) {
          const vfloat scale = broadcast(scales == nullptr ? 1.f : scales[row + i]);
          float *to = c + (row + i) * c_row + column;
#pragma GCC unroll 4
          for (int j = 0; j < V; j++) store(to + j * kLanes, scale * load(to + j * kLanes) + sums[i][j]);
        }
      });
    });
  }
}

}  // namespace regard
