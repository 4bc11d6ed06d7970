#include "random_call.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

namespace driver {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMostWork = 6'000'000;  // multiply-adds of a call; above what the kernels give to two threads

float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

int64_t Random::length(int64_t most) {
  const int64_t magnitude = int64_t{1} << between(0, static_cast<int64_t>(std::ceil(std::log2(most))));
  return std::min(most, between(1, magnitude));
}

double read_element(int32_t dtype, const void *data, int64_t at) {
  if (dtype == REGARD_FLOAT32) {
    float x;
    std::memcpy(&x, static_cast<const uint8_t *>(data) + 4 * at, sizeof x);
    return x;
  }
  uint16_t half;
  std::memcpy(&half, static_cast<const uint8_t *>(data) + 2 * at, sizeof half);
  return dtype == REGARD_BFLOAT16 ? from_bits(uint32_t{half} << 16) : _cvtsh_ss(half);
}

void write_element(int32_t dtype, void *data, int64_t at, double value) {
  const float x = static_cast<float>(value);
  if (dtype == REGARD_FLOAT32) {
    std::memcpy(static_cast<uint8_t *>(data) + 4 * at, &x, sizeof x);
    return;
  }
  const uint16_t half = dtype == REGARD_BFLOAT16 ? to_bfloat16(x) : _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<uint8_t *>(data) + 2 * at, &half, sizeof half);
}

int64_t element_size(int32_t dtype) { return dtype == REGARD_FLOAT32 ? 4 : 2; }

double unit_roundoff(int32_t dtype) {
  return dtype == REGARD_FLOAT32 ? 0x1p-24 : dtype == REGARD_BFLOAT16 ? 0x1p-8 : 0x1p-11;
}

double least_step(int32_t dtype) { return dtype == REGARD_FLOAT16 ? 0x1p-25 : 0x1p-126; }

Strided::Strided(Random &random, int32_t dtype, int64_t batch, int64_t heads, int64_t rows, int64_t dim)
    : dtype_(dtype), offset_(random.chance(0.5) ? 0 : random.between(1, 9)), sizes_{batch, heads, rows, dim} {
  int axes[3] = {2, 1, 0};  // from the innermost one out
  if (random.chance(0.6)) std::shuffle(axes, axes + 3, std::mt19937_64(random.between(0, 1 << 30)));
  int64_t step = dim, last = dim;
  for (const int axis : axes) {
    if (random.chance(0.3)) step += random.between(1, 20);
    strides_[axis] = step;
    last += (sizes_[axis] - 1) * step;
    step *= sizes_[axis];
  }
  bytes_ = Exact<uint8_t>((offset_ + last) * element_size(dtype), 0xff);  // NaN in all three types
}

regard_tensor Strided::tensor() const {
  return {bytes_.data() + offset_ * element_size(dtype_), strides_[0], strides_[1], strides_[2]};
}

bool Strided::gaps_untouched() const {
  std::vector<uint8_t> inside(bytes_.size(), 0);
  const int64_t width = element_size(dtype_);
  for (int64_t b = 0; b < sizes_[0]; b++)
    for (int64_t h = 0; h < sizes_[1]; h++)
      for (int64_t i = 0; i < sizes_[2]; i++)
        std::fill_n(inside.begin() + at(b, h, i) * width, sizes_[3] * width, 1);
  for (int64_t n = 0; n < bytes_.size(); n++)
    if (!inside[n] && bytes_[n] != 0xff) return false;
  return true;
}

RandomCall::RandomCall(uint64_t seed) : random(seed) {
  choose_shape();
  fill_tensors();
  make_positions();
  if (random.chance(0.5)) make_ranges();
  if (random.chance(0.35)) make_allowed();
  if (random.chance(0.4)) make_bias();
  if (random.chance(0.3)) make_sinks();
  if (random.chance(0.6)) make_probes();
  if (poison != Poison::kNone) add_poison();
}

void RandomCall::choose_shape() {
  call.dtype = random.one_of({REGARD_FLOAT32, REGARD_BFLOAT16, REGARD_FLOAT16});
  call.threads = static_cast<int32_t>(random.between(1, 2));
  call.head_dim = random.chance(0.3) ? random.one_of<int64_t>({64, 128, 256}) : random.length(256);
  call.value_dim = random.chance(0.4) ? call.head_dim : random.length(256);
  call.kv_len = random.chance(0.5) ? random.between(1, 600) : random.length(600);
  call.q_len = random.chance(0.35)  ? random.between(1, 20)  // decoding
               : random.chance(0.3) ? call.kv_len
                                    : random.length(600);
  if (random.chance(0.005)) {  // so long that a strip has fewer rows
    call.kv_len = random.between(20000, 60000);
    call.q_len = random.between(1, 60);
    call.head_dim = call.value_dim = random.between(1, 9);
  }
  call.num_kv_heads = random.between(1, 4);
  call.num_heads = call.num_kv_heads * (random.chance(0.5) ? 1 : random.between(2, 5));
  call.batch = random.between(1, 3);
  auto work = [&] { return call.batch * call.num_heads * call.q_len * call.kv_len * (call.head_dim + call.value_dim); };
  if (work() > kMostWork) call.batch = 1;
  if (work() > kMostWork) call.num_heads = group();
  call.num_kv_heads = std::min(call.num_kv_heads, call.num_heads);
  if (call.num_heads % call.num_kv_heads != 0) call.num_kv_heads = 1;
  if (work() > kMostWork) call.q_len = std::max<int64_t>(1, call.q_len * kMostWork / work());
  call.softcap = random.chance(0.25) ? static_cast<float>(1 + 20 * random.uniform()) : 0.f;
  exact_scores = random.chance(0.2) && call.softcap == 0;
  call.scale = exact_scores ? 0.25f : static_cast<float>((0.5 + random.uniform()) / std::sqrt(double(call.head_dim)));
  poison = random.one_of({Poison::kNone, Poison::kNone, Poison::kHidden, Poison::kVisible});
}

void RandomCall::fill_tensors() {
  query = Strided(random, call.dtype, call.batch, call.num_heads, call.q_len, call.head_dim);
  key = Strided(random, call.dtype, call.batch, call.num_kv_heads, call.kv_len, call.head_dim);
  value = Strided(random, call.dtype, call.batch, call.num_kv_heads, call.kv_len, call.value_dim);
  output = Strided(random, call.dtype, call.batch, call.num_heads, call.q_len, call.value_dim);
  const double size = random.one_of({0.3, 1., 3.});
  const int trend = static_cast<int>(random.between(0, 3));  // of the scores along the keys: none, up, down, one spike
  const int64_t spike = random.between(0, call.kv_len - 1);
  auto number = [&] { return exact_scores ? double(random.between(-2, 2)) : size * random.normal(); };
  auto along = [&](int64_t j) {
    if (exact_scores || trend == 0) return 1.;
    return trend == 3 ? (j == spike ? 4. : 0.5) : 2. * (trend == 1 ? j : call.kv_len - j) / call.kv_len;
  };
  for (int64_t b = 0; b < call.batch; b++) {
    for (int64_t h = 0; h < call.num_heads; h++)
      for (int64_t i = 0; i < call.q_len; i++)
        for (int64_t d = 0; d < call.head_dim; d++)
          query.set(b, h, i, d, trend == 0 || exact_scores ? number() : std::abs(number()));
    for (int64_t h = 0; h < call.num_kv_heads; h++)
      for (int64_t j = 0; j < call.kv_len; j++) {
        for (int64_t d = 0; d < call.head_dim; d++) key.set(b, h, j, d, along(j) * number());
        for (int64_t d = 0; d < call.value_dim; d++) value.set(b, h, j, d, random.normal());
      }
  }
  call.query = query.tensor();
  call.key = key.tensor();
  if (random.chance(0.9)) {
    call.value = value.tensor();
    call.output = output.tensor();
  }
  lse = Exact<float>(call.batch * call.num_heads * call.q_len, from_bits(0x7fc00000));
  call.lse = lse.data();
}

void RandomCall::make_positions() {
  call.kv_start = random.chance(0.3) ? random.between(0, 50) : 0;
  if (random.chance(0.5)) return;
  const bool each = random.chance(0.5);
  positions = Exact<int64_t>(call.q_len * (each ? call.batch : 1), 0);
  for (int64_t start = 0; start < positions.size(); start += call.q_len) {
    const int64_t first = random.between(-20, call.kv_start + call.kv_len + 20);
    std::iota(positions.data() + start, positions.data() + start + call.q_len, first);
  }
  call.q_positions = positions.data();
  call.q_positions_batch = each ? call.q_len : 0;
}

int64_t RandomCall::position(int64_t b, int64_t i) const {
  if (call.q_positions == nullptr) return call.kv_start + call.kv_len - call.q_len + i;
  return positions[b * call.q_positions_batch + i];
}

void RandomCall::make_ranges() {
  const bool batches = random.chance(0.5), heads = random.chance(0.3);
  const int64_t per_batch = heads ? call.num_heads * call.q_len : call.q_len;
  low = Exact<int32_t>(batches ? call.batch * per_batch : per_batch, 0);
  high = Exact<int32_t>(low.size(), 0);
  const int shape = static_cast<int>(random.between(0, 2));  // causal, a window, anything
  const int64_t window = random.between(1, call.kv_len);
  for (int64_t n = 0; n < low.size(); n++) {
    const int64_t place = std::clamp<int64_t>(position(0, n % call.q_len) - call.kv_start + 1, 0, call.kv_len);
    int64_t from = 0, to = place;
    if (shape == 1) from = std::max<int64_t>(0, place - window);
    if (shape == 2) from = random.between(0, call.kv_len), to = random.between(0, call.kv_len);  // often empty
    low[n] = static_cast<int32_t>(from);
    high[n] = static_cast<int32_t>(to);
  }
  call.mask.low = low.data();
  call.mask.high = high.data();
  call.mask.range_batch = batches ? per_batch : 0;
  call.mask.range_head = heads ? call.q_len : 0;
}

// A random bool tensor, and what the library makes of it: tiles for the mask, ranges too where it has none yet.
void RandomCall::make_allowed() {
  const int64_t batch = random.chance(0.5) ? call.batch : 1, heads = random.chance(0.5) ? call.num_heads : 1;
  const int64_t rows = random.chance(0.9) ? call.q_len : 1, gap = random.chance(0.5) ? random.between(0, 9) : 0;
  const bool transposed = random.chance(0.2);  // queries along the last axis
  const int64_t row_step = transposed ? 1 : call.kv_len + gap, key_step = transposed ? rows + gap : 1;
  const int64_t head_step = transposed ? key_step * call.kv_len : row_step * rows;
  const int64_t last = (batch * heads - 1) * head_step + (rows - 1) * row_step + (call.kv_len - 1) * key_step + 1;
  allowed = Exact<uint8_t>(last, 0);
  allowed_strides[0] = batch > 1 ? heads * head_step : 0;
  allowed_strides[1] = heads > 1 ? head_step : 0;
  allowed_strides[2] = rows > 1 ? row_step : 0;
  allowed_strides[3] = key_step;
  const double share = random.one_of({0.02, 0.5, 0.98, 1.});
  const int64_t run = random.length(200);  // allowed or not in runs, so that whole tiles are
  bool now = false;
  for (int64_t n = 0; n < last; n++) {
    if (random.between(1, run) == 1) now = random.chance(share);
    allowed[n] = now;
  }
  cut_allowed();
}

void RandomCall::cut_allowed() {
  const int64_t k_tiles = (call.kv_len + 63) / 64, q_tiles = (call.q_len + 15) / 16;
  tiles = Exact<int32_t>(call.batch * call.num_heads * q_tiles * k_tiles, INT32_MIN);
  auto cut = [&](uint64_t *to) {
    return regard_mask_tiles(allowed.data(), call.batch, call.num_heads, call.q_len, call.kv_len, allowed_strides,
                             tiles.data(), to);
  };
  const int64_t count = cut(nullptr);
  bits = Exact<uint64_t>(16 * count, 0);
  if (cut(bits.data()) != count) mask_fault = "regard_mask_tiles counts differently the second time";
  Exact<int32_t> first(call.batch * call.num_heads * call.q_len, -1), end(first.size(), -1);
  const int64_t gaps = regard_mask_ranges(allowed.data(), call.batch, call.num_heads, call.q_len, call.kv_len,
                                          allowed_strides, first.data(), end.data());
  int64_t expected_gaps = 0;
  std::vector<int64_t> cells_in(count, 0), allowed_in(count, 0);  // each tile that has bits
  for (int64_t row = 0; row < first.size(); row++) {
    const int64_t i = row % call.q_len, h = row / call.q_len % call.num_heads, b = row / call.q_len / call.num_heads;
    int64_t least = 0, most = 0, seen = 0;
    for (int64_t j = 0; j < call.kv_len; j++) {
      const int32_t tile = tiles[((b * call.num_heads + h) * q_tiles + i / 16) * k_tiles + j / 64];
      const bool bit = tile == REGARD_TILE_ALL || (tile >= 0 && bits[int64_t{tile} * 16 + i % 16] >> (j % 64) & 1);
      const bool cell = cell_allowed(b, h, i, j);
      if (bit != cell) mask_fault = "regard_mask_tiles gives a wrong bit";
      if (tile >= 0) cells_in[tile]++, allowed_in[tile] += cell;
      if (!cell) continue;
      if (seen++ == 0) least = j;
      most = j + 1;
    }
    expected_gaps += seen != most - least;
    if (first[row] != least || end[row] != most) mask_fault = "regard_mask_ranges gives a wrong range";
  }
  for (int64_t n = 0; n < count; n++)
    if (allowed_in[n] == 0 || allowed_in[n] == cells_in[n])
      mask_fault = "regard_mask_tiles keeps bits it has no need of";
  if (gaps != expected_gaps) mask_fault = "regard_mask_ranges counts its gaps wrong";
  call.mask.tiles = tiles.data();
  call.mask.bits = bits.data();
  call.mask.tiles_batch = call.num_heads * q_tiles * k_tiles;
  call.mask.tiles_head = q_tiles * k_tiles;
  if (call.mask.low != nullptr || random.chance(0.3)) return;
  low = std::move(first);
  high = std::move(end);
  call.mask.low = low.data();
  call.mask.high = high.data();
  call.mask.range_batch = call.num_heads * call.q_len;
  call.mask.range_head = call.q_len;
}

bool RandomCall::cell_allowed(int64_t b, int64_t h, int64_t i, int64_t j) const {
  return allowed[b * allowed_strides[0] + h * allowed_strides[1] + i * allowed_strides[2] + j * allowed_strides[3]];
}

bool RandomCall::in_mask(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (call.mask.low != nullptr) {
    const int64_t at = b * call.mask.range_batch + h * call.mask.range_head + i;
    if (j < low[at] || j >= high[at]) return false;
  }
  return call.mask.tiles == nullptr || cell_allowed(b, h, i, j);
}

void RandomCall::make_bias() {
  if (random.chance(0.4)) {
    slopes = Exact<float>(call.num_heads, 0.f);
    for (int64_t h = 0; h < call.num_heads; h++) slopes[h] = static_cast<float>(std::exp2(-8. * random.uniform()));
    call.bias.slopes = slopes.data();
    exact_scores = false;
    if (random.chance(0.6)) return;
  }
  call.bias.dtype = random.one_of({REGARD_FLOAT32, REGARD_BFLOAT16, REGARD_FLOAT16});
  const double lowest = call.bias.dtype == REGARD_FLOAT16 ? -65504. : -3.38e38;
  call.bias.blocked = static_cast<float>(lowest);
  const bool column = random.chance(0.85), row = random.chance(0.8);
  const bool head = random.chance(0.5), batch = random.chance(0.5);
  const int64_t columns = column ? call.kv_len : 1, gap = random.chance(0.3) ? random.between(1, 9) : 0;
  int64_t step = columns + gap;
  call.bias.column = column;
  call.bias.row = row ? step : 0;
  if (row) step *= call.q_len;
  call.bias.head = head ? step : 0;
  if (head) step *= call.num_heads;
  call.bias.batch = batch ? step : 0;
  const int64_t last = columns + call.bias.row * (call.q_len - 1) + call.bias.head * (call.num_heads - 1) +
                       call.bias.batch * (call.batch - 1);
  bias = Exact<uint8_t>(last * element_size(call.bias.dtype), 0);
  const double lowest_of_all = call.bias.dtype == REGARD_BFLOAT16 ? -0x1.fep127 : lowest;
  const double blocks = random.one_of({0., 0.1, 0.9});
  for (int64_t n = 0; n < last; n++) {
    double x = exact_scores ? double(random.between(-2, 2)) : 2 * random.normal();
    if (random.chance(blocks)) x = random.chance(0.5) ? -kInfinity : lowest_of_all;
    write_element(call.bias.dtype, bias.data(), n, x);
  }
  call.bias.data = bias.data();
}

double RandomCall::bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (call.bias.data == nullptr) return 0;
  return read_element(call.bias.dtype, bias.data(),
                      b * call.bias.batch + h * call.bias.head + i * call.bias.row + j * call.bias.column);
}

bool RandomCall::blocked(int64_t b, int64_t h, int64_t i, int64_t j) const {
  return call.bias.data != nullptr && bias_at(b, h, i, j) <= call.bias.blocked;
}

void RandomCall::make_sinks() {
  const bool rows = random.chance(0.3), batches = random.chance(0.3);
  call.sinks_row = rows;
  call.sinks_head = rows ? call.q_len : 1;
  call.sinks_batch = batches ? call.num_heads * call.sinks_head : 0;
  sinks = Exact<float>(call.num_heads * call.sinks_head * (batches ? call.batch : 1), 0.f);
  for (int64_t n = 0; n < sinks.size(); n++)
    sinks[n] = static_cast<float>(random.chance(0.1) ? -kInfinity : 4 * random.normal());
  call.sinks = sinks.data();
}

void RandomCall::make_probes() {
  for (int32_t kind = REGARD_ENTROPY; kind <= REGARD_WEIGHTS; kind++)
    for (int again = random.chance(0.5); again > 0; again = random.chance(0.1)) probes.push_back(make_probe(kind));
  std::shuffle(probes.begin(), probes.end(), std::mt19937_64(random.between(0, 1 << 30)));
  for (Probe &probe : probes) {
    void *out = probe.doubles.data() != nullptr ? static_cast<void *>(probe.doubles.data()) : probe.floats.data();
    probe_structures.push_back({probe.kind, probe.size, probe.size2, probe.length, probe.list.data(), out,
                                probe.keys.data(), probe.rest.data()});
  }
  call.probes = probe_structures.data();
  call.num_probes = static_cast<int64_t>(probe_structures.size());
}

Probe RandomCall::make_probe(int32_t kind) {
  const float nan = from_bits(0x7fc00000);
  const int64_t heads = call.batch * call.num_heads, rows = heads * call.q_len, end = call.kv_start + call.kv_len;
  Probe probe;
  probe.kind = kind;
  int64_t floats = rows;
  if (kind == REGARD_TOP_K) {
    probe.size = random.between(1, 64);
    floats = rows * probe.size;
    probe.keys = Exact<int64_t>(floats, -99);
    probe.rest = Exact<float>(rows, nan);
  } else if (kind == REGARD_FIRST_KEYS) {
    probe.size = random.between(0, end + 5);
  } else if (kind == REGARD_OFFSETS || kind == REGARD_SPANS) {
    probe.size = random.between(1, 5);
    floats = rows * probe.size;
    probe.list = Exact<int64_t>(kind == REGARD_SPANS ? 2 * probe.size : probe.size, 0);
    for (int64_t n = 0; n < probe.list.size(); n++)
      probe.list[n] = kind == REGARD_SPANS ? random.between(0, end + 9) : random.between(-call.kv_len, 2);
    if (kind == REGARD_SPANS)
      for (int64_t n = 0; n < probe.size; n++)
        if (probe.list[2 * n] > probe.list[2 * n + 1]) std::swap(probe.list[2 * n], probe.list[2 * n + 1]);
  } else if (kind == REGARD_WEIGHTS) {
    probe.size = random.length(std::min<int64_t>(call.q_len, 20));
    std::vector<int64_t> order(call.q_len);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(random.between(0, 1 << 30)));
    probe.list = Exact<int64_t>(probe.size, 0);
    std::copy_n(order.begin(), probe.size, probe.list.data());
    floats = heads * probe.size * call.kv_len;
  } else if (kind == REGARD_KEY_MASS || kind == REGARD_HEAT_MAP) {
    floats = 0;
    probe.size = random.length(40);
    probe.size2 = random.length(40);
    int64_t least = call.kv_start, most = end;
    for (int64_t b = 0; b < call.batch; b++) {
      least = std::min(least, position(b, 0));
      most = std::max(most, position(b, call.q_len - 1) + 1);
    }
    if (least >= 0 && random.chance(0.5)) probe.length = most + random.between(0, 9);
    probe.doubles = Exact<double>(heads * (kind == REGARD_KEY_MASS ? call.kv_len : probe.size * probe.size2), kNan);
  }
  if (floats > 0) probe.floats = Exact<float>(floats, nan);
  return probe;
}

double RandomCall::not_finite() { return random.one_of({kNan, kInfinity, -kInfinity}); }

void RandomCall::add_poison() {
  if (poison == Poison::kHidden) return hide_poison();
  for (int64_t n = random.between(1, 3); n > 0; n--) {
    const int64_t b = random.between(0, call.batch - 1), h = random.between(0, call.num_kv_heads - 1);
    const int64_t j = random.between(0, call.kv_len - 1), i = random.between(0, call.q_len - 1);
    switch (random.between(0, 3)) {
      case 0: key.set(b, h, j, random.between(0, call.head_dim - 1), not_finite()); break;
      case 1: value.set(b, h, j, random.between(0, call.value_dim - 1), not_finite()); break;
      case 2: query.set(b, h * group(), i, random.between(0, call.head_dim - 1), not_finite()); break;
      default:
        if (bias.size() > 0)
          write_element(call.bias.dtype, bias.data(),
                        random.between(0, bias.size() / element_size(call.bias.dtype) - 1),
                        random.chance(0.5) ? kNan : kInfinity);
    }
  }
}

// NaN and Inf in keys and values that no query sees, and in queries that see nothing: none may be felt.
void RandomCall::hide_poison() {
  for (int64_t b = 0; b < call.batch; b++)
    for (int64_t g = 0; g < call.num_kv_heads; g++) {
      std::vector<bool> key_seen(call.kv_len);
      for (int64_t h = g * group(); h < (g + 1) * group(); h++)
        for (int64_t i = 0; i < call.q_len; i++) {
          bool any = false;
          for (int64_t j = 0; j < call.kv_len; j++)
            if (visible(b, h, i, j)) any = key_seen[j] = true;
          if (!any && random.chance(0.5)) query.set(b, h, i, random.between(0, call.head_dim - 1), not_finite());
        }
      for (int64_t j = 0; j < call.kv_len; j++) {
        if (key_seen[j]) continue;
        if (random.chance(0.5)) key.set(b, g, j, random.between(0, call.head_dim - 1), not_finite());
        if (random.chance(0.5)) value.set(b, g, j, random.between(0, call.value_dim - 1), not_finite());
      }
    }
}

std::string RandomCall::describe() const {
  static const char *const kDtypes[] = {"float32", "bfloat16", "float16"};
  static const char *const kPoisons[] = {"none", "hidden", "visible"};
  static const char *const kKinds[] = {"entropy", "distance",  "sink_share", "top_k",    "first_keys",
                                       "offsets", "spans", "key_mass",   "heat_map", "weights"};
  std::ostringstream text;
  text << kDtypes[call.dtype] << " batch=" << call.batch << " heads=" << call.num_heads << "/" << call.num_kv_heads
       << " q_len=" << call.q_len << " kv_len=" << call.kv_len << " head_dim=" << call.head_dim
       << " value_dim=" << call.value_dim << " threads=" << call.threads << " kv_start=" << call.kv_start
       << " softcap=" << call.softcap << (call.value.data == nullptr ? " no output" : "")
       << (call.q_positions != nullptr ? " positions" : "") << (call.mask.low != nullptr ? " ranges" : "")
       << (call.mask.tiles != nullptr ? " tiles" : "");
  if (call.bias.data != nullptr)
    text << " bias=" << kDtypes[call.bias.dtype] << "(" << call.bias.batch << "," << call.bias.head << ","
         << call.bias.row << "," << call.bias.column << ")";
  text << (call.bias.slopes != nullptr ? " slopes" : "") << (call.sinks != nullptr ? " sinks" : "")
       << (exact_scores ? " exact" : "") << " poison=" << kPoisons[static_cast<int>(poison)];
  for (const Probe &probe : probes) text << " " << kKinds[probe.kind] << "(" << probe.size << ")";
  return text.str();
}

}  // namespace driver
