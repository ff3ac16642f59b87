// lanes/mosaic/shard_arrays.cc: a batch on a mesh, as the integers that each
// device's kernel reads.
#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "lanes/mosaic/array_check.h"
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/shard_steps.h"
#include "lanes/mosaic/shards.h"
#include "lanes/mosaic/tile_bits.h"
#include "lanes/mosaic/token_ids.h"
#include "lanes/xla/shard_frame.h"
#include "plan/batch_state.h"
#include "tessera/mosaic.h"

namespace tessera {
namespace {

using mosaic::KeyIds;
using mosaic::kNoKey;
using mosaic::kNotThere;

class ShardArrayMaker {
 public:
  ShardArrayMaker(const Batch& batch, const Batch::State& state,
                  const Shards& shards, const MosaicKernel& kernel,
                  mosaic::TileBitmaps& bitmaps)
      : batch_(batch),
        bound_(state.sweep.bound),
        shards_(shards),
        kernel_(kernel),
        bitmaps_(bitmaps) {
    // Bitmaps say which pairs are legal; ids say what vetoes take.
    rows_.reserve(bound_.rows.size());
    for (int64_t b = 0; b < bound_.batch; ++b) {
      rows_.push_back(mosaic::veto_row(state.request, bound_, b));
    }
    of_key_.resize(rows_.size());
    for (size_t b = 0; b < rows_.size(); ++b) {
      of_key_[b].resize(static_cast<size_t>(bound_.kv_len));
      ids_.emplace_back(bound_, rows_[b], mosaic::Rule(), of_key_[b]);
    }
  }

  // Of the whole pass, and of each call what it has to itself: steps, where
  // their bitmaps are, and rows.
  struct Made {
    MosaicArrays all;
    std::vector<MosaicArrays> calls;
    std::vector<std::vector<int32_t>> rows;
  };
  Result<Made> make(size_t index, const std::vector<mosaic::Turn>& turns) {
    const Shard& shard = shards_.shards[index];
    auto calls =
        mosaic::steps_of_calls(batch_, bound_, shards_, index, kernel_, turns);
    if (!calls) return calls.error();
    std::vector<mosaic::CallTiles> tiles;
    for (const mosaic::CallSteps& c : *calls) {
      const auto found = static_cast<int64_t>(c.steps.steps.size());
      if (found > kernel_.steps) {
        return over_limit("mosaic", "steps must fit the kernel's {}, found {}",
                          kernel_.steps, found);
      }
      tiles.push_back({&c.steps, c.shift});
    }
    auto bits = mosaic::make_shard_bits(bitmaps_, shard, batch_.plan().heads,
                                        tiles, kernel_);
    if (!bits) return bits.error();
    Made made;
    MosaicArrays& out = made.all;
    out.bits = std::move(bits->words);
    for (size_t c = 0; c < calls->size(); ++c) {
      MosaicArrays& own = made.calls.emplace_back();
      own.bits_of = std::move(bits->of_step[c]);
      if (auto e = mosaic::place_steps((*calls)[c].steps, kernel_, own); !e) {
        return e.error();
      }
      made.rows.push_back(std::move((*calls)[c].rows));
    }
    out.bounds.assign(static_cast<size_t>(mosaic::kBoundsHead) + 1, 0);
    add_query_ids(shard, out.q_ids);
    add_key_ids(shard, out.kv_ids);
    return made;
  }

 private:
  // Queries that another device computes are not there: each has one.
  void add_query_ids(const Shard& shard, std::vector<int32_t>& out) const {
    const int64_t tokens = kernel_.tile.q;
    out.assign(static_cast<size_t>(kernel_.q_len), kNotThere);
    for (size_t i = 0; i < shard.rows.size(); ++i) {
      const TileAt& t = shard.rows[i];
      if (t.tile < 0 || !shard.computes[i]) continue;
      const int64_t first = t.tile * tokens;
      const int64_t real = std::min(tokens, bound_.q_len - first);
      ids_[static_cast<size_t>(t.batch_row)].queries(
          first, std::span(out).subspan(i * static_cast<size_t>(tokens),
                                        static_cast<size_t>(real)));
    }
  }
  void add_key_ids(const Shard& shard, std::vector<int32_t>& out) const {
    const int64_t tokens = kernel_.tile.kv;
    out.assign(static_cast<size_t>(kernel_.kv_len), kNoKey);
    for (size_t i = 0; i < shard.columns.size(); ++i) {
      const TileAt& t = shard.columns[i];
      if (t.tile < 0) continue;
      const int64_t first = t.tile * tokens;
      const int64_t real = std::min(tokens, bound_.kv_len - first);
      std::ranges::copy(
          ids_[static_cast<size_t>(t.batch_row)].keys().subspan(
              static_cast<size_t>(first), static_cast<size_t>(real)),
          out.begin() + static_cast<int64_t>(i) * tokens);
    }
  }

  const Batch& batch_;
  const mask::Bound& bound_;
  const Shards& shards_;
  const MosaicKernel& kernel_;
  mosaic::TileBitmaps& bitmaps_;
  std::vector<mask::BoundRow> rows_;
  std::vector<std::vector<int32_t>> of_key_;  // of a batch row
  std::vector<KeyIds> ids_;
};

Result<void> check_kernel(const Shards& shards, const MosaicKernel& kernel) {
  const auto same = [](std::string_view what, int64_t found,
                       int64_t due) -> Result<void> {
    if (found == due) return {};
    return invalid("mosaic", "{} of a device must be the kernel's {}, found {}",
                   what, due, found);
  };
  if (auto e =
          same("queries", shards.shapes.rows * shards.tile.q, kernel.q_len);
      !e) {
    return e;
  }
  if (auto e =
          same("keys", shards.shapes.columns * shards.tile.kv, kernel.kv_len);
      !e) {
    return e;
  }
  if (kernel.plan.key == shards.contract_key) return {};
  return invalid("mosaic",
                 "shards must have the kernel's contract {}, found {}",
                 kernel.plan.key, shards.contract_key);
}

std::vector<int64_t> of_device(std::vector<int64_t> shape) {
  shape.insert(shape.begin(), {1, 1, 1});
  return shape;
}

// Of a call: what it has to itself, under its own names.
void add_call(const MosaicKernel& kernel, mosaic::Turn turn, MosaicArrays call,
              std::vector<int32_t> rows, std::vector<MosaicArray>& to) {
  for (MosaicArray& a : named_arrays(kernel, std::move(call))) {
    const std::string_view name = mosaic::own_name(turn, a.name);
    if (name.empty()) continue;
    to.push_back({name, of_device(std::move(a.shape)), std::move(a.values)});
  }
  if (rows.empty()) return;
  const auto words = static_cast<int64_t>(rows.size());
  to.push_back(
      {mosaic::own_name(turn, "rows"), of_device({words}), std::move(rows)});
}

// In the program's order: first those of all calls.
void add_arrays(const MosaicKernel& kernel,
                const std::vector<mosaic::Turn>& turns,
                ShardArrayMaker::Made made, std::vector<MosaicArray>& to) {
  for (MosaicArray& a : named_arrays(kernel, std::move(made.all))) {
    if (!mosaic::own_name(mosaic::Turn::only, a.name).empty()) continue;
    to.push_back({a.name, of_device(std::move(a.shape)), std::move(a.values)});
  }
  for (size_t c = 0; c < turns.size(); ++c) {
    add_call(kernel, turns[c], std::move(made.calls[c]),
             std::move(made.rows[c]), to);
  }
}

}  // namespace

Result<std::vector<std::vector<MosaicArray>>> make_mosaic_shard_arrays(
    const Batch& batch, const Shards& shards, const MosaicKernel& kernel) {
  auto read = plan::read_batch(batch, "mosaic");
  if (!read) return read.error();
  if (auto e = check_kernel(shards, kernel); !e) return e.error();
  auto bitmaps = mosaic::TileBitmaps::make(**read, kernel);
  if (!bitmaps) return bitmaps.error();
  const xla::ShardFrame frame = xla::frame_of(shards);
  const std::vector<mosaic::Turn> turns =
      mosaic::turns_of(frame, kernel.call.backward);
  ShardArrayMaker maker(batch, **read, shards, kernel, *bitmaps);
  std::vector<std::vector<MosaicArray>> out;
  for (size_t s = 0; s < shards.shards.size(); ++s) {
    auto made = maker.make(s, turns);
    if (!made) return made.error();
    std::vector<MosaicArray>& arrays = out.emplace_back();
    auto integers = xla::exchange_integers(frame, shards, s);
    for (const xla::ShardArray& a : xla::exchange_arrays(frame)) {
      const auto at = integers.find(a.part.name);
      arrays.push_back({at->first, a.part.type.dims, std::move(at->second)});
    }
    add_arrays(kernel, turns, std::move(*made), arrays);
  }
  return out;
}

}  // namespace tessera
