// Rows brought into the order in which the kernels read them.
#pragma once

#include "block.h"

namespace regard {

// How many values of a row one element holds.
template <typename Element>
constexpr int64_t kValues = std::is_same_v<Element, bfloat16_pair> ? 2 : 1;

template <typename Element>
inline int64_t elements_of(int64_t values) {
  return (values + kValues<Element> - 1) / kValues<Element>;
}

// Elements that a packed row of queries or keys takes: whole squares where a matrix unit reads them.
template <typename Element>
inline int64_t padded_elements(int64_t values) {
  return on_matrix_unit<Element> ? round_up(elements_of<Element>(values), kSquare) : elements_of<Element>(values);
}

// Keys are scored so many at a time: a vector, or the pairs of a square.
template <typename Element>
constexpr int64_t kKeysTogether = on_matrix_unit<Element> ? 2 * kSquare : kLanes;

// Keys whose values are packed: zeros behind the last up to a whole square of pairs.
template <typename Element>
inline int64_t padded_keys(int64_t keys) {
  return on_matrix_unit<Element> ? round_up(keys, kKeysTogether<Element>) : keys;
}

// The first elements of a row, one per lane: values as floats, or the bits of pairs. Zeros behind the last value.
template <typename Element, typename T>
inline vfloat load_elements(const T *row, int64_t values) {
  if constexpr (kValues<Element> == 1) {
    return load_first(row, values);
  } else {
    T part[2 * kLanes] = {};
    std::memcpy(part, row, sizeof(T) * std::min<int64_t>(values, 2 * kLanes));
    return load(reinterpret_cast<const float *>(part));
  }
}

// Transposes `count` rows of `dim` values into a panel of kPanel rows: out[element][row in panel], zeros behind the end as
// far as they are scored.
template <typename Element, typename T>
inline void pack_panel(const T *rows, int64_t row_stride, int64_t count, int64_t dim, Element *out) {
  constexpr int64_t kStep = kLanes * kValues<Element>;
  const int64_t columns = std::min<int64_t>(kPanel, round_up(count, kKeysTogether<Element>));
  for (int64_t column = 0; column < columns; column += kLanes) {
    const int64_t present = std::clamp<int64_t>(count - column, 0, kLanes);
    const T *from = rows + column * row_stride;
    for (int64_t d = 0; d < dim; d += kStep) {
      vfloat square[kLanes];
      for (int i = 0; i < kLanes; i++)
        square[i] = i < present ? load_elements<Element>(from + i * row_stride + d, dim - d) : vfloat{};
      transpose(square);
      float *to = reinterpret_cast<float *>(out) + elements_of<Element>(d) * kPanel + column;
      const int64_t width = elements_of<Element>(std::min(kStep, dim - d));
      for (int64_t i = 0; i < width; i++) store(to + i * kPanel, square[i]);
    }
    float *rest = reinterpret_cast<float *>(out) + column;
    for (int64_t e = elements_of<Element>(dim); e < padded_elements<Element>(dim); e++)
      store(rest + e * kPanel, vfloat{});
  }
}

// Copies rows to float, each padded with zeros to `padded` values, times a factor.
template <typename T>
inline void pack_rows(const T *rows, int64_t row_stride, int64_t count, int64_t dim, int64_t padded, float factor,
                      float *out) {
  for (int64_t i = 0; i < count; i++) {
    int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) store(out + i * padded + d, factor * load(rows + i * row_stride + d));
    for (; d < padded; d += kLanes)
      store_first(out + i * padded + d, d < dim ? factor * load_first(rows + i * row_stride + d, dim - d) : vfloat{},
                  padded - d);
  }
}

inline int64_t panels_of(int64_t keys) { return (keys + kPanel - 1) / kPanel; }

inline int64_t panel_size(int64_t keys, int64_t elements) { return panels_of(keys) * kPanel * elements; }

template <typename Element>
inline void pack_keys(const regard_call &call, int64_t batch, int64_t kv_head, int64_t first_panel, int64_t end_panel,
                      Element *out) {
  by_dtype(call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
      const int64_t key = panel * kPanel;
      pack_panel(row_of<T>(call.key, batch, kv_head, key), call.key.row, call.kv_len - key, call.head_dim,
                 out + key * padded_elements<Element>(call.head_dim));
    }
  });
}

inline void pack_queries(const Block &block, const regard_tensor &tensor, int64_t dim, int64_t padded, float factor,
                         float *out) {
  by_dtype(block.call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    for (int r = 0; r < block.rows; r++)
      pack_rows(row_of<T>(tensor, block.batch, block.head[r], block.query[r]), 0, 1, dim, padded, factor,
                out + r * padded);
  });
}

// Queries as they are, [row][pair]: a factor would be rounded.
inline void pack_queries(const Block &block, bfloat16_pair *out) {
  const int64_t dim = block.call.head_dim, pairs = padded_elements<bfloat16_pair>(dim);
  for (int r = 0; r < block.rows; r++) {
    std::fill(out + r * pairs + dim / 2, out + (r + 1) * pairs, bfloat16_pair{});
    std::memcpy(out + r * pairs, row_of<bfloat16>(block.call.query, block.batch, block.head[r], block.query[r]),
                sizeof(bfloat16) * dim);
  }
}

inline int64_t padded_value_dim(const regard_call &call) { return round_up(call.value_dim, kLanes); }

// Values of the keys [first, end) of a kv head as rows of whole vectors.
inline void pack_values(const regard_call &call, int64_t batch, int64_t kv_head, int64_t first, int64_t end,
                        float *out) {
  const int64_t padded = padded_value_dim(call);
  by_dtype(call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    pack_rows(row_of<T>(call.value, batch, kv_head, first), call.value.row, end - first, call.value_dim, padded, 1.f,
              out + first * padded);
  });
}

// The same with two keys to a row, out[key / 2][value]; `first` is even. Behind the last key come zeros.
inline void pack_values(const regard_call &call, int64_t batch, int64_t kv_head, int64_t first, int64_t end,
                        bfloat16_pair *out) {
  const int64_t dim = call.value_dim, padded = padded_value_dim(call);
  for (int64_t key = first; key < end; key += 2) {
    const bfloat16 *row = row_of<bfloat16>(call.value, batch, kv_head, key);
    for (int64_t d = 0; d < padded; d += kLanes) {
      const vfloat low = d < dim ? load_first(row + d, dim - d) : vfloat{};
      const vfloat high = d < dim && key + 1 < end ? load_first(row + call.value.row + d, dim - d) : vfloat{};
      store(out + key / 2 * padded + d, (vword)low >> 16 | (vword)high);
    }
  }
  if (end == call.kv_len)
    std::fill(out + elements_of<bfloat16_pair>(end) * padded,
              out + elements_of<bfloat16_pair>(padded_keys<bfloat16_pair>(end)) * padded, bfloat16_pair{});
}

}  // namespace regard
