#include "regard.h"

// __builtin_cpu_supports reads CPUID and, for AVX registers, XGETBV: a kernel that does not save them clears the bit.
uint64_t regard_cpu_features(void) {
  uint64_t features = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) features |= REGARD_CPU_AVX2;
  if (__builtin_cpu_supports("avx512f")) features |= REGARD_CPU_AVX512F;
  if (__builtin_cpu_supports("avx512bf16")) features |= REGARD_CPU_AVX512_BF16;
#endif
  return features;
}
