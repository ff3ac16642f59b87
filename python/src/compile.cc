#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "lanes/mosaic/array_check.h"
#include "mask.h"
#include "route.h"
#include "tessera/mosaic.h"
#include "words.h"

namespace tessera::python {
namespace {

MosaicKernel compile(const PyBatch& batch, int64_t heads,
                     std::optional<int64_t> kv_heads, int64_t head_dim,
                     std::optional<int64_t> v_head_dim,
                     const std::string& dtype, std::optional<double> scale,
                     double softcap, bool sink_logits,
                     const std::string& target, bool backward, bool dlse,
                     std::optional<int64_t> tiles_per_pass,
                     std::optional<int64_t> fetch_ahead,
                     const std::string& row_sum,
                     const std::optional<std::string>& lowering_reason) {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads.value_or(heads);
  shape.head_dim = head_dim;
  shape.v_head_dim = v_head_dim.value_or(head_dim);
  shape.scale = scale;
  shape.softcap = softcap;
  AttentionCall call{shape, parse_dtype(dtype), sink_logits};
  call.backward = backward;
  call.dlse = dlse;
  const MosaicOptions forward;
  const MosaicOptions& usual = backward ? kMosaicBackward : forward;
  MosaicOptions options;
  options.tiles_per_pass = tiles_per_pass.value_or(usual.tiles_per_pass);
  options.fetch_ahead = fetch_ahead.value_or(usual.fetch_ahead);
  if (row_sum != "exact" && row_sum != "rounded") {
    refuse("row_sum must be 'exact' or 'rounded', found '" + row_sum + "'");
  }
  if (row_sum == "rounded") options.row_sum = RowSum::rounded;
  options.lowering_reason = lowering_reason;
  const Batch& of = batch.batch;
  auto made = [&] {
    const nb::gil_scoped_release released;
    return make_mosaic_kernel(of.request(), of.facts(), call, target, options);
  }();
  return take(std::move(made));
}

// (q, kv) of a tile, and tiles a pass.
std::pair<std::pair<int64_t, int64_t>, int64_t> tpu_setting(
    nb::handle mask, int64_t q_len, std::optional<int64_t> kv_len,
    int64_t head_dim, std::optional<int64_t> v_head_dim,
    const std::string& dtype, bool backward, int64_t keys_per_query) {
  Request request;
  request.masks = read_masks(mask);
  request.q_len = q_len;
  request.kv_len = kv_len.value_or(q_len);
  AttentionCall call;
  call.shape.head_dim = head_dim;
  call.shape.v_head_dim = v_head_dim.value_or(head_dim);
  call.dtype = parse_dtype(dtype);
  call.backward = backward;
  const MosaicSetting s = mosaic_setting(request, call, keys_per_query);
  return {{s.tile.q, s.tile.kv}, s.options.tiles_per_pass};
}

// The configuration of the one custom call, as JAX takes it.
std::string backend_config(const MosaicKernel& kernel) {
  constexpr std::string_view kBegin = "backend_config = \"";
  const std::string& program = kernel.program;
  const size_t begin = program.find(kBegin) + kBegin.size();
  std::string out = program.substr(begin, program.find('"', begin) - begin);
  for (size_t at = 0; (at = out.find("\\22", at)) != std::string::npos;) {
    out.replace(at, 3, "\"");
  }
  return out;
}

nb::dict arrays(const MosaicKernel& kernel, const PyBatch& batch) {
  nb::dict out;
  std::vector<MosaicArray> made =
      named_arrays(kernel, take(make_mosaic_arrays(batch.batch, kernel)));
  std::vector<MosaicArrayView> views;
  for (const MosaicArray& array : made) views.push_back(view_of(array));
  out["digests"] =
      own_array(mosaic_digests(kernel, views), {made.size(), size_t{4}});
  for (MosaicArray& array : made) {
    const std::string name(array.name);
    out[name.c_str()] =
        own_array(std::move(array.values),
                  std::vector<size_t>(array.shape.begin(), array.shape.end()));
  }
  return out;
}

// int32 in C order, of what was given.
std::span<const int32_t> ints_of(const Array& array) {
  int64_t size = 1;
  for (size_t i = array.view.ndim(); i-- > 0;) {
    if (array.view.stride(i) != size && array.view.shape(i) != 1) size = -1;
    if (size < 0) break;
    size *= static_cast<int64_t>(array.view.shape(i));
  }
  if (array.dtype != Dtype::i32 || size < 0) {
    refuse(std::string(array.name) + " must be int32 in C order, found others");
  }
  return {static_cast<const int32_t*>(array.data()), static_cast<size_t>(size)};
}

Array named_array(const nb::dict& given, const std::string& name) {
  if (!given.contains(name.c_str())) {
    refuse("arrays must hold " + name + ", found none");
  }
  return read_array("an array of the kernel", given[name.c_str()]);
}

// What the program would read of a batch, before it does.
void check(const MosaicKernel& kernel, const nb::dict& given) {
  const std::vector<mosaic::ArrayShape> due = mosaic::array_shapes(kernel);
  const Array digests = named_array(given, "digests");
  std::vector<Array> held;
  std::vector<std::vector<int64_t>> shapes;
  for (const mosaic::ArrayShape& s : due) {
    held.push_back(named_array(given, std::string(s.name)));
    shapes.push_back(held.back().shape());
  }
  std::vector<MosaicArrayView> views;
  for (size_t i = 0; i < due.size(); ++i) {
    views.push_back({due[i].name, shapes[i], ints_of(held[i])});
  }
  take(check_mosaic_arrays(kernel, views, ints_of(digests)));
}

}  // namespace

void bind_compile(nb::module_& m) {
  nb::class_<MosaicKernel>(
      m, "TpuKernel",
      "A TPU program of attention or of its gradients, as text: it serves "
      "every batch of its contract.")
      .def_ro("text", &MosaicKernel::text, "The kernel alone.")
      .def_ro("program", &MosaicKernel::program, "StableHLO around it.")
      .def_prop_ro("backend_config", &backend_config,
                   "JSON that holds the kernel: what a framework hands to "
                   "`tpu_custom_call`.")
      .def_prop_ro("key", [](const MosaicKernel& k) { return k.contract.key; })
      .def_prop_ro("contract",
                   [](const MosaicKernel& k) { return k.contract.text; })
      .def_prop_ro("backward",
                   [](const MosaicKernel& k) { return k.call.backward; })
      .def_prop_ro("dlse", [](const MosaicKernel& k) { return k.call.dlse; })
      .def_prop_ro("sink_logits",
                   [](const MosaicKernel& k) { return k.call.sink_logits; })
      .def_prop_ro(
          "scale",
          [](const MosaicKernel& k) { return k.call.shape.scale_or_default(); })
      .def_prop_ro("softcap",
                   [](const MosaicKernel& k) { return k.call.shape.softcap; })
      .def_prop_ro("head_dim",
                   [](const MosaicKernel& k) { return k.call.shape.head_dim; })
      .def_prop_ro(
          "v_head_dim",
          [](const MosaicKernel& k) { return k.call.shape.v_head_dim; })
      .def_prop_ro("dtype",
                   [](const MosaicKernel& k) { return name_of(k.call.dtype); })
      .def_ro("batch", &MosaicKernel::batch)
      .def_ro("q_len", &MosaicKernel::q_len)
      .def_ro("kv_len", &MosaicKernel::kv_len)
      .def_ro("steps", &MosaicKernel::steps)
      .def_ro("mask", &MosaicKernel::mask)
      .def("arrays", &arrays, nb::arg("batch"),
           "What the program reads of a batch beside q, k and v, and digests "
           "of it.")
      .def("check", &check, nb::arg("arrays"),
           "That `arrays` are this kernel's, as they were made.")
      .def("__repr__", [](const MosaicKernel& k) {
        // Of its key as much as tells it from another.
        return one_line("TpuKernel('", k.mask,
                        "', q_len=" + std::to_string(k.q_len) +
                            ", kv_len=" + std::to_string(k.kv_len) +
                            ", heads=" + std::to_string(k.call.shape.heads) +
                            (k.call.backward ? ", backward, " : ", forward, ") +
                            name_of(k.call.dtype) + ", " +
                            k.contract.key.substr(0, 12) + ")");
      });
  m.def("tpu_setting", &tpu_setting, nb::arg("mask"), nb::kw_only(),
        nb::arg("q_len"), nb::arg("kv_len") = nb::none(),
        nb::arg("head_dim") = 128, nb::arg("v_head_dim") = nb::none(),
        nb::arg("dtype") = "bf16", nb::arg("backward") = false,
        nb::arg("keys_per_query") = 0,
        "The tile for `plan` and the `tiles_per_pass` for `compile` that suit "
        "the TPU kernels, by a table of predicted cycles. `keys_per_query`: "
        "how many keys a query sees in the mean (`Batch.keys_per_query` is "
        "that of one batch); say it once for all batches that one program "
        "shall serve.");
  m.def(
      "compile", &compile, nb::arg("batch"), nb::kw_only(), nb::arg("heads"),
      nb::arg("kv_heads") = nb::none(), nb::arg("head_dim") = 128,
      nb::arg("v_head_dim") = nb::none(), nb::arg("dtype") = "bf16",
      nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
      nb::arg("sink_logits") = false, nb::arg("target") = "v6e",
      nb::arg("backward") = false, nb::arg("dlse") = false,
      nb::arg("tiles_per_pass") = nb::none(),
      nb::arg("fetch_ahead") = nb::none(), nb::arg("row_sum") = "exact",
      nb::arg("lowering_reason") = nb::none(),
      "The TPU program for batches like this one: of `dtype`, bf16 or f32, any "
      "mask, head dims of 64, 128, 192 or 256, scores "
      "capped by `softcap` unless it is 0, with one more logit a head where "
      "`sink_logits` says so. "
      "`backward`: that of the "
      "gradients, which takes the log-sum-exp's with `dlse`. `row_sum`: "
      "\"exact\", or \"rounded\" as the product takes the probabilities. "
      "`lowering_reason`: why a tile below the granule of the target's matrix "
      "unit is lowered; such a tile must have one, any other none.");
}

}  // namespace tessera::python
