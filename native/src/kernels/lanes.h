// Vectors of floats: one source for every instruction set, by GCC's vector extensions.
//
// kLanes floats make a vector: 8 with AVX2, 16 with AVX-512. Arithmetic is written with operators; the few things that
// operators cannot say (half-precision conversion, reductions, exponent) are here, by intrinsics where they exist.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace regard {

// A test may set REGARD_LANES to build the wide code for a narrow CPU.
#if !defined(REGARD_LANES)
#if defined(__AVX512F__)
#define REGARD_LANES 16
#else
#define REGARD_LANES 8
#endif
#endif
constexpr int kLanes = REGARD_LANES;

#if REGARD_LANES == 16 && defined(__AVX512F__)
#define REGARD_AVX512 1
#else
#define REGARD_AVX512 0
#endif

// Whether the CPU adds up products of pairs of bfloat16 by itself. A test may set REGARD_PAIRS to build that code for others.
#if defined(REGARD_PAIRS) || (REGARD_AVX512 && defined(__AVX512BF16__))
constexpr bool kPairProducts = true;
#else
constexpr bool kPairProducts = false;
#endif

typedef float vfloat __attribute__((vector_size(4 * kLanes)));
typedef int32_t vint __attribute__((vector_size(4 * kLanes)));
typedef float vfloat_unaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef uint16_t vhalf __attribute__((vector_size(2 * kLanes)));
typedef uint32_t vword __attribute__((vector_size(4 * kLanes)));

struct bfloat16 {
  uint16_t bits;
};
// Two neighbours along a sum of products, the earlier in the low half.
struct bfloat16_pair {
  uint32_t bits;
};
struct float16 {
  uint16_t bits;
};

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

inline vfloat broadcast(float x) { return x - vfloat{}; }

inline vword broadcast(bfloat16_pair x) { return x.bits - vword{}; }

inline vint broadcast_int(int32_t x) { return x - vint{}; }

inline vint lane_numbers() {
  vint lanes;
  for (int i = 0; i < kLanes; i++) lanes[i] = i;
  return lanes;
}

inline vfloat as_float(vint x) { return __builtin_convertvector(x, vfloat); }

// NaN in `x` is dropped, NaN in `m` kept: what a running maximum wants, which NaN scores must not stop.
inline vfloat max_of(vfloat x, vfloat m) { return x > m ? x : m; }

inline vfloat multiply_add(vfloat left, vfloat right, vfloat sum) { return sum + left * right; }

// left · right − minus, rounded once. Said outright where several builds of a loop must agree in every bit: a compiler fuses
// a product in one of them, and not in another that has a second use for it.
inline vfloat multiply_subtract(vfloat left, vfloat right, vfloat minus) {
#if REGARD_AVX512
  return (vfloat)_mm512_fmsub_ps((__m512)left, (__m512)right, (__m512)minus);
#else
  vfloat result;
  for (int i = 0; i < kLanes; i += 8) {
    __m256 a, b, c;
    std::memcpy(&a, reinterpret_cast<float *>(&left) + i, sizeof a);
    std::memcpy(&b, reinterpret_cast<float *>(&right) + i, sizeof b);
    std::memcpy(&c, reinterpret_cast<float *>(&minus) + i, sizeof c);
    const __m256 part = _mm256_fmsub_ps(a, b, c);
    std::memcpy(reinterpret_cast<float *>(&result) + i, &part, sizeof part);
  }
  return result;
#endif
}

// Lanes are pairs: both products are added. The instruction takes subnormal numbers for 0.
inline vfloat multiply_add(vword left, vword right, vfloat sum) {
#if REGARD_AVX512 && defined(__AVX512BF16__)
  return (vfloat)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
#else
  const vword high = broadcast(bfloat16_pair{0xffff0000});
  sum += (vfloat)(left & high) * (vfloat)(right & high);
  return sum + (vfloat)(left << 16) * (vfloat)(right << 16);
#endif
}

inline vfloat abs_of(vfloat x) { return (vfloat)((vint)x & broadcast_int(0x7fffffff)); }

// --- Memory ---------------------------------------------------------------------------------------------------------

inline vfloat load(const float *p) { return *reinterpret_cast<const vfloat_unaligned *>(p); }

inline void store(float *p, vfloat x) { *reinterpret_cast<vfloat_unaligned *>(p) = x; }

typedef int32_t vint_unaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline vint load_int(const int32_t *p) { return *reinterpret_cast<const vint_unaligned *>(p); }

inline void store_int(int32_t *p, vint x) { *reinterpret_cast<vint_unaligned *>(p) = x; }

inline vfloat load(const bfloat16 *p) {
#if REGARD_AVX512
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
  return (vfloat)((vword)_mm512_cvtepu16_epi32(half) << 16);
#else
  vhalf half;
  std::memcpy(&half, p, sizeof half);
  return (vfloat)(__builtin_convertvector(half, vword) << 16);
#endif
}

typedef uint32_t vword_unaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline vword load(const bfloat16_pair *p) { return *reinterpret_cast<const vword_unaligned *>(p); }

inline void store(bfloat16_pair *p, vword x) { *reinterpret_cast<vword_unaligned *>(p) = x; }

// Rounds to nearest, ties to even; a NaN stays one.
inline void store(bfloat16 *p, vfloat x) {
  vword word = (vword)x;
  vword rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
  vword nan = (word >> 16) | 0x40;
  vhalf half = __builtin_convertvector((vword)(x != x ? (vint)nan : (vint)rounded), vhalf);
  std::memcpy(p, &half, sizeof half);
}

// The same by one instruction where there is one, which takes subnormal numbers for 0.
inline void store_normal(bfloat16 *p, vfloat x) {
#if REGARD_AVX512 && defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh((__m512)x);
  std::memcpy(p, &half, sizeof half);
#else
  store(p, x);
#endif
}

inline vfloat load(const float16 *p) {
#if REGARD_AVX512
  return (vfloat)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
#endif
  vfloat x;
  for (int i = 0; i < kLanes; i += 8) {
    __m256 part = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p + i)));
    std::memcpy(reinterpret_cast<float *>(&x) + i, &part, sizeof part);
  }
  return x;
}

inline void store(float16 *p, vfloat x) {
  for (int i = 0; i < kLanes; i += 8) {
    __m256 part;
    std::memcpy(&part, reinterpret_cast<float *>(&x) + i, sizeof part);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p + i), _mm256_cvtps_ph(part, _MM_FROUND_TO_NEAREST_INT));
  }
}

// The first n of a vector's worth of values, zeros behind them; reads nothing past them.
template <typename T>
inline vfloat load_first(const T *p, int64_t n) {
  if (n >= kLanes) return load(p);
  T part[kLanes] = {};
  for (int64_t i = 0; i < n; i++) part[i] = p[i];
  return load(part);
}

template <typename T>
inline void store_first(T *p, vfloat x, int64_t n) {
  if (n >= kLanes) return store(p, x);
  T part[kLanes];
  store(part, x);
  for (int64_t i = 0; i < n; i++) p[i] = part[i];
}

template <typename T>
inline float load_one(const T *p) {
  if constexpr (std::is_same_v<T, float>) return *p;
  return load_first(p, 1)[0];
}

// --- Across lanes -----------------------------------------------------------------------------------------------------

template <typename Combine>
inline float reduce(vfloat x, Combine combine) {
  float lanes[kLanes];
  store(lanes, x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] = combine(lanes[i], lanes[i + width]);
  return lanes[0];
}

inline float sum_of(vfloat x) {
#if REGARD_AVX512
  return _mm512_reduce_add_ps((__m512)x);
#elif REGARD_LANES == 8
  __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
  return reduce(x, [](float a, float b) { return a + b; });
#endif
}

// Lane i: the lanes of x[i] combined. Each round combines neighbouring lanes and halves the vectors.
template <typename Combine>
inline vfloat reduce_each(vfloat (&x)[kLanes], Combine combine) {
  vint even, odd;
  for (int i = 0; i < kLanes; i++) {
    even[i] = 2 * i;
    odd[i] = 2 * i + 1;
  }
#pragma GCC unroll 4
  for (int count = kLanes / 2; count > 0; count /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
      x[i] = combine(__builtin_shuffle(x[2 * i], x[2 * i + 1], even), __builtin_shuffle(x[2 * i], x[2 * i + 1], odd));
  return x[0];
}

inline vfloat sums_of(vfloat (&x)[kLanes]) {
  return reduce_each(x, [](vfloat a, vfloat b) { return a + b; });
}

inline vfloat largests_of(vfloat (&x)[kLanes]) {
  return reduce_each(x, [](vfloat a, vfloat b) { return max_of(a, b); });
}

inline float largest_of(vfloat x) {
#if REGARD_AVX512
  return _mm512_reduce_max_ps((__m512)x);
#elif REGARD_LANES == 8
  __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
  return reduce(x, [](float a, float b) { return a > b ? a : b; });
#endif
}

// One bit per lane of a comparison's result.
inline uint32_t bits_of(vint comparison) {
#if REGARD_AVX512
  return _mm512_movepi32_mask((__m512i)comparison);
#endif
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; i += 8) {
    __m256 part;
    std::memcpy(&part, reinterpret_cast<int32_t *>(&comparison) + i, sizeof part);
    bits |= static_cast<uint32_t>(_mm256_movemask_ps(part)) << i;
  }
  return bits;
}

// All ones in the lanes whose bit is set.
inline vint lanes_of(uint32_t bits) {
  vint lane_bit;
  for (int i = 0; i < kLanes; i++) lane_bit[i] = 1 << i;
  return (broadcast_int(static_cast<int32_t>(bits)) & lane_bit) != 0;
}

// Moves every lane one to the right; the last lane of `before` comes into the first.
template <typename Vector>
inline Vector shift_in(Vector x, Vector before) {
  vint from;
  for (int i = 0; i < kLanes; i++) from[i] = kLanes - 1 + i;
  return __builtin_shuffle(before, x, from);
}

// For each pattern of 8 bits: the numbers of the bits that are set, one per byte.
struct ChosenLanes {
  uint64_t numbers[256];
  constexpr ChosenLanes() : numbers() {
    for (int pattern = 0; pattern < 256; pattern++)
      for (int lane = 7; lane >= 0; lane--)
        if (pattern >> lane & 1) numbers[pattern] = numbers[pattern] << 8 | static_cast<uint64_t>(lane);
  }
};
inline constexpr ChosenLanes kChosenLanes;

// Stores the lanes whose bit is set, and their keys, side by side. Returns how many; writes whole vectors.
inline int store_chosen(float *scores, int32_t *keys, vfloat x, int32_t first_key, uint32_t lanes) {
#if REGARD_AVX512
  const vint key = lane_numbers() + first_key;
  _mm512_storeu_ps(scores, _mm512_maskz_compress_ps(static_cast<__mmask16>(lanes), (__m512)x));
  _mm512_storeu_si512(keys, _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), (__m512i)key));
  return __builtin_popcount(lanes);
#else
  int count = 0;
  for (int i = 0; i < kLanes; i += 8) {
    const uint32_t pattern = lanes >> i & 0xff;
    __m256 part;
    std::memcpy(&part, reinterpret_cast<float *>(&x) + i, sizeof part);
    const __m256i chosen =
        _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(kChosenLanes.numbers[pattern])));
    _mm256_storeu_ps(scores + count, _mm256_permutevar8x32_ps(part, chosen));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(keys + count),
                        _mm256_add_epi32(chosen, _mm256_set1_epi32(first_key + i)));
    count += __builtin_popcount(pattern);
  }
  return count;
#endif
}

// Transposes kLanes vectors in place: log2(kLanes) rounds of perfect shuffles.
inline void transpose(vfloat (&rows)[kLanes]) {
  vint low, high;
  for (int i = 0; i < kLanes; i++) {
    low[i] = i / 2 + (i % 2) * kLanes;
    high[i] = low[i] + kLanes / 2;
  }
  for (int width = 1; width < kLanes; width *= 2) {
    vfloat shuffled[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; i++) {
      shuffled[2 * i] = __builtin_shuffle(rows[i], rows[i + kLanes / 2], low);
      shuffled[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kLanes / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) rows[i] = shuffled[i];
  }
}

// --- Exponential ------------------------------------------------------------------------------------------------------

constexpr float kLog2E = 1.44269504088896341f;

// Below this an exponential has no full precision left as a float: it is 0. ln(2^-126), rounded towards 0.
constexpr float kLowestExponent = -87.33654f;

// e^x for x <= 88, and exactly 0 below kLowestExponent (so for -inf); NaN stays NaN. Error below 1.5 units in the last
// place, and that of log2(e) as a float, |x| · 2^-26.
//
// x · log2(e) = n + f with n whole and |f| <= 1/2: a polynomial for 2^f (SLEEF's coefficients), n added to its exponent.
inline vfloat exp_of(vfloat x) {
  const vfloat shift = broadcast(12582912.f);  // 1.5 · 2^23: adding it rounds to a whole number
  const vfloat shifted = x * kLog2E + shift;
  const vfloat f = x * kLog2E - (shifted - shift);
  vfloat p = broadcast(0.1535920892e-3f);
  p = p * f + 0.1339262701e-2f;
  p = p * f + 0.9618384764e-2f;
  p = p * f + 0.5550347269e-1f;
  p = p * f + 0.2402264476f;
  p = p * f + 0.6931471825f;
  p = p * f + 1.f;
  const vword power = (vword)p + ((vword)shifted << 23);
  return x < kLowestExponent ? vfloat{} : (vfloat)power;
}

inline float exp_of(float x) { return exp_of(broadcast(x))[0]; }

// Whether every lane is finite: x · 0 is 0 for those, NaN for the others.
inline bool all_finite(vfloat x) { return sum_of(x * 0.f) == 0.f; }

}  // namespace regard
