// Probes: what the weights of a call are asked, answered block by block while the weights are in the cache.
//
// Statistics of single rows are gathered by the softmax. All else reads the strip: the exponentials of a whole block of
// rows, kept until the rows' sums are known. Sums over queries go to sums of their own for each part of the rows and are
// added up in order at the end, so results do not depend on which thread came first.
#pragma once

#include <vector>

#include "softmax.h"

namespace regard {

// Exponentials of a block, tile after tile, each with the largest score it was counted from.
struct Strip {
  float *exponentials;  // [tile][rows][kTileRow]
  float *bases;         // [tile][rows]: the largest score that the tile's exponentials were counted from
  int64_t rows;
  int64_t tiles;
  int64_t keys[2];  // first and end, the first a multiple of kPanel

  float *tile(int64_t t) const { return exponentials + t * rows * kTileRow; }
  float *tile_bases(int64_t t) const { return bases + t * rows; }
  int64_t tile_of(int64_t key) const { return key / kTile - keys[0] / kTile; }
  int64_t tile_key(int64_t t) const { return std::max(keys[0], (keys[0] / kTile + t) * kTile); }
  int64_t tile_end(int64_t t) const { return std::min(keys[1], tile_start_after(tile_key(t))); }
};

// How a row's exponentials become weights.
struct RowEnd {
  float lse;
  float scale;   // weight = scale · exp(score − largest)
  float sink;    // share of the sink
  bool regular;  // false: NaN or Inf is about, the row is done again by `careful_row`
};

RowEnd end_row(const Block &block, int r, float largest, float sum);

// What is asked of a call, read once.
class ProbePlan {
 public:
  explicit ProbePlan(const regard_call &call);

  Gathered gathered;
  bool strip = false;    // whether any probe reads the strip
  bool columns = false;  // whether any probe adds up over queries

  // Doubles that the column sums of rows [first, end) of a unit take.
  int64_t column_size(const Unit &unit, int64_t first_row, int64_t end_row) const;

  // Bin of a query in a heat map, or −1 outside.
  int64_t query_bin(const regard_probe &map, int64_t batch, int64_t query) const;
  int64_t key_edge(const regard_probe &map, int64_t bin) const;  // first key index at or behind the edge

  const regard_call &call;
  std::vector<std::vector<int64_t>> key_edges;  // of each HEAT_MAP: where its bins of keys start, and the end
  std::vector<std::vector<int64_t>> places;  // of each WEIGHTS probe: where a query's row goes, −1 for nowhere
};

// Column sums of a part of a unit's rows.
class ColumnSums {
 public:
  // Takes `column_size` doubles at `sums` as its own.
  ColumnSums(const ProbePlan &plan, const Unit &unit, int64_t first_row, int64_t end_row, double *sums);

  // Sets them to 0.
  void clear();

  // Adds the regular rows of a block.
  void add(const Block &block, const Strip &strip, const RowEnd *ends, const RowStatistics &rows);

  // Adds one weight.
  void add_one(const Block &block, int r, int64_t key, double weight);

  // Adds all of it to the results; parts of a unit in order of their rows.
  void flush() const;

 private:
  struct Part {
    const regard_probe *probe;
    const int64_t *key_edges;  // of a heat map: where each bin of keys starts
    int64_t first_bin, bins;
    double *sums;  // [head of the unit][bins][columns]; bins is 1 for KEY_MASS
  };

  int64_t columns(const Part &part) const;
  void add_segment(const Block &block, const Strip &strip, const RowEnd *ends, const RowStatistics &rows, int from,
                   int to);
  void add_to_map(const Part &part, double *row, int64_t key, int64_t width, const float *sums) const;

  const ProbePlan &plan_;
  Unit unit_;
  std::vector<Part> parts_;
};

// Ends a block: turns sums into outputs, writes lse, output and all probes. `sums` is [row][value_dim], padded.
void finish_block(const ProbePlan &plan, const Block &block, RowStatistics &rows, float *sums, int64_t value_dim,
                  const Strip *strip, ColumnSums *columns);

// Sets the results that are added to to 0.
void clear_columns(const regard_call &call);

// Where a query's row of a WEIGHTS probe goes, NULL for nowhere.
float *weights_row(const ProbePlan &plan, int64_t probe, const Block &block, int r);

// A row in which NaN or Inf is about, from the definitions. Adds to `columns` and writes `output` unless they are NULL.
void careful_row(const ProbePlan &plan, const Block &block, int r, ColumnSums *columns, float *output);

// Writes what single rows are asked.
void write_rows(const ProbePlan &plan, const Block &block, const RowEnd *ends, RowStatistics &rows, const Strip *strip);

}  // namespace regard
