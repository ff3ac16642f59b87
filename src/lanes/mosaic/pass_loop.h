// lanes/mosaic/pass_loop.h: the loop over the passes of a list, which the
// forward kernel and the sink telemetry kernel share. Copies and scores run
// ahead of the softmax.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/parts.h"

namespace tessera::mosaic {

// Slots of the rings of buffers.
int64_t ring_size(const KernelShape& s);

// A place in the loop over passes: the head, and the pass's first step.
struct Place {
  Value head;
  Value at;
  // For a pass to absorb: the number of its row among all that the loop meets.
  std::optional<Value> turn = {};
};

// The unit of work in a pass: `queries_` queries of a head from `first` on.
struct Strip {
  int64_t head = 0, first = 0;
};

class PassLoop : protected Parts {
 public:
  virtual ~PassLoop() = default;

  std::string write(std::string_view name) {
    return function(name, Grid::pages, [this] { batch_row(); });
  }

 protected:
  // An array in HBM whose rows are keys, and the ring that it comes through.
  struct OfKeys {
    const char* array;
    const char* ring;
    int64_t dim;
  };
  PassLoop(const KernelShape& shape, const std::vector<Argument>& arguments,
           std::vector<OfKeys> of_keys);

  // Adds the stored scores of a pass's strip to the sums of its row.
  virtual void absorb(const Value& pass, const Place& p,
                      const Strip& strip) = 0;
  // Sends a row's results out, once the previous row's copies are complete.
  virtual void finish(const char* region, const Place& p,
                      const Value& rows_done) = 0;
  // Waits for all copies out that are not complete yet.
  virtual void wait_last(const Value& rows_done) = 0;
  // `rows_done` after a pass; `ends` is 1 if the pass ends its row, else 0.
  virtual Value after_row(const Value& rows_done, const Place& /*p*/,
                          const Value& ends) {
    return w_.add(rows_done, ends);
  }
  // next_row: called before the scores of pass `p` are made, where `first` says
  // whether the pass begins a row. resume: called before a pass is absorbed.
  virtual void next_row(const Value& /*first*/, const Place& /*p*/,
                        const Value& /*turn*/) {}
  virtual void resume(const Place& /*p*/) {}
  // Called before scores are masked, and before the first pass.
  virtual void clean(const Value& /*pass*/, const Place& /*p*/) {}
  virtual void before_loop() {}
  // Whether data that a masked pass read must be repaired and its scores made
  // again. The check is written beside the first scores.
  virtual std::optional<Value> has_strays_in(const Value& /*pass*/) {
    return {};
  }
  virtual void repair(const Value& /*pass*/) {}

  Value slot_of(const Value& count) {
    return w_.bit_and(count, w_.constant(static_cast<int32_t>(ring_ - 1)));
  }
  Value slot_of(const Value& count, int64_t heads, int64_t h) {
    return of_head(slot_of(count), heads, h);
  }
  Value least_score();
  Value unit_natural();
  std::vector<int64_t> tile_shape() const { return {keys_, queries_}; }
  // Runs body for every strip, head by head.
  void for_each_strip(const std::function<void(const Strip&)>& body);
  // Head h's rows of an array with equally many rows for each head of the pass:
  // for all queries, or for those of a strip.
  Value load_of(const char* name, int64_t h, int64_t rows, int64_t first = 0);
  Value load_of(const char* name, const Strip& strip, int64_t rows);
  void store_of(const Value& value, const char* name, const Strip& strip);

  Place after(const Place& p);
  // The number of the pass's head `h` among all heads.
  Value head_at(const Place& p, int64_t h = 0);
  Value key_column(const Place& p, int64_t lanes);
  Value key_line(const Place& p);
  Value most_before(const Value& first, const Strip& strip);
  Value sum_before(const Value& first, const char* name, const Strip& strip);
  Value parts_of(const Value& tile);
  Value sum_of_parts(const char* name, int64_t h);
  // store_line stores one number per query of head h in a tile; send_lines
  // starts the copy of the tile to HBM.
  void store_line(const Value& line, const char* tile, int64_t h);
  void send_lines(const char* tile, const char* array, const Value& head,
                  const Value& query);

  int64_t ring_;
  int64_t keys_;
  int64_t heads_, kv_heads_;  // of a pass

 private:
  // The copy of a tile's keys: of which kv heads, to which slot of the rings.
  struct Keys {
    Value kv_head, slot, done;
    int64_t tile;  // of the pass
  };
  void fetch_keys(const Keys& keys, const Value& key, size_t part);
  void fetch(const char* region, const char* bits_region, const Place& p,
             const Value& pass, const Value& rows);
  Value key_ids(const Place& p, int32_t dim,
                const std::function<Value(const Value&)>& part);
  void wait_keys(const Value& pass);
  void wait_row(const Value& first, const Value& rows);
  Value load_queries(const Value& slot, int64_t first);
  Value scores_at(const Value& pass, const Value& rows, const Strip& strip);
  std::vector<Value> legal_pairs(const Value& pass, const Place& p);
  void keep(const Value& scores, const Strip& strip);
  struct ScoreRegions {
    const char *clean, *repair;
  };
  void scores(const ScoreRegions& regions, bool masked, const Value& pass,
              const Place& p, const Value& rows,
              const std::function<void(const Strip&)>& beside);
  void batch_row();

  std::vector<OfKeys> of_keys_;
};

}  // namespace tessera::mosaic
