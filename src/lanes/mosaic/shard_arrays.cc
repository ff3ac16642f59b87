// lanes/mosaic/shard_arrays.cc: makes the integers that each device's kernel
// reads for a batch on a mesh.
#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

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
        vetoed_(mosaic::vetoed_tiles(bound_)),
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

  // Arrays that all calls share, and each call's own: steps, the numbers of
  // their bitmaps, and rows.
  struct Made {
    MosaicArrays all;  // without bits
    std::vector<MosaicArrays> calls;
    std::vector<std::vector<int32_t>> rows;
  };
  // `bits`: where the device's bitmaps are written, all 0 before.
  Result<Made> make(size_t index, const std::vector<mosaic::Turn>& turns,
                    std::span<int32_t> bits) {
    const Shard& shard = shards_.shards[index];
    auto calls =
        mosaic::steps_of_calls(batch_, vetoed_, shards_, index, kernel_, turns);
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
    auto of_step = mosaic::make_shard_bits(bitmaps_, shard, batch_.plan().heads,
                                           tiles, kernel_, bits);
    if (!of_step) return of_step.error();
    Made made;
    MosaicArrays& out = made.all;
    for (size_t c = 0; c < calls->size(); ++c) {
      MosaicArrays& own = made.calls.emplace_back();
      own.bits_of = std::move((*of_step)[c]);
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
  // Queries that another device computes get kNotThere here.
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
  mosaic::VetoedTiles vetoed_;
  const Shards& shards_;
  const MosaicKernel& kernel_;
  mosaic::TileBitmaps& bitmaps_;
  std::vector<mask::BoundRow> rows_;
  std::vector<std::vector<int32_t>> of_key_;  // of each batch row
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

// Arrays of the whole mesh, from those of its devices in their order.
class WholeArrays {
 public:
  explicit WholeArrays(const Shards& shards)
      : devices_(shards.shards.size()),
        mesh_{shards.mesh.size("data"), shards.mesh.size("head"),
              shards.mesh.size("seq")} {}

  void begin_device() { next_ = 0; }
  // Appends an array of the current device; `shape` is without the mesh's axes.
  void add(std::string_view name, std::vector<int64_t> shape,
           std::span<const int32_t> values) {
    if (next_ == arrays_.size()) {
      shape.insert(shape.begin(), mesh_.begin(), mesh_.end());
      arrays_.push_back({name, std::move(shape), {}});
      arrays_.back().values.reserve(devices_ * values.size());
    }
    std::vector<int32_t>& to = arrays_[next_++].values;
    to.insert(to.end(), values.begin(), values.end());
  }
  std::vector<MosaicArray> take() { return std::move(arrays_); }

 private:
  size_t devices_;
  std::array<int64_t, 3> mesh_;
  size_t next_ = 0;
  std::vector<MosaicArray> arrays_;
};

// Adds the arrays that a call has for itself, under their names for the call.
void add_call(const MosaicKernel& kernel, mosaic::Turn turn, MosaicArrays call,
              const std::vector<int32_t>& rows, WholeArrays& to) {
  for (MosaicArray& a : named_arrays(kernel, std::move(call))) {
    const std::string_view name = mosaic::own_name(turn, a.name);
    if (!name.empty()) to.add(name, std::move(a.shape), a.values);
  }
  if (rows.empty()) return;
  to.add(mosaic::own_name(turn, "rows"), {static_cast<int64_t>(rows.size())},
         rows);
}

// In the program's order: first the arrays that all calls share.
void add_arrays(const MosaicKernel& kernel,
                const std::vector<mosaic::Turn>& turns,
                ShardArrayMaker::Made made, WholeArrays& to) {
  for (MosaicArray& a : named_arrays(kernel, std::move(made.all))) {
    if (!mosaic::own_name(mosaic::Turn::only, a.name).empty()) continue;
    to.add(a.name, std::move(a.shape), a.values);
  }
  for (size_t c = 0; c < turns.size(); ++c) {
    add_call(kernel, turns[c], std::move(made.calls[c]), made.rows[c], to);
  }
}

}  // namespace

Result<std::vector<MosaicArray>> make_mosaic_shard_arrays(
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
  // Bitmaps are by far the most bytes, so each device's are written in place.
  const size_t devices = shards.shards.size();
  const auto own_bits =
      static_cast<size_t>(kernel.bitmaps * mosaic::bitmap_words(kernel));
  std::vector<int32_t> bits(devices * own_bits, 0);
  WholeArrays out(shards);
  for (size_t s = 0; s < devices; ++s) {
    auto made =
        maker.make(s, turns, std::span(bits).subspan(s * own_bits, own_bits));
    if (!made) return made.error();
    out.begin_device();
    auto integers = xla::exchange_integers(frame, shards, s);
    for (const xla::ShardArray& a : xla::exchange_arrays(frame)) {
      const auto at = integers.find(a.part.name);
      const xla::Dims& dims = a.part.type.dims;
      out.add(at->first, {dims.begin() + 3, dims.end()}, at->second);
    }
    add_arrays(kernel, turns, std::move(*made), out);
  }
  std::vector<MosaicArray> arrays = out.take();
  std::ranges::find(arrays, "bits", &MosaicArray::name)->values =
      std::move(bits);
  return arrays;
}

}  // namespace tessera
