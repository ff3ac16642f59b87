// lanes/xla/shard_frame_test.cc: simulates the exchanges from the integers that
// each device receives, without devices.
#include "lanes/xla/shard_frame.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lanes/xla/planned.h"
#include "lanes/xla/shard_arrays.h"
#include "lanes/xla/shard_shape.h"
#include "tests/hold_for_all.h"
#include "tests/sharded_run.h"

namespace tessera::xla {
namespace {

using Fault = std::optional<std::string>;
using Tiles = std::vector<TileAt> Shard::*;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// The exchange integers of one shard.
struct Told {
  std::vector<int32_t> sends, slices;

  int64_t begin(int64_t way, int64_t other) const {
    return slices[at(2 * way * devices() + other)];
  }
  int64_t tiles(int64_t way, int64_t other) const {
    return slices[at((2 * way + 1) * devices() + other)];
  }
  int64_t devices() const { return static_cast<int64_t>(slices.size()) / 4; }
};

// Checks that each slot of a receiver's buffer gets the tile of its list.
Fault tiles_fault(const Shards& shards, const Exchange& e,
                  const std::vector<Told>& told, Tiles tiles) {
  const int64_t seq = shards.mesh.size("seq");
  for (size_t to = 0; to < told.size(); ++to) {
    const Shard& receiver = shards.shards[to];
    std::vector<TileAt> came(at(e.max_received()));
    const size_t first = to - at(receiver.seq);
    for (int64_t s = 0; s < seq; ++s) {
      const Told& sender = told[first + at(s)];
      const int64_t begin = sender.begin(0, receiver.seq);
      const int64_t n = sender.tiles(0, receiver.seq);
      if (n > 0 && s == receiver.seq) return "a shard sends to itself";
      if (told[to].tiles(1, s) != n ||
          (n > 0 && told[to].begin(1, s) != begin)) {
        return "what goes back is not what came";
      }
      if (begin < 0 || n < 0 || begin + n > e.max_received())
        return "no room for it";
      for (int64_t i = begin; i < begin + n; ++i) {
        if (came[at(i)].tile >= 0) return "two tiles come to one place";
        const int64_t number = sender.sends[at(i)];
        if (number < 0 || number >= e.own) return "it is not the sender's";
        came[at(i)] = (shards.shards[first + at(s)].*tiles)[at(number)];
        if (came[at(i)].tile < 0) return "no tile is sent";
      }
    }
    for (int64_t i = 0; i < e.max_received(); ++i) {
      if (came[at(i)] != (receiver.*tiles)[at(e.own + i)]) {
        return "another tile came";
      }
    }
  }
  return {};
}

// Checks that every device is in one group, which has the devices that differ
// only along "seq", in order.
Fault groups_fault(const Mesh& mesh, const Writer::Groups& groups) {
  const auto place_of = [&](int64_t device) {
    std::map<std::string, int64_t> out;
    for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) {
      out[axis->name] = device % axis->size;
      device /= axis->size;
    }
    return out;
  };
  std::set<int64_t> seen;
  for (const Dims& group : groups) {
    if (static_cast<int64_t>(group.size()) != mesh.size("seq")) return "size";
    for (size_t s = 0; s < group.size(); ++s) {
      if (!seen.insert(group[s]).second) return "a device is in two groups";
      auto due = place_of(group[0]);
      if (mesh.has("seq")) due["seq"] = static_cast<int64_t>(s);
      if (place_of(group[s]) != due) return "another device";
    }
  }
  if (static_cast<int64_t>(seen.size()) != mesh.devices()) return "one lacks";
  return {};
}

// Bytes of one tile of all arrays of keys, or of queries, that travel on a
// device: every array of tokens that the program takes or gives.
int64_t bytes_of_tile(const ShardShape& shape, bool keys) {
  const Exchange& e = keys ? shape.columns : shape.rows;
  int64_t out = 0;
  const auto add = [&](const std::vector<ShardArray>& arrays) {
    for (const ShardArray& a : arrays) {
      const std::string& name = a.part.name;
      if (a.is_own || name.ends_with("sink_logits")) continue;
      if (is_of_keys(name) != keys) continue;
      // Gradients of keys are rounded only after they were added at home.
      const bool is_sum = name == "dk" || name == "dv";
      const Dtype dtype = is_sum ? Dtype::f32 : dtype_of(a.part.type.element);
      out += a.part.type.elements() / a.part.type.dims[2] * e.tokens *
             byte_width(dtype);
    }
  };
  add(shard_arguments(shape));
  add(shard_results(shape));
  return out;
}

// Tiles that all devices are told to send.
int64_t tiles_told(const std::vector<Told>& told) {
  int64_t out = 0;
  for (const Told& sender : told) {
    for (int64_t to = 0; to < sender.devices(); ++to)
      out += sender.tiles(0, to);
  }
  return out;
}

// Checks that the report's sent bytes are the tiles that devices are told to
// send, in the program's arrays.
Fault sent_fault(const Shards& shards, const ShardShape& shape,
                 const std::vector<Told>& rows,
                 const std::vector<Told>& columns) {
  const bool backward = shape.local.backward;
  const Moved& moved =
      backward ? shards.report.backward : shards.report.forward;
  const int64_t told = shards.mesh.size("copy") *
                       (tiles_told(columns) * bytes_of_tile(shape, true) +
                        tiles_told(rows) * bytes_of_tile(shape, false));
  if (told == moved.sent) return {};
  return std::string(backward ? "backward" : "forward") + " sends " +
         std::to_string(told) + " bytes, reported " +
         std::to_string(moved.sent);
}

Fault exchange_fault(const testing::RandomCase& plan) {
  testing::ShardedCase c = testing::random_sharded(plan);
  c.options.exchange = TileExchange::ragged;
  // Dims that the lane takes.
  c.options.shape.head_dim *= 8;
  c.options.shape.v_head_dim *= 8;
  c.options.dlse = plan.seed % 3 == 0;
  if (plan.seed % 5 < 2) c.options.dtype = Dtype::bf16;
  c.mesh.axes.insert(
      c.mesh.axes.begin() + static_cast<std::ptrdiff_t>(plan.seed % 4),
      {"copy", 1 + static_cast<int64_t>(plan.seed % 2)});
  auto request = plan.request();
  if (!request) return request.error().message;
  auto batch = BorrowedBatch::make(*request, plan.facts());
  if (!batch) return batch.error().message;
  auto shards = make_shards(*batch, c.mesh, c.options);
  if (!shards) return describe(c) + ": " + shards.error().message;
  const ShardFrame frame = frame_of(*shards);
  std::vector<Told> rows, columns;
  for (size_t s = 0; s < shards->shards.size(); ++s) {
    auto integers = exchange_integers(frame, *shards, s);
    rows.push_back({integers["q_sends"], integers["q_slices"]});
    columns.push_back({integers["kv_sends"], integers["kv_slices"]});
  }
  for (const auto& [e, told, tiles] :
       {std::tuple(&frame.rows, &rows, &Shard::rows),
        std::tuple(&frame.columns, &columns, &Shard::columns)}) {
    if (auto fault = groups_fault(c.mesh, e->groups)) {
      return describe(c) + ": groups: " + *fault;
    }
    if (e->max_received() == 0) continue;
    if (auto fault = tiles_fault(*shards, *e, *told, tiles)) {
      return describe(c) + ": " + *fault;
    }
  }
  // The lane's integer arrays have the same values under the same names.
  const AttentionCall call = {c.options.shape, c.options.dtype,
                              plan.seed % 2 == 0, true, c.options.dlse};
  const auto shape = shard_shape(*batch, *shards, call, false);
  if (!shape) {
    const std::string& why = shape.error().message;
    // shard/plan_heads_test.cc tests when this happens.
    if (why.starts_with("[xla] heads of a device must be those of")) return {};
    return describe(c) + ": " + why;
  }
  for (const ShardShape& way : {*shape, backward_shape(*shape, call)}) {
    if (auto fault = sent_fault(*shards, way, rows, columns)) {
      return describe(c) + ": " + *fault;
    }
  }
  auto integers = make_shard_integers(*shape, *batch, *shards);
  if (!integers) {
    // Padding may exceed the positions that the lane supports.
    const std::string& why = integers.error().message;
    if (why.starts_with("[xla] positions must be within")) return {};
    return describe(c) + ": " + why;
  }
  for (size_t s = 0; s < shards->shards.size(); ++s) {
    for (const auto& [name, values] : exchange_integers(frame, *shards, s)) {
      if ((*integers)[s].at(std::string(name)) != values) {
        return describe(c) + ": the lane has other " + std::string(name);
      }
    }
  }
  return {};
}

TEST(ShardFrame, ARaggedExchangeBringsEachTileToItsPlace) {
  testing::hold_for_all(exchange_fault, 400);
}

}  // namespace
}  // namespace tessera::xla
