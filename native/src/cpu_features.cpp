#include "regard.h"

#if defined(__x86_64__)
namespace {

// What x86-64-v3 and x86-64-v4 add that the kernels use.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace
#endif

// __builtin_cpu_supports reads CPUID and, for AVX registers, XGETBV: a kernel that does not save them clears the bit.
uint64_t regard_cpu_features(void) {
  uint64_t features = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (has_avx2()) features |= REGARD_CPU_AVX2;
  if (has_avx512()) features |= REGARD_CPU_AVX512F;
  if (__builtin_cpu_supports("avx512bf16")) features |= REGARD_CPU_AVX512_BF16;
#endif
  return features;
}
