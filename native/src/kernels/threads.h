// Work shared between threads: OpenMP's own, so that torch's pool serves both and no core has two masters.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>

namespace regard {

// True in the child of a fork, where the parent's OpenMP threads no longer exist and must not be waited for.
extern std::atomic<bool> g_forked;

inline int usable_threads(int asked, int64_t tasks) {
  if (asked < 1 || g_forked.load(std::memory_order_relaxed)) return 1;
  return static_cast<int>(tasks < asked ? (tasks < 1 ? 1 : tasks) : asked);
}

// Calls body(task, thread) for every task; a thread takes the next task when it is free. Must not throw.
template <typename Body>
inline void parallel_for(int64_t tasks, int threads, Body body) {
  if (threads <= 1) {
    for (int64_t task = 0; task < tasks; task++) body(task, 0);
    return;
  }
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    for (int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) body(task, thread);
  }
}

}  // namespace regard
