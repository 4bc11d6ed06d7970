// Products of bfloat16 pairs on the matrix unit of a CPU (Intel AMX): 16 x 16 sums, 16 pairs deep, with one instruction.
//
// Its registers ("squares" here; "tiles" are keys of the softmax) take operands in the order that pairs are packed in
// anyway: `a` as rows of pairs, `b` as one row of pairs per step.
#pragma once

#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace regard {

// A test may set REGARD_SQUARES to build this code for a CPU without the unit: then squares are arrays.
#if defined(__AMX_BF16__) || defined(REGARD_SQUARES)
constexpr bool kMatrixUnit = true;
#else
constexpr bool kMatrixUnit = false;
#endif

constexpr int kSquare = 16;  // rows, columns and pairs

#if defined(__AMX_BF16__)

// Shapes the registers for one thread, and puts back the shapes found there when it ends.
class MatrixUnit {
 public:
  MatrixUnit() {
    __asm__ volatile("sttilecfg %0" : "=m"(before_));
    Shapes full{};
    full.palette = 1;
    for (int i = 0; i < 8; i++) {
      full.row_bytes[i] = 4 * kSquare;
      full.rows[i] = kSquare;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(full));
  }
  ~MatrixUnit() {
    if (before_.palette == 0)
      __asm__ volatile("tilerelease");
    else
      __asm__ volatile("ldtilecfg %0" ::"m"(before_));
  }
  MatrixUnit(const MatrixUnit &) = delete;
  MatrixUnit &operator=(const MatrixUnit &) = delete;

 private:
  struct alignas(64) Shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  Shapes before_;
};

template <int Square>
inline void clear_square() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(Square));
}

template <int Square>
inline void load_square(const void *from, int64_t row_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(Square) : "memory");
}

template <int Square>
inline void store_square(void *to, int64_t row_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(Square) : "memory");
}

// sums[i][j] += Σ_p a[i][p] · b[p][j], pairs p in order. Takes subnormal numbers for 0.
template <int Sums, int A, int B>
inline void multiply_squares() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
}

#else

struct MatrixUnit {};

inline thread_local uint32_t g_squares[8][kSquare][kSquare];

template <int Square>
inline void clear_square() {
  std::memset(g_squares[Square], 0, sizeof g_squares[Square]);
}

template <int Square>
inline void load_square(const void *from, int64_t row_bytes) {
  for (int i = 0; i < kSquare; i++)
    std::memcpy(g_squares[Square][i], static_cast<const char *>(from) + i * row_bytes, 4 * kSquare);
}

template <int Square>
inline void store_square(void *to, int64_t row_bytes) {
  for (int i = 0; i < kSquare; i++)
    std::memcpy(static_cast<char *>(to) + i * row_bytes, g_squares[Square][i], 4 * kSquare);
}

template <int Sums, int A, int B>
inline void multiply_squares() {
  for (int i = 0; i < kSquare; i++)
    for (int j = 0; j < kSquare; j += kLanes) {
      float *sums = reinterpret_cast<float *>(&g_squares[Sums][i][j]);
      vfloat sum = load(sums);
      for (int p = 0; p < kSquare; p++)
        sum = multiply_add(broadcast(bfloat16_pair{g_squares[A][i][p]}),
                           load(reinterpret_cast<const bfloat16_pair *>(&g_squares[B][p][j])), sum);
      store(sums, sum);
    }
}

#endif

// R · C squares of c (+)= a · b. Steps are whole squares; rows of a and c must be there to the end of a square.
template <int R, int C>
inline void multiply_group(const bfloat16_pair *a, int64_t a_row, const bfloat16_pair *b, int64_t b_row, int64_t steps,
                           float *c, int64_t c_row, bool onto) {
  static_assert(R <= 2 && C <= 2);
  auto each = [&](auto act) {
    act(std::integral_constant<int, 0>(), 0, 0);
    if constexpr (C > 1) act(std::integral_constant<int, 1>(), 0, 1);
    if constexpr (R > 1) act(std::integral_constant<int, 2>(), 1, 0);
    if constexpr (R > 1 && C > 1) act(std::integral_constant<int, 3>(), 1, 1);
  };
  each([&](auto square, int i, int j) {
    if (onto)
      load_square<decltype(square)::value>(c + i * kSquare * c_row + j * kSquare, 4 * c_row);
    else
      clear_square<decltype(square)::value>();
  });
  for (int64_t s = 0; s < steps; s += kSquare) {
    load_square<6>(b + s * b_row, 4 * b_row);
    load_square<4>(a + s, 4 * a_row);
    multiply_squares<0, 4, 6>();
    if constexpr (C > 1) {
      load_square<7>(b + s * b_row + kSquare, 4 * b_row);
      multiply_squares<1, 4, 7>();
    }
    if constexpr (R > 1) {
      load_square<5>(a + kSquare * a_row + s, 4 * a_row);
      multiply_squares<2, 5, 6>();
      if constexpr (C > 1) multiply_squares<3, 5, 7>();
    }
  }
  each([&](auto square, int i, int j) {
    store_square<decltype(square)::value>(c + i * kSquare * c_row + j * kSquare, 4 * c_row);
  });
}

// c [rows, columns] = a · b, or c + a · b. Columns and steps are whole squares; rows up to the next whole square are
// read and written.
inline void multiply_on_unit(const bfloat16_pair *a, int64_t a_row, const bfloat16_pair *b, int64_t b_row,
                             int64_t steps, float *c, int64_t c_row, int64_t rows, int64_t columns, bool onto) {
  for (int64_t column = 0; column < columns; column += 2 * kSquare) {
    const bool two_columns = column + kSquare < columns;
    for (int64_t row = 0; row < rows; row += 2 * kSquare) {
      const bool two_rows = row + kSquare < rows;
      auto group = two_rows ? (two_columns ? multiply_group<2, 2> : multiply_group<2, 1>)
                            : (two_columns ? multiply_group<1, 2> : multiply_group<1, 1>);
      group(a + row * a_row, a_row, b + column, b_row, steps, c + row * c_row + column, c_row, onto);
    }
  }
}

}  // namespace regard
