#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "lanes/cpu/batch_arrays.h"
#include "lanes/mosaic/array_check.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/kernel_checks.h"
#include "lanes/mosaic/settings.h"
#include "mask.h"
#include "mask/bind.h"
#include "mask/canonical.h"
#include "repr.h"
#include "route.h"
#include "states.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

// What a kernel was made from. Equal values make the same kernel. Of the facts
// only their presence matters.
struct Made {
  Request request;
  OwnedFacts present;  // without values
  AttentionCall call;
  std::string target;
  MosaicOptions options;
};

struct PyKernel {
  MosaicKernel kernel;
  Made of;
};

PyKernel make_kernel(Made of) {
  auto made = unlocked([&] {
    return make_mosaic_kernel(of.request, of.present.view(), of.call, of.target,
                              of.options);
  });
  return {take(std::move(made)), std::move(of)};
}

// Calls f(name, optional values) for each fact.
template <class Facts, class F>
void each_fact(Facts& facts, F&& f) {
  f("doc_ids", facts.doc_ids);
  f("q_doc_ids", facts.q_doc_ids);
  f("valid_token_counts", facts.valid_token_counts);
  f("valid_slot_counts", facts.valid_slot_counts);
  f("prefix", facts.prefix_lengths);
  f("q_offset", facts.q_offsets);
  f("tree_enter", facts.tree_enter);
  f("tree_leave", facts.tree_leave);
  for (size_t i = 0; i < facts.same_ids.size(); ++i) {
    f(mask::same_fact(static_cast<int64_t>(i)), facts.same_ids[i]);
  }
  f("picks", facts.picks);
}

OwnedFacts presence_of(const Facts& facts) {
  std::vector<bool> there;
  each_fact(facts, [&](const std::string&, const auto& values) {
    there.push_back(values.has_value());
  });
  OwnedFacts out;
  size_t at = 0;
  each_fact(out, [&](const std::string&, auto& values) {
    if (there[at++]) values.emplace();
  });
  if (facts.picks) {
    out.picks_heads = facts.picks->heads;
    out.picks_meaning = facts.picks->meaning;
    out.picks_query_tile = facts.picks->query_tile;
  }
  return out;
}

// The options of a kernel: those that were given; the others are the table's,
// as far as the target's vector memory has room.
MosaicOptions options_for(const Made& of, std::optional<int64_t> tiles_per_pass,
                          std::optional<int64_t> fetch_ahead,
                          std::optional<int64_t> query_chunk,
                          const std::optional<std::string>& lowering_reason,
                          Numbers numbers) {
  mosaic::ChosenSetting chosen = mosaic::choose_passes(of.request, of.call);
  MosaicOptions& options = chosen.setting.options;
  if (tiles_per_pass) options.tiles_per_pass = *tiles_per_pass;
  if (fetch_ahead) options.fetch_ahead = *fetch_ahead;
  options.lowering_reason = lowering_reason;
  options.numbers = numbers;
  if (query_chunk == 0) {  // the library takes 0 for "not given"
    refuse("query_chunk must be a number of queries, found 0");
  }
  options.query_chunk = query_chunk.value_or(0);
  return mosaic::fit_setting(chosen,
                             {.passes = !tiles_per_pass, .ahead = !fetch_ahead},
                             of.request, of.present.view(), of.call, of.target)
      .setting.options;
}

PyKernel compile(const PyBatch& batch, int64_t heads,
                 std::optional<int64_t> kv_heads, int64_t head_dim,
                 std::optional<int64_t> v_head_dim, const std::string& dtype,
                 std::optional<double> scale, double softcap, bool sink_logits,
                 const std::string& target, bool backward, bool dlse,
                 std::optional<int64_t> tiles_per_pass,
                 std::optional<int64_t> fetch_ahead, const std::string& row_sum,
                 const std::optional<std::string>& lowering_reason,
                 std::optional<int64_t> query_chunk,
                 const std::string& numbers) {
  Made of;
  of.request = batch.batch.request();
  of.present = presence_of(batch.batch.facts());
  of.target = target;
  AttentionShape& shape = of.call.shape;
  shape = shape_of(heads, kv_heads, head_dim, v_head_dim);
  shape.scale = scale;
  shape.softcap = softcap;
  of.call.dtype = parse_dtype(dtype);
  of.call.sink_logits = sink_logits;
  of.call.backward = backward;
  of.call.dlse = dlse;
  of.options = options_for(of, tiles_per_pass, fetch_ahead, query_chunk,
                           lowering_reason, take(parse_numbers(numbers)));
  of.options.row_sum = take(parse_row_sum(row_sum));
  return make_kernel(std::move(of));
}

void write_sizes(const Request& r, nb::dict& out) {
  out["batch"] = r.batch;
  out["q_len"] = r.q_len;
  out["kv_len"] = r.kv_len;
  out["tile"] = std::pair(r.tile.q, r.tile.kv);
  out["logical_block"] = std::pair(r.logical_block.q, r.logical_block.kv);
  out["max_steps"] = r.ceilings.max_steps;
  out["max_width"] = r.ceilings.max_width;
  out["max_union"] = r.ceilings.max_union;
}

nb::dict state_of(nb::handle self) {
  const auto& k = nb::cast<const PyKernel&>(self);
  const AttentionCall& call = k.of.call;
  const MosaicOptions& o = k.of.options;
  nb::list masks, facts;
  for (const Mask& mask : k.of.request.masks) masks.append(to_string(mask));
  each_fact(k.of.present, [&](const std::string& name, const auto& values) {
    if (values) facts.append(name);
  });
  nb::dict out;
  out["masks"] = masks;
  write_sizes(k.of.request, out);
  out["facts"] = facts;
  out["picks_heads"] = k.of.present.picks_heads;
  out["picks_meaning"] = std::string(to_string(k.of.present.picks_meaning));
  out["picks_query_tile"] = k.of.present.picks_query_tile;
  out["heads"] = call.shape.heads;
  out["kv_heads"] = call.shape.kv_heads;
  out["head_dim"] = call.shape.head_dim;
  out["v_head_dim"] = call.shape.v_head_dim;
  out["dtype"] = name_of(call.dtype);
  out["scale"] = call.shape.scale;
  out["softcap"] = call.shape.softcap;
  out["sink_logits"] = call.sink_logits;
  out["target"] = k.of.target;
  out["backward"] = call.backward;
  out["dlse"] = call.dlse;
  out["tiles_per_pass"] = o.tiles_per_pass;
  out["fetch_ahead"] = o.fetch_ahead;
  out["row_sum"] = std::string(to_string(o.row_sum));
  out["numbers"] = std::string(to_string(o.numbers));
  out["lowering_reason"] = o.lowering_reason;
  if (o.query_chunk > 0) out["query_chunk"] = o.query_chunk;
  out["key"] = k.kernel.contract.key;
  return out;
}

// Reads all of Made but masks and facts.
Made read_made(const nb::dict& state) {
  const auto number = [&](const char* key) {
    return read_state<int64_t>(state, key);
  };
  const auto text = [&](const char* key) {
    return read_state<std::string>(state, key);
  };
  const auto flag = [&](const char* key) {
    return read_state<bool>(state, key);
  };
  using Pair = std::pair<int64_t, int64_t>;
  Made of;
  Request& r = of.request;
  r.batch = number("batch");
  r.q_len = number("q_len");
  r.kv_len = number("kv_len");
  const auto tile = read_state<Pair>(state, "tile");
  const auto block = read_state<Pair>(state, "logical_block");
  r.tile = {tile.first, tile.second};
  r.logical_block = {block.first, block.second};
  r.ceilings = {number("max_steps"), number("max_width"), number("max_union")};
  AttentionShape& shape = of.call.shape;
  shape.heads = number("heads");
  shape.kv_heads = number("kv_heads");
  shape.head_dim = number("head_dim");
  shape.v_head_dim = number("v_head_dim");
  shape.scale = read_state<std::optional<double>>(state, "scale");
  shape.softcap = read_state<double>(state, "softcap");
  of.call.dtype = parse_dtype(text("dtype"));
  of.call.sink_logits = flag("sink_logits");
  of.call.backward = flag("backward");
  of.call.dlse = flag("dlse");
  of.target = text("target");
  of.options.tiles_per_pass = number("tiles_per_pass");
  of.options.fetch_ahead = number("fetch_ahead");
  of.options.row_sum = take(parse_row_sum(text("row_sum")));
  of.options.numbers = take(parse_numbers(text("numbers")));
  of.options.lowering_reason =
      read_state<std::optional<std::string>>(state, "lowering_reason");
  if (state.contains("query_chunk")) {
    of.options.query_chunk = number("query_chunk");
  }
  return of;
}

void name_present(const std::vector<std::string>& names, OwnedFacts& present) {
  size_t known = 0;
  each_fact(present, [&](const std::string& name, auto& values) {
    if (std::find(names.begin(), names.end(), name) == names.end()) return;
    values.emplace();
    ++known;
  });
  if (known != names.size()) {
    refuse("facts of a TpuKernel must be a batch's, each once, found others");
  }
}

PyKernel of_state(const nb::dict& state) {
  Made of = read_made(state);
  of.request.masks = read_masks(read_state<nb::list>(state, "masks"));
  name_present(read_state<std::vector<std::string>>(state, "facts"),
               of.present);
  of.present.picks_heads = read_state<int64_t>(state, "picks_heads");
  of.present.picks_meaning = take(
      parse_route_meaning(read_state<std::string>(state, "picks_meaning")));
  of.present.picks_query_tile = read_state<int64_t>(state, "picks_query_tile");
  PyKernel out = make_kernel(std::move(of));
  const auto key = read_state<std::string>(state, "key");
  if (out.kernel.contract.key != key) {
    refuse("a TpuKernel must be of the contract " + key +
           ", found that what was saved makes " + out.kernel.contract.key +
           " in this version");
  }
  return out;
}

// The sizes of a batch that its static text (frameworks.cc) does not have.
nb::dict sizes_of(const PyBatch& batch) {
  const std::optional<Picks>& picks = batch.batch.facts().picks;
  nb::dict out;
  write_sizes(batch.batch.request(), out);
  out["heads"] = out["kv_heads"] = batch.batch.plan().heads;
  out["picks_heads"] = picks ? picks->heads : 0;
  return out;
}

// The chip of a JAX device, by its device kind.
std::string target_of(const std::string& kind) {
  const std::optional<Chip> chip = chip_of_device(kind);
  if (!chip) refuse("a TPU must be of a known kind, found '" + kind + "'");
  return std::string(chip->name);
}

// A kernel of a batch's static text; `state` has sizes and the terms of a call.
PyKernel kernel_of_text(const std::string& text, const nb::dict& state) {
  Made of = read_made(state);
  cpu::StaticTerms terms = take(cpu::read_static_text(text));
  of.request.masks = std::move(terms.request.masks);
  name_present(terms.facts, of.present);
  of.present.picks_heads = read_state<int64_t>(state, "picks_heads");
  of.present.picks_meaning = terms.meaning;
  of.present.picks_query_tile = terms.query_tile;
  return make_kernel(std::move(of));
}

// Returns (q, kv) of the tile, and tiles a pass.
std::pair<std::pair<int64_t, int64_t>, int64_t> tpu_setting(
    nb::handle mask, int64_t q_len, std::optional<int64_t> kv_len,
    int64_t head_dim, std::optional<int64_t> v_head_dim,
    const std::string& dtype, bool backward, int64_t keys_per_query) {
  Request request;
  request.masks = read_masks(mask);
  request.q_len = q_len;
  request.kv_len = kv_len.value_or(q_len);
  take(mask::check_request(request));
  AttentionCall call;
  call.shape.head_dim = head_dim;
  call.shape.v_head_dim = v_head_dim.value_or(head_dim);
  const auto at_least = [](const char* name, int64_t least, int64_t found) {
    if (found >= least) return;
    refuse(std::string(name) + " must be " + std::to_string(least) +
           " or more, found " + std::to_string(found));
  };
  at_least("head_dim", 1, head_dim);
  at_least("v_head_dim", 1, call.shape.v_head_dim);
  at_least("keys_per_query", 0, keys_per_query);
  call.dtype = parse_dtype(dtype);
  call.backward = backward;
  const MosaicSetting s = mosaic_setting(request, call, keys_per_query);
  return {{s.tile.q, s.tile.kv}, s.options.tiles_per_pass};
}

// Returns tiles a pass, fetch distance and queries a chunk. Values that are not
// given are those of a kernel of 8 heads of this dim in bf16. Values that no
// kernel can have are an error; whether given values fit is not checked here.
std::tuple<int64_t, int64_t, int64_t> tpu_passes(
    const PyBatch& batch, const std::string& target, int64_t head_dim,
    bool backward, std::optional<int64_t> tiles_per_pass,
    std::optional<int64_t> fetch_ahead, std::optional<int64_t> query_chunk,
    const std::optional<std::string>& lowering_reason,
    const std::string& numbers) {
  Made of;
  of.request = batch.batch.request();
  of.present = presence_of(batch.batch.facts());
  of.target = target;
  of.call.shape = {8, 8, head_dim, head_dim, {}, 0};
  of.call.dtype = Dtype::bf16;
  of.call.backward = backward;
  if (!backward) query_chunk.reset();
  const MosaicOptions found =
      options_for(of, tiles_per_pass, fetch_ahead, query_chunk, lowering_reason,
                  take(parse_numbers(numbers)));
  take(mosaic::check_asked(of.call, found, of.request, of.target));
  int64_t chunk = 0;
  if (backward) {
    chunk = mosaic::query_chunk_of(of.request, of.present.view(), of.call,
                                   of.target, found);
  }
  return {found.tiles_per_pass, found.fetch_ahead, chunk};
}

// Shapes of the results after the gradients, in which the kernel keeps sums.
nb::list kept_shapes(const PyKernel& of) {
  const Made& made = of.of;
  const auto planned = take(mosaic::plan_kernel(
      made.request, made.present.view(), made.call, made.target, made.options));
  nb::list out;
  for (const mosaic::Argument& a : mosaic::arrays_of(planned).results) {
    if (mosaic::is_kept(a.name)) out.append(nb::tuple(nb::cast(a.type.shape)));
  }
  return out;
}

// Shapes by name, in the order in which the program takes the arrays.
nb::dict array_shapes(const PyKernel& of) {
  nb::dict out;
  for (const mosaic::ArrayShape& s : mosaic::array_shapes(of.kernel)) {
    out[std::string(s.name).c_str()] = nb::tuple(nb::cast(s.shape));
  }
  return out;
}

nb::dict arrays(const PyKernel& of, const PyBatch& batch) {
  const MosaicKernel& kernel = of.kernel;
  std::vector<int32_t> digests;
  std::vector<MosaicArray> made =
      take(unlocked([&]() -> Result<std::vector<MosaicArray>> {
        auto arrays = make_mosaic_arrays(batch.batch, kernel);
        if (!arrays) return arrays.error();
        auto named = named_arrays(kernel, std::move(*arrays));
        std::vector<MosaicArrayView> views;
        views.reserve(named.size());
        for (const MosaicArray& array : named) views.push_back(view_of(array));
        digests = mosaic_digests(kernel, views);
        return named;
      }));
  nb::dict out;
  out["digests"] = own_array(std::move(digests), {made.size(), size_t{4}});
  for (MosaicArray& array : made) {
    const std::string name(array.name);
    out[name.c_str()] =
        own_array(std::move(array.values),
                  std::vector<size_t>(array.shape.begin(), array.shape.end()));
  }
  return out;
}

// The numbers of an int32 array in C order; other arrays are refused.
std::span<const int32_t> ints_of(const Array& array) {
  if (array.dtype != Dtype::i32 || !in_c_order(array)) {
    refuse(std::string(array.name) + " must be int32 in C order, found others");
  }
  return {static_cast<const int32_t*>(array.data()), array.view.size()};
}

Array named_array(const nb::dict& given, const std::string& name) {
  if (!given.contains(name.c_str())) {
    refuse("arrays must hold " + name + ", found none");
  }
  return read_array("an array of the kernel", given[name.c_str()]);
}

// Refuses arrays that the kernel's arrays() did not make.
void check(const PyKernel& of, const nb::dict& given) {
  const MosaicKernel& kernel = of.kernel;
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
  const std::span<const int32_t> as_made = ints_of(digests);
  take(unlocked([&] { return check_mosaic_arrays(kernel, views, as_made); }));
}

// Read-only properties: values of the kernel and of the call that it is for.
void bind_values(nb::class_<PyKernel>& kernel) {
  const auto add = [&](const char* name, auto value, const char* doc) {
    kernel.def_prop_ro(
        name, [value](const PyKernel& k) { return value(k.kernel); }, doc);
  };
  using K = MosaicKernel;
  add(
      "text", [](const K& k) { return k.text; }, "The kernel alone, as text.");
  add(
      "program_text", [](const K& k) { return k.program_text; },
      "The StableHLO program that holds the kernel, ready to compile.");
  add(
      "backend_config", [](const K& k) { return k.backend_config; },
      "JSON text that holds the kernel. A framework passes it to\n"
      "`tpu_custom_call`.");
  add(
      "key", [](const K& k) { return k.contract.key; },
      "Digest of `contract`: 32 hex digits.");
  add(
      "contract", [](const K& k) { return k.contract.text; },
      "Everything that the kernel depends on, as canonical JSON text.");
  add(
      "backward", [](const K& k) { return k.call.backward; },
      "Whether this is the kernel of the gradients.");
  add(
      "dlse", [](const K& k) { return k.call.dlse; },
      "Whether the kernel takes a gradient of the log-sum-exp.");
  add(
      "sink_logits", [](const K& k) { return k.call.sink_logits; },
      "Whether the kernel takes a sink logit for each head.");
  add(
      "scale", [](const K& k) { return k.call.shape.scale_or_default(); },
      "The factor of the scores.");
  add(
      "softcap", [](const K& k) { return k.call.shape.softcap; },
      "The cap of the scores; 0: no cap.");
  add(
      "head_dim", [](const K& k) { return k.call.shape.head_dim; },
      "The head dim of queries and keys.");
  add(
      "v_head_dim", [](const K& k) { return k.call.shape.v_head_dim; },
      "The head dim of the values and the output.");
  add(
      "dtype", [](const K& k) { return name_of(k.call.dtype); },
      "The dtype of the tensors: 'bfloat16' or 'float32'.");
  add(
      "batch", [](const K& k) { return k.batch; },
      "Number of batch rows that the program has room for.");
  add(
      "q_len", [](const K& k) { return k.q_len; },
      "Number of queries that the program has room for, in whole tiles.");
  add(
      "kv_len", [](const K& k) { return k.kv_len; },
      "Number of keys that the program has room for, in whole tiles.");
  add(
      "steps", [](const K& k) { return k.steps; },
      "Number of steps that the program has room for.");
  add(
      "mask", [](const K& k) { return k.mask; },
      "The mask as text. Its window bounds are classes; the exact\n"
      "bounds are arguments of the program.");
  add(
      "query_chunk", [](const K& k) { return k.query_chunk; },
      "Number of queries in a chunk of the backward kernel; 0: the\n"
      "kernel works without chunks.");
  kernel.def_prop_ro(
      "kept_shapes", &kept_shapes,
      "Shapes of the float32 arrays that the custom call returns after\n"
      "the gradients. The kernel keeps sums there; nothing else reads\n"
      "them.");
  kernel.def_prop_ro(
      "tokens_last", [](const PyKernel& of) { return of.kernel.tokens_last; },
      "Whether tensors whose dim is not a multiple of 128 are [batch,\n"
      "heads, dim, tokens] in the custom call. The program around it\n"
      "has the dim last.");
  kernel.def_prop_ro(
      "array_shapes", &array_shapes,
      "Shapes of the int32 arrays that the program reads of a batch, by\n"
      "name, in the order in which the program takes them.");
}

void bind_kernel(nb::module_& m) {
  nb::class_<PyKernel> kernel(
      m, "TpuKernel",
      "A TPU program of attention or of its gradients, as text. One\n"
      "program serves every batch of its contract. `compile` makes it.");
  bind_values(kernel);
  kernel
      .def("arrays", &arrays, nb::arg("batch"),
           "The int32 arrays that the program reads of `batch` beside q, k\n"
           "and v, by name, and their `digests`. Raises a TesseraError that\n"
           "names what is too small if the program has no room for the\n"
           "batch.")
      .def("check", &check, nb::arg("arrays"),
           "Checks that `arrays` are what this kernel's `arrays` made,\n"
           "unchanged. Raises a TesseraError that names the first array that\n"
           "is not.")
      .def(
          "__eq__",
          [](const PyKernel& l, const PyKernel& r) {
            return l.kernel.contract.key == r.kernel.contract.key &&
                   l.kernel.program_text == r.kernel.program_text;
          },
          nb::is_operator(), nb::sig(kEqual))
      .def("__hash__",
           [](const PyKernel& k) {
             return nb::hash(nb::str(k.kernel.contract.key.c_str()));
           })
      .def("__repr__", [](const PyKernel& of) {
        const MosaicKernel& k = of.kernel;
        // The first 12 characters of the key identify the contract.
        return one_line("TpuKernel('", k.mask,
                        "', q_len=" + std::to_string(k.q_len) +
                            ", kv_len=" + std::to_string(k.kv_len) +
                            ", heads=" + std::to_string(k.call.shape.heads) +
                            (k.call.backward ? ", backward, " : ", forward, ") +
                            name_of(k.call.dtype) + ", " +
                            k.contract.key.substr(0, 12) + ")");
      });
  bind_json(kernel, &state_of);
  bind_from_json(kernel, &of_state);
  bind_pickle(kernel, &state_of, &of_state);
}

}  // namespace

void bind_compile(nb::module_& m) {
  bind_kernel(m);
  m.def("tpu_setting", &tpu_setting, nb::arg("mask"), nb::kw_only(),
        nb::arg("q_len"), nb::arg("kv_len") = nb::none(),
        nb::arg("head_dim") = 128, nb::arg("v_head_dim") = nb::none(),
        nb::arg("dtype") = "bf16", nb::arg("backward") = false,
        nb::arg("keys_per_query") = 0,
        "Returns the setting that suits the TPU kernels, by a table of\n"
        "predicted cycles: the tile for `plan` and the `tiles_per_pass`\n"
        "for `compile`, as ((q, kv), tiles_per_pass).\n\n"
        "`keys_per_query` is the mean number of keys that a query sees\n"
        "(`Batch.keys_per_query` is that of one batch). Give one number\n"
        "for all batches that one program is to serve. 0 takes as many\n"
        "keys as the mask leaves; for a mask that names documents or\n"
        "segments these are unknown, and the default setting is returned.");
  m.def("_tpu_sizes", &sizes_of);
  m.def("_tpu_target", &target_of);
  m.def("_tpu_passes", &tpu_passes);
  m.def("_tpu_kernel", &kernel_of_text);
  m.def("compile", &compile, nb::arg("batch"), nb::kw_only(), nb::arg("heads"),
        nb::arg("kv_heads") = nb::none(), nb::arg("head_dim") = 128,
        nb::arg("v_head_dim") = nb::none(), nb::arg("dtype") = "bf16",
        nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
        nb::arg("sink_logits") = false, nb::arg("target") = "v6e",
        nb::arg("backward") = false, nb::arg("dlse") = false,
        nb::arg("tiles_per_pass") = nb::none(),
        nb::arg("fetch_ahead") = nb::none(), nb::arg("row_sum") = "exact",
        nb::arg("lowering_reason") = nb::none(),
        nb::arg("query_chunk") = nb::none(), nb::arg("numbers") = "finite",
        "Compiles the TPU program for all batches of this batch's\n"
        "contract. Returns a TpuKernel.\n\n"
        "The program takes any mask. Raises a TesseraError for a call\n"
        "that the kernels cannot run.\n\n"
        "- `kv_heads`, `v_head_dim`: `heads` and `head_dim` unless they\n"
        "  are given\n"
        "- `head_dim`, `v_head_dim`: 64, 128, 192 or 256\n"
        "- `dtype`: 'bf16' or 'f32'\n"
        "- `scale`: 1 / sqrt(head_dim) unless it is given\n"
        "- `softcap`: the cap of the scores; 0: no cap\n"
        "- `sink_logits`: adds one logit to each head\n"
        "- `target`: a TPU such as 'v6e'\n"
        "- `backward`: compiles the program of the gradients; with `dlse`\n"
        "  it also takes the gradient of the log-sum-exp\n"
        "- `tiles_per_pass`, `fetch_ahead`: the table's values unless\n"
        "  they are given, as far as the target's vector memory holds\n"
        "  them\n"
        "- `row_sum`: what the probabilities are divided by: 'exact',\n"
        "  their float32 sum, or 'rounded', the sum of the probabilities\n"
        "  as the product takes them\n"
        "- `lowering_reason`: why a tile or a logical block below the\n"
        "  granule of the target's matrix unit is lowered. Required for\n"
        "  such a tile or block, an error for any other\n"
        "- `query_chunk`: the queries whose dQ the backward kernel holds\n"
        "  at a time, in whole tiles, or all of them. By default all, if\n"
        "  they fit and as many heads run together as with chunks; else\n"
        "  as many queries as fit\n"
        "- `numbers`: 'finite' promises that all numbers are finite; with\n"
        "  'any', NaN and infinity reach only what they are legal for");
}

}  // namespace tessera::python
