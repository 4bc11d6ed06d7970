#include "regard.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// The tile registers are large, so Linux gives them to processes that ask (since 5.16); asking twice is no harm.
bool has_amx_bf16() {
  constexpr long kAskPermission = 0x1023, kTileData = 18;
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kBf16 | kTiles)) != (kBf16 | kTiles)) return false;
  return syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
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
  if (has_amx_bf16()) features |= REGARD_CPU_AMX_BF16;
#endif
  return features;
}
