// Rows brought into the order in which the kernels read them.
#pragma once

#include "block.h"

namespace regard {

// Transposes `count` rows of `dim` values into panels of kPanel rows: out[panel][d][row in panel], zeros behind the end.
template <typename T>
inline void pack_panel(const T *rows, int64_t row_stride, int64_t count, int64_t dim, float *out) {
  for (int64_t column = 0; column < kPanel; column += kLanes) {
    const int64_t present = std::clamp<int64_t>(count - column, 0, kLanes);
    const T *from = rows + column * row_stride;
    for (int64_t d = 0; d < dim; d += kLanes) {
      const int64_t width = std::min<int64_t>(kLanes, dim - d);
      vfloat square[kLanes];
      for (int i = 0; i < kLanes; i++)
        square[i] = i < present ? load_first(from + i * row_stride + d, width) : vfloat{};
      transpose(square);
      for (int64_t i = 0; i < width; i++) store(out + (d + i) * kPanel + column, square[i]);
    }
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

inline int64_t panel_floats(int64_t keys, int64_t dim) { return panels_of(keys) * kPanel * dim; }

inline void pack_keys(const regard_call &call, const regard_tensor &tensor, int64_t dim, int64_t batch, int64_t kv_head,
                      int64_t first_panel, int64_t end_panel, float *out) {
  by_dtype(call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
      const int64_t key = panel * kPanel;
      pack_panel(row_of<T>(tensor, batch, kv_head, key), tensor.row, call.kv_len - key, dim, out + key * dim);
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

// The values of one kv head as float rows of whole vectors: in place where they already are, else a copy.
struct Values {
  const float *data;
  int64_t row;
};

inline int64_t padded_value_dim(const regard_call &call) { return round_up(call.value_dim, kLanes); }

inline bool values_in_place(const regard_call &call) {
  return call.dtype == REGARD_FLOAT32 && call.value_dim % kLanes == 0;
}

inline void pack_values(const regard_call &call, int64_t batch, int64_t kv_head, int64_t first, int64_t end,
                        float *out) {
  const int64_t padded = padded_value_dim(call);
  by_dtype(call.dtype, [&](auto *type) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    pack_rows(row_of<T>(call.value, batch, kv_head, first), call.value.row, end - first, call.value_dim, padded, 1.f,
              out + first * padded);
  });
}

}  // namespace regard
