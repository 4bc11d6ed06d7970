/* The C ABI of regard's native library.
 *
 * Every function is plain C: integers and pointers, no exceptions, nothing allocated that the caller must free.
 * src/regard/ops/_backends/native_library.py declares the same functions for ctypes; both change together with
 * REGARD_ABI_VERSION.
 */
#ifndef REGARD_H
#define REGARD_H

#include <stdint.h>

#define REGARD_EXPORT __attribute__((visibility("default")))

/* Raised by one when a function changes its meaning or its arguments. */
#define REGARD_ABI_VERSION 1

/* Bits of regard_cpu_features(). A bit is set when the CPU has the instructions and the operating system saves their
 * registers. */
#define REGARD_CPU_AVX2 (UINT64_C(1) << 0)
#define REGARD_CPU_AVX512F (UINT64_C(1) << 1)
#define REGARD_CPU_AVX512_BF16 (UINT64_C(1) << 2)

#ifdef __cplusplus
extern "C" {
#endif

/* REGARD_ABI_VERSION of the library that was loaded. */
REGARD_EXPORT uint32_t regard_abi_version(void);

/* What this machine can run, as REGARD_CPU_* bits; 0 on a CPU that is not x86-64. */
REGARD_EXPORT uint64_t regard_cpu_features(void);

#ifdef __cplusplus
}
#endif

#endif
