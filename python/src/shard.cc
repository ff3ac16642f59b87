#include "shard.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "lanes/mosaic/shards.h"
#include "picture/shards.h"
#include "repr.h"
#include "states.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tessera/shard.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

struct PyShards {
  nb::object batch;
  Shards shards;
  ShardOptions options;

  const Batch& of() const { return batch_of(batch); }
};

PyShards make(nb::object batch, const std::string& mesh, ShardOptions options) {
  const Mesh over = take(parse_mesh(mesh));
  const Batch& of = batch_of(batch);
  auto made = unlocked([&] { return make_shards(of, over, options); });
  return {std::move(batch), take(std::move(made)), std::move(options)};
}

PyShards shard(GivenBatch batch, const std::string& mesh,
               const std::string& balance, const std::string& exchange,
               const std::string& ceilings, const std::string& work,
               const std::string& evenness, int64_t heads,
               std::optional<int64_t> kv_heads, int64_t head_dim,
               std::optional<int64_t> v_head_dim, const std::string& dtype,
               bool uneven, const std::optional<std::string>& target) {
  ShardOptions options = take(parse_shard_options(
      {balance, exchange, ceilings, work, evenness, uneven}));
  options.shape = shape_of(heads, kv_heads, head_dim, v_head_dim);
  options.dtype = parse_dtype(dtype);
  if (target) take(find_chip(*target));
  options.for_tpu = target.has_value();
  return make(std::move(batch), mesh, std::move(options));
}

// An array [tiles, 2] of (batch row, tile).
nb::object tiles_of(const std::vector<TileAt>& tiles, size_t first,
                    size_t last) {
  std::vector<int32_t> flat;
  for (size_t i = first; i < last; ++i) {
    flat.push_back(tiles[i].batch_row);
    flat.push_back(tiles[i].tile);
  }
  return own_array(std::move(flat), {last - first, 2});
}

nb::list held(const PyShards& self, bool queries) {
  nb::list out;
  for (const Shard& s : self.shards.shards) {
    const auto n = static_cast<size_t>(queries ? s.own_rows : s.own_columns);
    out.append(tiles_of(queries ? s.rows : s.columns, 0, n));
  }
  return out;
}

nb::dict moved(const Moved& m) {
  nb::dict out;
  out["needed_bytes"] = m.needed;
  out["sent_bytes"] = m.sent;
  out["capacity_bytes"] = m.capacity;
  out["busiest_bytes"] = m.busiest;
  out["all_gather_bytes"] = m.all_gather;
  return out;
}

// The call of the program of one direction.
AttentionCall call_of(const PyShards& self, bool backward,
                      std::optional<double> scale, double softcap,
                      bool sink_logits, bool dlse) {
  AttentionCall call;
  call.shape = self.options.shape;
  call.shape.scale = scale;
  call.shape.softcap = softcap;
  call.dtype = self.options.dtype;
  call.sink_logits = sink_logits;
  call.backward = backward;
  call.dlse = dlse;
  return call;
}

std::string text_of_program(const PyShards& self, bool backward,
                            std::optional<double> scale, double softcap,
                            bool sink_logits, bool dlse) {
  const AttentionCall call =
      call_of(self, backward, scale, softcap, sink_logits, dlse);
  const Batch& of = self.of();
  auto text =
      unlocked([&] { return program_text(of, self.shards, call, backward); });
  return take(std::move(text));
}

nb::list specs_of(const std::vector<ArraySpec>& specs) {
  nb::list out;
  for (const ArraySpec& s : specs) {
    nb::dict spec;
    spec["name"] = s.name;
    spec["dtype"] = std::string(to_string(s.dtype));
    spec["shape"] = s.shape;
    spec["axes"] = s.axes;
    out.append(spec);
  }
  return out;
}

nb::dict program_arrays(const PyShards& self, bool backward,
                        std::optional<double> scale, double softcap,
                        bool sink_logits, bool dlse) {
  const AttentionCall call =
      call_of(self, backward, scale, softcap, sink_logits, dlse);
  const auto arrays =
      take(shard_program_arrays(self.of(), self.shards, call, backward));
  nb::dict out;
  out["arguments"] = specs_of(arrays.arguments);
  out["results"] = specs_of(arrays.results);
  return out;
}

nb::dict integers(const PyShards& self) {
  const AttentionCall call = call_of(self, false, {}, 0, false, false);
  const Batch& of = self.of();
  auto made =
      take(unlocked([&] { return shard_integers(of, self.shards, call); }));
  const auto arrays = take(shard_program_arrays(of, self.shards, call, false));
  nb::dict out;
  for (ShardIntegers& one : made) {
    for (const ArraySpec& spec : arrays.arguments) {
      if (spec.name != one.name) continue;
      const std::vector<size_t> shape(spec.shape.begin(), spec.shape.end());
      out[one.name.c_str()] = own_array(std::move(one.values), shape);
      break;
    }
  }
  return out;
}

// The same options for every call, so that all kernels read the same integers.
MosaicOptions kernel_options(const PyShards& self, bool backward,
                             const std::optional<std::string>& reason,
                             const std::string& numbers) {
  const AttentionCall plain = call_of(self, backward, {}, 0, false, false);
  MosaicOptions out = backward
                          ? kMosaicBackward
                          : mosaic_setting(self.of().request(), plain).options;
  out.lowering_reason = reason;
  out.numbers = take(parse_numbers(numbers));
  return out;
}

// The program of our TPU kernel, and the specs of its arrays.
nb::dict kernel_program(const PyShards& self, const std::string& target,
                        bool backward, std::optional<double> scale,
                        double softcap, bool sink_logits, bool dlse,
                        const std::optional<std::string>& lowering_reason,
                        const std::string& numbers) {
  const AttentionCall call =
      call_of(self, backward, scale, softcap, sink_logits, dlse);
  const MosaicOptions options =
      kernel_options(self, backward, lowering_reason, numbers);
  const Batch& of = self.of();
  const auto kernel = take(unlocked([&] {
    return make_mosaic_shards(of, self.shards, call, target, options);
  }));
  nb::dict out;
  out["text"] = kernel.program_text;
  out["arguments"] = specs_of(kernel.of_mesh.arguments);
  out["results"] = specs_of(kernel.of_mesh.results);
  return out;
}

// The integers of this batch, and the contract. No program text is made.
nb::tuple kernel_integers(const PyShards& self, const std::string& target,
                          bool backward, std::optional<double> scale,
                          double softcap, bool sink_logits, bool dlse,
                          const std::optional<std::string>& lowering_reason,
                          const std::string& numbers) {
  const AttentionCall call =
      call_of(self, backward, scale, softcap, sink_logits, dlse);
  const MosaicOptions options =
      kernel_options(self, backward, lowering_reason, numbers);
  const Batch& of = self.of();
  const auto planned = take(unlocked([&] {
    return mosaic::plan_shards(of, self.shards, call, target, options);
  }));
  const MosaicKernel& kernel = planned.planned.kernel;
  auto integers = take(unlocked(
      [&] { return make_mosaic_shard_arrays(of, self.shards, kernel); }));
  nb::dict whole;
  for (MosaicArray& a : integers) {
    const std::vector<size_t> shape(a.shape.begin(), a.shape.end());
    whole[nb::str(a.name.data(), a.name.size())] =
        own_array(std::move(a.values), shape);
  }
  return nb::make_tuple(whole, kernel.contract.key);
}

// The token order as an array [data, tokens of all shards along seq].
NumpyArray<int64_t> order(const PyShards& self, bool queries) {
  std::vector<int64_t> all = token_order(self.of(), self.shards, queries);
  const auto data = static_cast<size_t>(self.shards.mesh.size("data"));
  const size_t tokens = all.size() / data;
  return own_array(std::move(all), {data, tokens});
}

std::string picture_of(const PyShards& self) {
  return picture::draw_shards(self.shards, self.of().plan(),
                              std::string(to_string(self.options.balance)) +
                                  " over " + to_string(self.shards.mesh));
}

std::string described(const PyShards& self) {
  char found[64];
  (void)std::snprintf(found, sizeof found, "work %.3f, tokens %.3f",
                      self.shards.report.work_max_over_mean,
                      self.shards.report.tokens_max_over_mean);
  return "Shards(" + to_string(self.shards.mesh) + ", " +
         std::string(to_string(self.options.balance)) + ": " + found + ")";
}

std::string evenness_of(const PyShards& self) {
  const ShardOptions& o = self.options;
  return seeks_evenness(o.balance) ? to_string(o.evenness) : "";
}

// Batch, mesh and options, from which the same shards are made again.
nb::dict state_of(nb::handle self) {
  const auto& s = nb::cast<const PyShards&>(self);
  const ShardOptions& o = s.options;
  nb::dict out;
  out["of"] = s.batch;
  out["mesh"] = to_string(s.shards.mesh);
  out["balance"] = std::string(to_string(o.balance));
  // The chosen exchange, since "auto" could choose another one later.
  out["exchange"] = std::string(to_string(s.shards.exchange));
  out["ceilings"] = to_string(o.ceilings);
  out["work"] = to_string(o.work);
  out["evenness"] = evenness_of(s);
  out["heads"] = o.shape.heads;
  out["kv_heads"] = o.shape.kv_heads;
  out["head_dim"] = o.shape.head_dim;
  out["v_head_dim"] = o.shape.v_head_dim;
  out["dtype"] = name_of(o.dtype);
  out["uneven"] = o.uneven;
  out["contract"] = s.shards.contract_key;
  return out;
}

PyShards of_state(const nb::dict& state) {
  const auto number = [&](const char* key) {
    return read_state<int64_t>(state, key);
  };
  const auto text = [&](const char* key) {
    return read_state<std::string>(state, key);
  };
  ShardOptions options = take(parse_shard_options(
      {text("balance"), text("exchange"), text("ceilings"), text("work"),
       text("evenness"), read_state<bool>(state, "uneven")}));
  options.shape.heads = number("heads");
  options.shape.kv_heads = number("kv_heads");
  options.shape.head_dim = number("head_dim");
  options.shape.v_head_dim = number("v_head_dim");
  options.dtype = parse_dtype(text("dtype"));
  PyShards out = make(read_state<nb::object>(state, "of"), text("mesh"),
                      std::move(options));
  if (out.shards.contract_key != text("contract")) {
    refuse("Shards must be of the contract " + text("contract") +
           ", found that what was saved makes " + out.shards.contract_key +
           " in this version");
  }
  return out;
}

// The values of the JSON; tiles become lists.
nb::dict values_of(nb::handle self) {
  nb::dict out;
  for (const char* const name :
       {"mesh", "balance", "exchange", "ceilings", "work", "evenness",
        "work_max_over_mean", "tokens_max_over_mean", "early_work", "forward",
        "backward", "steps", "kv_tiles", "query_tiles", "key_tiles", "specs",
        "contract", "fingerprint"}) {
    out[name] = self.attr(name);
  }
  return out;
}

using ShardsClass = nb::class_<PyShards>;

void bind_options(ShardsClass& shards) {
  shards
      .def_prop_ro(
          "batch",
          [](const PyShards& s) { return nb::borrow<NewBatch>(s.batch); },
          "That is spread.")
      .def_prop_ro(
          "mesh", [](const PyShards& s) { return to_string(s.shards.mesh); },
          "Its axes and their sizes, as text.")
      .def_prop_ro(
          "balance",
          [](const PyShards& s) {
            return std::string(to_string(s.options.balance));
          },
          "How rows were spread.")
      .def_prop_ro(
          "exchange",
          [](const PyShards& s) {
            return std::string(to_string(s.shards.exchange));
          },
          "How tiles travel: where 'auto' was asked for, what was chosen.")
      .def_prop_ro(
          "ceilings",
          [](const PyShards& s) { return to_string(ceilings_of(s.shards)); },
          "What they have room for, as text: under it, other batches that fit "
          "have the same contract.")
      .def_prop_ro(
          "work", [](const PyShards& s) { return to_string(s.options.work); },
          "What a tile of each class counts, as text.")
      .def_prop_ro("evenness", &evenness_of,
                   "The most that a shard was to have over the mean, as text; "
                   "'' of a balance that looks for none.")
      .def("__len__", [](const PyShards& s) { return s.shards.shards.size(); });
}

void bind_report(ShardsClass& shards) {
  shards
      .def_prop_ro(
          "work_max_over_mean",
          [](const PyShards& s) { return s.shards.report.work_max_over_mean; },
          "Of the shard with the most; 1 is even.")
      .def_prop_ro(
          "least_needed_bytes",
          [](const PyShards& s) { return s.shards.report.least_needed; },
          "Bytes of K and V that a forward pass must send, however rows are "
          "spread so evenly. A lower bound: even the best way may need more.")
      .def_prop_ro(
          "tokens_max_over_mean",
          [](const PyShards& s) {
            return s.shards.report.tokens_max_over_mean;
          },
          "Of the shard with the most; 1 is even.")
      .def_prop_ro(
          "early_work",
          [](const PyShards& s) { return s.shards.report.early_work; },
          "Of all forward work, what needs no tile of another shard.")
      .def_prop_ro(
          "forward",
          [](const PyShards& s) { return moved(s.shards.report.forward); },
          "Bytes that travel in a forward pass.")
      .def_prop_ro(
          "backward",
          [](const PyShards& s) { return moved(s.shards.report.backward); },
          "Bytes that travel in a backward pass.")
      .def_prop_ro(
          "steps",
          [](const PyShards& s) {
            std::vector<int64_t> steps;
            for (const Shard& one : s.shards.shards) {
              steps.push_back(one.steps);
            }
            return steps;
          },
          "That each shard runs forward.")
      .def_prop_ro(
          "kv_tiles",
          [](const PyShards& s) {
            const auto n = static_cast<size_t>(s.shards.mesh.size("seq"));
            return own_array(s.shards.report.kv_tiles, {n, n});
          },
          "[from, to]: K/V tiles that travel along seq.")
      .def_prop_ro(
          "query_tiles", [](const PyShards& s) { return held(s, true); },
          "Of each shard, an array [tiles, 2] of the batch row and the tile "
          "that it holds: a data loader puts these tokens there.")
      .def_prop_ro(
          "key_tiles", [](const PyShards& s) { return held(s, false); },
          "The same of keys and values.");
}

void bind_layout(ShardsClass& shards) {
  shards
      .def_prop_ro(
          "specs", [](const PyShards& s) { return specs_of(s.shards.specs); },
          "How every array of tokens of a call lies on the mesh.")
      .def_prop_ro(
          "query_order", [](const PyShards& s) { return order(s, true); },
          "[data, tokens]: which token of the batch, row times tokens plus "
          "token, stands where in the program's arrays; -1: none.")
      .def_prop_ro(
          "key_order", [](const PyShards& s) { return order(s, false); },
          "The same of keys and values.")
      .def_prop_ro(
          "contract", [](const PyShards& s) { return s.shards.contract_key; },
          "The key of what their program depends on; no batch is in it.")
      .def_prop_ro(
          "fingerprint", [](const PyShards& s) { return s.shards.fingerprint; },
          "Of mesh and specs: 32 hex digits.");
}

void bind_programs(ShardsClass& shards) {
  shards
      .def("program_text", &text_of_program, nb::arg("backward") = false,
           nb::kw_only(), nb::arg("scale") = nb::none(),
           nb::arg("softcap") = 0.0, nb::arg("sink_logits") = false,
           nb::arg("dlse") = false,
           "The program of all shards as StableHLO, for a compiler with "
           "Shardy.")
      .def("program_arrays", &program_arrays, nb::arg("backward") = false,
           nb::kw_only(), nb::arg("scale") = nb::none(),
           nb::arg("softcap") = 0.0, nb::arg("sink_logits") = false,
           nb::arg("dlse") = false,
           "Its arguments and results in their order: names, whole shapes, and "
           "the axes that divide them.")
      .def(
          "kernel_program", &kernel_program, nb::arg("target"),
          nb::arg("backward") = false, nb::kw_only(),
          nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
          nb::arg("sink_logits") = false, nb::arg("dlse") = false,
          nb::arg("lowering_reason") = nb::none(),
          nb::arg("numbers") = "finite",
          "The program whose attention is our TPU kernel, for a target such as "
          "'v6e': text, arguments and results.")
      .def(
          "kernel_integers", &kernel_integers, nb::arg("target"),
          nb::arg("backward") = false, nb::kw_only(),
          nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
          nb::arg("sink_logits") = false, nb::arg("dlse") = false,
          nb::arg("lowering_reason") = nb::none(),
          nb::arg("numbers") = "finite",
          nb::sig("def kernel_integers(self, target: str, backward: bool = "
                  "False, *, scale: float | None = None, softcap: float = 0.0, "
                  "sink_logits: bool = False, dlse: bool = False, "
                  "lowering_reason: str | None = None, numbers: str = "
                  "\"finite\") -> tuple[dict[str, "
                  "numpy.ndarray], str]"),
          "The integer arrays that it takes, whole, by name, and the key of "
          "the "
          "kernel's contract.")
      .def("integers", &integers,
           "The integer arrays that it takes, whole, by name: lists, ids and "
           "what travels. They alone are of the batch.");
}

}  // namespace

ShardOptions shard_options(const ShardWords& words, const std::string& mesh) {
  ShardOptions options = take(parse_shard_options(words));
  const ShardWords unsaid;
  if (mesh.empty() &&
      (words.balance != unsaid.balance || words.exchange != unsaid.exchange ||
       !words.ceilings.empty() || !words.work.empty() ||
       !words.evenness.empty() || words.uneven)) {
    refuse(
        "balance, exchange, ceilings, work, evenness and uneven go with a "
        "mesh, found none");
  }
  return options;
}

void bind_shard(nb::module_& m) {
  ShardsClass shards(
      m, "Shards",
      "A batch spread over a mesh: who computes what, how even, what travels.");
  bind_options(shards);
  bind_report(shards);
  bind_layout(shards);
  bind_programs(shards);
  shards.def("_repr_svg_", &picture_of).def("__repr__", &described);
  bind_json(shards, &values_of);
  bind_pickle(shards, &state_of, &of_state);
  m.def("shard", &shard, nb::arg("batch"), nb::arg("mesh"), nb::kw_only(),
        nb::arg("balance") = "rows", nb::arg("exchange") = "rounds",
        nb::arg("ceilings") = "", nb::arg("work") = "",
        nb::arg("evenness") = "", nb::arg("heads") = 1,
        nb::arg("kv_heads") = nb::none(), nb::arg("head_dim") = 128,
        nb::arg("v_head_dim") = nb::none(), nb::arg("dtype") = "bf16",
        nb::arg("uneven") = false, nb::arg("target") = nb::none(),
        "Spreads a batch over a mesh such as 'data=2,seq=4': batch rows along "
        "data, heads along head, query rows along seq. `balance` is "
        "'contiguous', 'headtail', 'rows' or 'tasks'; `exchange` is "
        "'rounds', 'gather' (all K and V go to all), 'auto' (rounds, or gather "
        "where they would send as much; with the TPU of `target`, 'v6e', "
        "'ragged') or 'ragged', for TPUs. `ceilings`, "
        "what a shard may hold, is text as "
        "`Shards.ceilings` gives it ('rows=16,steps=128,kv=6:12:8'): batches "
        "that fit have one contract, others are an error. `work` is what a "
        "tile counts where work is spread, by its class "
        "('partial=3,full=2'); else 1 each. `evenness` is the most that a "
        "shard of 'rows' or 'tasks' is to have over the mean, of work and of "
        "tokens ('work=1.05,tokens=1.02'): where it is more, less may have to "
        "travel. A session with a mesh runs it.");
}

}  // namespace tessera::python
