// Random calls of the kernels. Every array lies on the heap, as large as it must be and not a byte larger, so that the
// address sanitizer sees the first byte read or written past its end.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "regard.h"

namespace driver {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t between(int64_t least, int64_t most) { return least + static_cast<int64_t>(engine_() % (most - least + 1)); }
  bool chance(double share) { return uniform() < share; }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double normal() { return normal_(engine_); }

  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, static_cast<int64_t>(choices.size()) - 1)];
  }

  // Small numbers as often as large ones, the most among them.
  int64_t length(int64_t most);

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

// An array of exactly its size. A std::vector may be larger, and ends where the sanitizer is told.
template <typename T>
class Exact {
 public:
  Exact() = default;
  Exact(int64_t size, T fill) : data_(new T[size]), size_(size) { std::fill(data_.get(), data_.get() + size, fill); }

  T *data() const { return data_.get(); }
  int64_t size() const { return size_; }
  T &operator[](int64_t i) const { return data_[i]; }

 private:
  std::unique_ptr<T[]> data_;
  int64_t size_ = 0;
};

double read_element(int32_t dtype, const void *data, int64_t at);
void write_element(int32_t dtype, void *data, int64_t at, double value);
int64_t element_size(int32_t dtype);

// Half the distance between neighbouring numbers of a type, relative and near 0.
double unit_roundoff(int32_t dtype);
double least_step(int32_t dtype);

// A tensor of four axes with random strides: axes in any order, gaps between rows, heads and batches. Gaps hold NaN.
class Strided {
 public:
  Strided() = default;
  Strided(Random &random, int32_t dtype, int64_t batch, int64_t heads, int64_t rows, int64_t dim);

  double get(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return read_element(dtype_, bytes_.data(), at(b, h, i) + d);
  }
  void set(int64_t b, int64_t h, int64_t i, int64_t d, double value) {
    write_element(dtype_, bytes_.data(), at(b, h, i) + d, value);
  }
  regard_tensor tensor() const;

  // Whether all bytes between the rows still are what they were at first.
  bool gaps_untouched() const;

 private:
  int64_t at(int64_t b, int64_t h, int64_t i) const {
    return offset_ + b * strides_[0] + h * strides_[1] + i * strides_[2];
  }

  int32_t dtype_ = REGARD_FLOAT32;
  int64_t offset_ = 0, sizes_[4] = {}, strides_[3] = {};
  Exact<uint8_t> bytes_;
};

struct Probe {
  int32_t kind = 0;
  int64_t size = 0, size2 = 0, length = 0, out_size = 0;
  Exact<int64_t> list, keys;
  Exact<float> floats, rest;
  Exact<double> doubles;
};

enum class Poison { kNone, kHidden, kVisible };

// A call with all it points to.
struct RandomCall {
  RandomCall(uint64_t seed);

  int64_t group() const { return call.num_heads / call.num_kv_heads; }
  int64_t position(int64_t b, int64_t i) const;
  bool in_mask(int64_t b, int64_t h, int64_t i, int64_t j) const;
  bool blocked(int64_t b, int64_t h, int64_t i, int64_t j) const;  // by its bias
  bool visible(int64_t b, int64_t h, int64_t i, int64_t j) const { return in_mask(b, h, i, j) && !blocked(b, h, i, j); }
  double bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const;
  std::string describe() const;

  Random random;
  regard_call call{};
  Strided query, key, value, output;
  Exact<int64_t> positions;
  Exact<int32_t> low, high;
  Exact<uint8_t> allowed;  // bools [batch, head, q_len, kv_len] by `allowed_strides`
  int64_t allowed_strides[4] = {};
  Exact<int32_t> tiles;
  Exact<uint64_t> bits;
  Exact<uint8_t> bias;
  Exact<float> slopes, sinks, lse;
  std::vector<Probe> probes;
  std::vector<regard_probe> probe_structures;
  Poison poison = Poison::kNone;
  bool exact_scores = false;  // small whole numbers: ties are ties in every arithmetic
  std::string mask_fault;     // what was wrong with the answers of regard_mask_ranges and regard_mask_tiles

 private:
  bool cell_allowed(int64_t b, int64_t h, int64_t i, int64_t j) const;
  void choose_shape();
  void fill_tensors();
  void make_positions();
  void make_ranges();
  void make_allowed();
  void cut_allowed();
  void make_bias();
  void make_sinks();
  void make_probes();
  Probe make_probe(int32_t kind);
  void add_poison();
  void hide_poison();
  double not_finite();
};

}  // namespace driver
