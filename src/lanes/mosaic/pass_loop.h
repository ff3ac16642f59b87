// lanes/mosaic/pass_loop.h: what the forward kernel and that of sink telemetry
// are both made of: the loop over the passes of a list, with copies and scores
// ahead of what is done with them.
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
  // Of one that is absorbed: the number of its row among all that the loop
  // meets.
  std::optional<Value> turn = {};
};

// What goes through vector memory together: of a pass's head the queries of its
// tile from `first` on, `queries_` of them.
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

  // Takes the scores of a pass's strip, which are kept, into the sums.
  virtual void absorb(const Value& pass, const Place& p,
                      const Strip& strip) = 0;
  // What a row comes to, once what went out before is away.
  virtual void finish(const char* region, const Place& p,
                      const Value& rows_done) = 0;
  // For all that is still on its way out.
  virtual void wait_last(const Value& rows_done) = 0;
  // `rows_done` behind a pass, whose row `ends` with it or not.
  virtual Value after_row(const Value& rows_done, const Place& /*p*/,
                          const Value& ends) {
    return w_.add(rows_done, ends);
  }
  // Where pass `p`, whose scores come next, is `first` of a row; and before a
  // pass is absorbed.
  virtual void next_row(const Value& /*first*/, const Place& /*p*/,
                        const Value& /*turn*/) {}
  virtual void resume(const Place& /*p*/) {}
  // Before scores are masked; and before the first pass of all.
  virtual void clean(const Value& /*pass*/, const Place& /*p*/) {}
  virtual void before_loop() {}
  // Of a masked pass: whether something that it read must be repaired, and its
  // scores made again. It is known beside the scores' first time.
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
  // Of all strips, a head's one after another.
  void for_each_strip(const std::function<void(const Strip&)>& body);
  // What a pass's head `h` has of an array with as many rows for each of them,
  // of all queries; and a strip's part of it.
  Value load_of(const char* name, int64_t h, int64_t rows, int64_t first = 0);
  Value load_of(const char* name, const Strip& strip, int64_t rows);
  void store_of(const Value& value, const char* name, const Strip& strip);

  Place after(const Place& p);
  // The number of the pass's head `h` among all.
  Value head_at(const Place& p, int64_t h = 0);
  Value key_column(const Place& p, int64_t lanes);
  Value key_line(const Place& p);
  Value most_before(const Value& first, const Strip& strip);
  Value sum_before(const Value& first, const char* name, const Strip& strip);
  Value parts_of(const Value& tile);
  Value sum_of_parts(const char* name, int64_t h);
  // A number of each query, into a tile of the pass's heads and out.
  void store_line(const Value& line, const char* tile, int64_t h);
  void send_lines(const char* tile, const char* array, const Value& head,
                  const Value& query);

  int64_t ring_;
  int64_t keys_;
  int64_t heads_, kv_heads_;  // of a pass

 private:
  // A tile's keys on their way: of these heads, to a slot of the rings.
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
