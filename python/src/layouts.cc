#include "layouts.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "tessera/layouts.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

// Memory of freed BlockMask lists, for reuse. Guarded by the GIL.
std::vector<std::vector<int32_t>>& spare_lists() {
  static auto* const lists = new std::vector<std::vector<int32_t>>;
  return *lists;
}
constexpr size_t kMaxSpareLists = 8;
constexpr size_t kMaxSpareSize = size_t{1} << 22;  // numbers of one list

void take_spare(std::vector<int32_t>& into) {
  if (spare_lists().empty()) return;
  into = std::move(spare_lists().back());
  spare_lists().pop_back();
}

// A writable array, as PyTorch requires.
nb::object indices_of(std::vector<int32_t> values, size_t b, size_t h, size_t r,
                      size_t c) {
  auto* const kept = new std::vector<int32_t>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept {
    const std::unique_ptr<std::vector<int32_t>> last(
        static_cast<std::vector<int32_t>*>(p));
    if (spare_lists().size() < kMaxSpareLists &&
        last->capacity() <= kMaxSpareSize) {
      spare_lists().push_back(std::move(*last));
    }
  });
  return nb::cast(nb::ndarray<nb::numpy, int32_t, nb::ndim<4>>(
      kept->data(), {b, h, r, c}, owner));
}

nb::dict flex_of(const PyBatch& self, int64_t heads) {
  FlexBlockMask before;
  for (FlexLists* lists :
       {&before.kv, &before.full_kv, &before.q, &before.full_q}) {
    take_spare(lists->indices);
  }
  FlexBlockMask flex =
      take(unlocked([&] { return make_flex(self.batch, heads, &before); }));
  const auto b = static_cast<size_t>(flex.batch);
  const auto h = static_cast<size_t>(flex.heads);
  const auto rows = static_cast<size_t>(flex.rows);
  const auto columns = static_cast<size_t>(flex.columns);
  nb::dict out;
  const auto add = [&](const std::string& name, FlexLists& lists, size_t r,
                       size_t c) {
    out[(name + "num_blocks").c_str()] =
        own_array(std::move(lists.num_blocks), {b, h, r});
    out[(name + "indices").c_str()] =
        indices_of(std::move(lists.indices), b, h, r, c);
  };
  add("kv_", flex.kv, rows, columns);
  add("full_kv_", flex.full_kv, rows, columns);
  add("q_", flex.q, columns, rows);
  add("full_q_", flex.full_q, columns, rows);
  return out;
}

nb::object splash_array(SplashArray array) {
  const char* const type = array.type == SplashType::boolean ? "bool"
                           : array.type == SplashType::int8  ? "int8"
                           : array.type == SplashType::int16 ? "int16"
                                                             : "int32";
  const size_t size = array.bytes.size();
  nb::object bytes = own_array(std::move(array.bytes), {size});
  nb::list shape;
  for (const int64_t n : array.shape) shape.append(n);
  return bytes.attr("view")(type).attr("reshape")(nb::tuple(shape));
}

nb::dict splash_of(const PyBatch& self, int64_t batch_row, bool dkv,
                   bool shrink, bool downcast, int64_t heads) {
  SplashOptions options;
  options.dkv = dkv;
  options.shrink = shrink;
  options.downcast = downcast;
  options.heads = heads;
  SplashMaskInfo info = take(
      unlocked([&] { return make_splash(self.batch, batch_row, options); }));
  const auto maybe = [](std::optional<SplashArray>& a) -> nb::object {
    return a ? splash_array(std::move(*a)) : nb::none();
  };
  nb::dict out;
  out["data_next"] = splash_array(std::move(info.data_next));
  out["mask_next"] = maybe(info.mask_next);
  out["block_mask"] = splash_array(std::move(info.block_mask));
  out["partial_mask_blocks"] = maybe(info.partial_mask_blocks);
  out["q_sequence"] = maybe(info.q_sequence);
  return out;
}

// The fields of JAX's MaskInfo, without q_sequence, which is None.
nb::dict splash_run(const Batch& batch, int64_t batch_row,
                    const SplashRun& run) {
  SplashMaskInfo info =
      take(unlocked([&] { return make_splash_run(batch, batch_row, run); }));
  nb::dict out;
  out["data_next"] = splash_array(std::move(info.data_next));
  out["mask_next"] = splash_array(std::move(*info.mask_next));
  out["block_mask"] = splash_array(std::move(info.block_mask));
  out["partial_mask_blocks"] =
      splash_array(std::move(*info.partial_mask_blocks));
  return out;
}

// The fields of tokamax's MaskInfo.
nb::dict tokamax_run(const Batch& batch, int64_t batch_row,
                     const SplashRun& run) {
  TokamaxMaskInfo info =
      take(unlocked([&] { return make_tokamax_run(batch, batch_row, run); }));
  const size_t steps = info.block_mask.size();
  nb::dict out;
  out["mask_next"] = own_array(std::move(info.mask_next), {steps});
  out["active_rows"] = own_array(std::move(info.active_rows), {steps});
  out["active_cols"] = own_array(std::move(info.active_cols), {steps});
  out["block_mask"] = own_array(std::move(info.block_mask), {steps});
  out["num_active_blocks"] = own_array(
      std::vector<int32_t>{static_cast<int32_t>(info.num_active_blocks)}, {1});
  out["partial_mask_blocks"] =
      splash_array(std::move(info.partial_mask_blocks));
  return out;
}

NumpyArray<int32_t> topk_of(const PyBatch& b) {
  TopkIdxs topk = take(unlocked([&] { return make_topk(b.batch); }));
  return own_array(std::move(topk.values),
                   {topk.shape.begin(), topk.shape.end()});
}

}  // namespace

void bind_layouts(nb::module_& m, nb::class_<PyBatch>& batch) {
  batch
      .def("flex_lists", &flex_of, nb::arg("heads") = 0,
           "The arrays of FlexAttention's BlockMask, int32, by name:\n"
           "num_blocks [batch, heads, rows] and indices [batch, heads, rows,\n"
           "columns] of kv, full_kv, q and full_q. `heads` repeats the\n"
           "plan's lists over so many query heads; 0: as many as the plan\n"
           "has.")
      .def("splash_arrays", &splash_of, nb::arg("batch_row") = 0, nb::kw_only(),
           nb::arg("dkv") = false, nb::arg("shrink") = true,
           nb::arg("downcast") = true, nb::arg("heads") = 0,
           "The arrays of Splash attention's MaskInfo for one batch row, by\n"
           "name; a field that the mask does not need is None. `dkv` makes\n"
           "those of the kernel of dK and dV. `shrink` and `downcast` are\n"
           "Splash's shrink_grid and downcast_smem_data. `heads` is the\n"
           "number of query heads, a multiple of the plan's; 0: as many as\n"
           "the plan has.")
      .def("topk_idxs", &topk_of,
           "The picks as int32 [queries, groups, k], or [queries, k] for one\n"
           "group; the queries of all batch rows follow one another.");
  m.def(
      "_splash_run",
      [](GivenBatch of, bool tokamax, int64_t batch_row, int64_t heads,
         bool dkv, int64_t max_blocks) {
        const SplashRun run{dkv, heads, max_blocks};
        const Batch& b = batch_of(of);
        return tokamax ? tokamax_run(b, batch_row, run)
                       : splash_run(b, batch_row, run);
      },
      nb::arg("batch"), nb::kw_only(), nb::arg("tokamax"), nb::arg("batch_row"),
      nb::arg("heads"), nb::arg("dkv"), nb::arg("max_blocks"));
}

}  // namespace tessera::python
