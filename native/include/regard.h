/* The C ABI of regard's native library.
 *
 * Every function is plain C: integers and pointers, no exceptions, nothing allocated that the caller must free.
 * src/regard/ops/_backends/native_library.py declares the same structures and functions for ctypes; both change together
 * with REGARD_ABI_VERSION.
 *
 * The same sources are built once per instruction set, each build a library of its own, so that no function compiled
 * for one CPU can be linked into the code of another. The small library `regard_native` says what the CPU can run.
 */
#ifndef REGARD_H
#define REGARD_H

#include <stdint.h>

#define REGARD_EXPORT __attribute__((visibility("default")))

/* Raised by one when a function changes its meaning or its arguments. */
#define REGARD_ABI_VERSION 2

/* Bits of regard_cpu_features(). A bit is set when the CPU has the instructions and the operating system saves their
 * registers. */
#define REGARD_CPU_AVX2 (UINT64_C(1) << 0)       /* AVX2, FMA and F16C */
#define REGARD_CPU_AVX512F (UINT64_C(1) << 1)    /* AVX-512 F, BW, CD, DQ and VL */
#define REGARD_CPU_AVX512_BF16 (UINT64_C(1) << 2)
#define REGARD_CPU_AMX_BF16 (UINT64_C(1) << 3) /* the tile registers of AMX with products of bfloat16 */

/* What a function returns. */
#define REGARD_OK 0
#define REGARD_OUT_OF_MEMORY 1

/* Types of tensors. */
#define REGARD_FLOAT32 0
#define REGARD_BFLOAT16 1
#define REGARD_FLOAT16 2

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor [batch, head, row, dim] whose last axis is contiguous. Strides count elements. */
typedef struct {
  void *data;
  int64_t batch, head, row;
} regard_tensor;

/* What may be seen. Keys low[i] <= j < high[i] of a row, and of those the ones whose bit is set, if there are bits.
 *
 * Bits come in tiles of 16 queries x 64 keys. tiles[...] is the number of a tile in `bits` (16 words of 64 keys each),
 * or one of REGARD_TILE_NONE and REGARD_TILE_ALL. Strides count elements and are 0 where an axis broadcasts. */
#define REGARD_TILE_QUERIES 16
#define REGARD_TILE_KEYS 64
#define REGARD_TILE_NONE (-1)
#define REGARD_TILE_ALL (-2)
typedef struct {
  const int32_t *low, *high; /* [batch, head, q_len]; both NULL when every key is in range */
  int64_t range_batch, range_head;
  const int32_t *tiles; /* [batch, head, ceil(q_len / 16), ceil(kv_len / 64)]; NULL without bits */
  int64_t tiles_batch, tiles_head;
  const uint64_t *bits;
} regard_mask;

/* What is added to the scores: a tensor, ALiBi slopes, or both. */
typedef struct {
  const void *data; /* [batch, head, q_len, kv_len]; NULL for none. The last stride is 0 or 1. */
  int64_t batch, head, row, column;
  int32_t dtype;
  float blocked;       /* an entry at or below this forbids its key */
  const float *slopes; /* [num_heads], NULL for none: adds -slope * |query position - key position| */
} regard_bias;

/* A probe: what to gather of the weights, and where to put it. All results are contiguous and written whole.
 *
 * kind            size          size2    list              out
 * ENTROPY         -             -        -                 float [batch, heads, q]
 * DISTANCE        -             -        -                 float [batch, heads, q]
 * SINK_SHARE      -             -        -                 float [batch, heads, q]
 * TOP_K           k             -        -                 float [batch, heads, q, k]; keys: int64 of the same shape,
 *                                                          absolute positions, -1 for none; rest: float [batch, heads, q]
 * FIRST_KEYS      n             -        -                 float [batch, heads, q], keys at positions below n
 * OFFSETS         offsets       -        [offset]          float [batch, heads, q, offsets]
 * SPANS           spans         -        [start, stop]     float [batch, heads, q, spans]
 * KEY_MASS        -             -        -                 double [batch, heads, kv]
 * HEAT_MAP        rows          cols     -                 double [batch, heads, rows, cols], sums; bins by index, or by
 *                                                          position where length > 0
 * WEIGHTS         rows          -        [query index]     float [batch, heads, rows, kv]
 */
enum {
  REGARD_ENTROPY = 0,
  REGARD_DISTANCE = 1,
  REGARD_SINK_SHARE = 2,
  REGARD_TOP_K = 3,
  REGARD_FIRST_KEYS = 4,
  REGARD_OFFSETS = 5,
  REGARD_SPANS = 6,
  REGARD_KEY_MASS = 7,
  REGARD_HEAT_MAP = 8,
  REGARD_WEIGHTS = 9
};
typedef struct {
  int32_t kind;
  int64_t size, size2, length;
  const int64_t *list;
  void *out;
  int64_t *keys;
  float *rest;
} regard_probe;

/* One attention call. */
typedef struct {
  int32_t dtype; /* of query, key, value and output */
  int32_t threads;
  int64_t batch, num_heads, num_kv_heads, q_len, kv_len, head_dim, value_dim;
  float scale;
  float softcap; /* 0 for none */
  regard_tensor query, key, value; /* value.data is NULL where only probes are wanted */
  const int64_t *q_positions;      /* [batch, q_len]; the batch stride is 0 when all rows agree. NULL: the last ones */
  int64_t q_positions_batch;
  int64_t kv_start; /* position of key 0 */
  regard_mask mask;
  regard_bias bias;
  const float *sinks; /* [batch, head, q_len] by strides; NULL for none */
  int64_t sinks_batch, sinks_head, sinks_row;
  regard_tensor output;
  float *lse; /* [batch, heads, q_len], natural log of the denominator, sink included; may be NULL */
  const regard_probe *probes;
  int64_t num_probes;
} regard_call;

/* The gradients of a call. Each is contiguous, in float, and written whole; NULL where it is not wanted. */
typedef struct {
  regard_tensor grad;   /* of the output, in its dtype */
  regard_tensor output; /* what the forward call returned */
  const float *lse;     /* and its lse */
  float *query;         /* [batch, num_heads, q_len, head_dim] */
  float *key;           /* [batch, num_kv_heads, kv_len, head_dim] */
  float *value;         /* [batch, num_kv_heads, kv_len, value_dim] */
  float *bias;          /* [batch, num_heads, q_len, kv_len], before any reduction over broadcast axes */
} regard_gradients;

/* REGARD_ABI_VERSION of the library that was loaded. */
REGARD_EXPORT uint32_t regard_abi_version(void);

/* What this machine can run, as REGARD_CPU_* bits; 0 on a CPU that is not x86-64. In regard_native only. */
REGARD_EXPORT uint64_t regard_cpu_features(void);

/* Output, lse and probes of a call. */
REGARD_EXPORT int32_t regard_forward(const regard_call *call);

/* Gradients of a call, by recomputing its weights from lse. */
REGARD_EXPORT int32_t regard_backward(const regard_call *call, const regard_gradients *gradients);

/* Reads a bool tensor [batch, head, q_len, kv_len] as key ranges.
 *
 * Writes the first allowed key of each row and one past the last (0 and 0 for an empty row) to low and high
 * [batch, head, q_len]. Returns how many rows have a gap in between: 0 means the ranges say it all. */
REGARD_EXPORT int64_t regard_mask_ranges(const uint8_t *allowed, int64_t batch, int64_t heads, int64_t q_len,
                                         int64_t kv_len, const int64_t strides[4], int32_t *low, int32_t *high);

/* Cuts a bool tensor into tiles of bits. Returns how many tiles have bits of their own; writes `tiles` always and
 * `bits` where it is not NULL (call once without, to learn how much it needs). */
REGARD_EXPORT int64_t regard_mask_tiles(const uint8_t *allowed, int64_t batch, int64_t heads, int64_t q_len,
                                        int64_t kv_len, const int64_t strides[4], int32_t *tiles, uint64_t *bits);

#ifdef __cplusplus
}
#endif

#endif
