// lanes/mosaic/shard_arrays.cc: a batch on a mesh, as the integers that each
// device's kernel reads.
#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "lanes/mosaic/array_check.h"
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"
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
    for (const mask::BoundRow& row : rows_) {
      ids_.emplace_back(bound_, row, mosaic::Rule());
    }
  }

  Result<MosaicArrays> make(size_t index) {
    const Shard& shard = shards_.shards[index];
    auto steps = mosaic::shard_steps(batch_, bound_, shards_, index, kernel_);
    if (!steps) return steps.error();
    const auto found = static_cast<int64_t>(steps->steps.size());
    if (found > kernel_.steps) {
      return over_limit("mosaic", "steps must fit the kernel's {}, found {}",
                        kernel_.steps, found);
    }
    MosaicArrays out;
    auto bits = mosaic::make_shard_bits(bitmaps_, shard, batch_.plan().heads,
                                        *steps, kernel_);
    if (!bits) return bits.error();
    out.bits_of = std::move(bits->of_step);
    out.bits = std::move(bits->words);
    if (auto e = mosaic::place_steps(*steps, kernel_, out); !e) {
      return e.error();
    }
    out.bounds.assign(static_cast<size_t>(mosaic::kBoundsHead) + 1, 0);
    add_query_ids(shard, out.q_ids);
    add_key_ids(shard, out.kv_ids);
    return out;
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

}  // namespace

Result<std::vector<std::vector<MosaicArray>>> make_mosaic_shard_arrays(
    const Batch& batch, const Shards& shards, const MosaicKernel& kernel) {
  auto read = plan::read_batch(batch, "mosaic");
  if (!read) return read.error();
  if (auto e = check_kernel(shards, kernel); !e) return e.error();
  auto bitmaps = mosaic::TileBitmaps::make(**read, kernel);
  if (!bitmaps) return bitmaps.error();
  ShardArrayMaker maker(batch, **read, shards, kernel, *bitmaps);
  const xla::ShardFrame frame = xla::frame_of(shards);
  std::vector<std::vector<MosaicArray>> out;
  for (size_t s = 0; s < shards.shards.size(); ++s) {
    auto made = maker.make(s);
    if (!made) return made.error();
    std::vector<MosaicArray>& arrays = out.emplace_back();
    auto integers = xla::exchange_integers(frame, shards, s);
    for (const xla::ShardArray& a : xla::exchange_arrays(frame)) {
      const auto at = integers.find(a.part.name);
      arrays.push_back({at->first, a.part.type.dims, std::move(at->second)});
    }
    for (MosaicArray& a : named_arrays(kernel, std::move(*made))) {
      a.shape = of_device(std::move(a.shape));
      arrays.push_back(std::move(a));
    }
  }
  return out;
}

}  // namespace tessera
