// Working memory that outlives a call, so that calls do not pay for fresh pages each time.
//
// A lease takes a block from a pool shared by all threads and gives it back when it ends. The pool keeps a few blocks of
// bounded size; the host's allocator is left as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

#include <cstring>
#endif

namespace regard {

class Pool {
 public:
  struct Block {
    void *data = nullptr;
    std::size_t size = 0;
  };

  static Pool &shared() {
    static Pool *pool = new Pool;  // never destroyed: a thread may still hold a block while the process ends
    return *pool;
  }

  // The smallest kept block that is large enough, or a new one.
  Block take(std::size_t size) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      int best = -1;
      for (int i = 0; i < count_; i++)
        if (kept_[i].size >= size && (best < 0 || kept_[i].size < kept_[best].size)) best = i;
      if (best >= 0) {
        Block block = kept_[best];
        kept_[best] = kept_[--count_];
        return block;
      }
    }
    const std::size_t rounded = (size + 4095) / 4096 * 4096;
    void *data = std::aligned_alloc(64, rounded);
    if (data == nullptr) throw std::bad_alloc();
    return {data, rounded};
  }

  // Keeps the block if there is room, in place of a smaller one if not.
  void give(Block block) {
    if (block.size <= kLargestKept) {
      std::lock_guard<std::mutex> guard(mutex_);
      if (count_ < kMostKept) {
        kept_[count_++] = block;
        return;
      }
      for (Block &other : kept_)
        if (other.size < block.size) std::swap(other, block);
    }
    std::free(block.data);
  }

  // For the child of a fork: the parent's threads may have held the lock, and hold it no longer.
  void forget() {
    new (&mutex_) std::mutex;
    count_ = 0;
  }

 private:
  static constexpr std::size_t kLargestKept = std::size_t{16} << 20;
  static constexpr int kMostKept = 16;
  std::mutex mutex_;
  Block kept_[kMostKept];
  int count_ = 0;
};

// A block of memory from which aligned arrays are cut, one after another.
//
// Under the address sanitizer there is a gap behind each array that must not be touched, and arrays begin as NaN.
class Lease {
 public:
  explicit Lease(std::size_t bytes) : block_(Pool::shared().take(bytes)) {}
  ~Lease() {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(block_.data, block_.size);
#endif
    Pool::shared().give(block_);
  }
  Lease(const Lease &) = delete;
  Lease &operator=(const Lease &) = delete;

  template <typename T>
  T *array(int64_t count) {
    T *start = reinterpret_cast<T *>(static_cast<char *>(block_.data) + used_);
    used_ += padded<T>(count);
#if defined(__SANITIZE_ADDRESS__)
    const std::size_t size = padded<T>(count) - kGap;
    std::memset(static_cast<void *>(start), 0xff, size);
    ASAN_POISON_MEMORY_REGION(reinterpret_cast<char *>(start) + size, kGap);
#endif
    return start;
  }

  // Bytes that array<T>(count) uses up.
  template <typename T>
  static constexpr std::size_t padded(int64_t count) {
    return (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64 + kGap;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kGap = 64;
#else
  static constexpr std::size_t kGap = 0;
#endif
  Pool::Block block_;
  std::size_t used_ = 0;
};

}  // namespace regard
