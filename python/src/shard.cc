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
               bool dlse, bool uneven,
               const std::optional<std::string>& target) {
  ShardOptions options = take(parse_shard_options(
      {balance, exchange, ceilings, work, evenness, uneven}));
  options.shape = shape_of(heads, kv_heads, head_dim, v_head_dim);
  options.dtype = parse_dtype(dtype);
  options.dlse = dlse;
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
  out["dlse"] = o.dlse;
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
  options.dlse = read_state<bool>(state, "dlse");
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
          "The batch that is spread over the mesh.")
      .def_prop_ro(
          "mesh", [](const PyShards& s) { return to_string(s.shards.mesh); },
          "The axes of the mesh and their sizes, as text.")
      .def_prop_ro(
          "balance",
          [](const PyShards& s) {
            return std::string(to_string(s.options.balance));
          },
          "How query rows are spread: the `balance` of `shard`.")
      .def_prop_ro(
          "exchange",
          [](const PyShards& s) {
            return std::string(to_string(s.shards.exchange));
          },
          "How tiles travel between shards. If 'auto' was asked for, the\n"
          "exchange that was chosen.")
      .def_prop_ro(
          "ceilings",
          [](const PyShards& s) { return to_string(ceilings_of(s.shards)); },
          "What the shards have room for, as text. Under these ceilings all\n"
          "other batches that fit have the same contract.")
      .def_prop_ro(
          "work", [](const PyShards& s) { return to_string(s.options.work); },
          "The work that a tile of each class counts as, as text.")
      .def_prop_ro(
          "evenness", &evenness_of,
          "The most work and the most tokens that a shard should have, over\n"
          "the mean, as text; '' for a balance that does not seek evenness.")
      .def("__len__", [](const PyShards& s) { return s.shards.shards.size(); });
}

void bind_report(ShardsClass& shards) {
  shards
      .def_prop_ro(
          "work_max_over_mean",
          [](const PyShards& s) { return s.shards.report.work_max_over_mean; },
          "The work of the shard with the most work, over the mean; 1 is even.")
      .def_prop_ro(
          "least_needed_bytes",
          [](const PyShards& s) { return s.shards.report.least_needed; },
          "A lower bound of the bytes of K and V that a forward pass must\n"
          "send, over all ways to spread rows that are as even as was\n"
          "asked, or as this one if it is less even. Even the best way may\n"
          "need more.")
      .def_prop_ro(
          "tokens_max_over_mean",
          [](const PyShards& s) {
            return s.shards.report.tokens_max_over_mean;
          },
          "The tokens of the shard with the most tokens, over the mean; 1 is "
          "even.")
      .def_prop_ro(
          "early_work",
          [](const PyShards& s) { return s.shards.report.early_work; },
          "The share of all forward work that needs no tile of another shard.")
      .def_prop_ro(
          "forward",
          [](const PyShards& s) { return moved(s.shards.report.forward); },
          "Bytes that travel in a forward pass: a dict of needed_bytes,\n"
          "sent_bytes (with padding), capacity_bytes (the program's room),\n"
          "busiest_bytes (the most needed bytes of one shard) and\n"
          "all_gather_bytes.")
      .def_prop_ro(
          "backward",
          [](const PyShards& s) { return moved(s.shards.report.backward); },
          "Bytes that travel in a backward pass: a dict as for `forward`.")
      .def_prop_ro(
          "steps",
          [](const PyShards& s) {
            std::vector<int64_t> steps;
            for (const Shard& one : s.shards.shards) {
              steps.push_back(one.steps);
            }
            return steps;
          },
          "The number of steps that each shard runs in a forward pass.")
      .def_prop_ro(
          "kv_tiles",
          [](const PyShards& s) {
            const auto n = static_cast<size_t>(s.shards.mesh.size("seq"));
            return own_array(s.shards.report.kv_tiles, {n, n});
          },
          "Number of K/V tiles that travel along seq: int64 [from, to].")
      .def_prop_ro(
          "query_tiles", [](const PyShards& s) { return held(s, true); },
          "For each shard an int32 array [tiles, 2] of the batch row and\n"
          "the number of each query tile that it holds. A data loader puts\n"
          "the tokens of these tiles there.")
      .def_prop_ro(
          "key_tiles", [](const PyShards& s) { return held(s, false); },
          "For each shard the key tiles that it holds, as in `query_tiles`.");
}

void bind_layout(ShardsClass& shards) {
  shards
      .def_prop_ro(
          "specs", [](const PyShards& s) { return specs_of(s.shards.specs); },
          "How every array of tokens of a call lies on the mesh: a list of\n"
          "dicts of name, dtype, shape and axes.")
      .def_prop_ro(
          "query_order", [](const PyShards& s) { return order(s, true); },
          "The query token at each place of the program's arrays, as batch\n"
          "row times tokens plus token; -1: no token. int64 [data, tokens].")
      .def_prop_ro(
          "key_order", [](const PyShards& s) { return order(s, false); },
          "As `query_order`, for keys and values.")
      .def_prop_ro(
          "contract", [](const PyShards& s) { return s.shards.contract_key; },
          "The key of the contract: what the program of these shards\n"
          "depends on. It does not contain the batch.")
      .def_prop_ro(
          "fingerprint", [](const PyShards& s) { return s.shards.fingerprint; },
          "Digest of the mesh and the specs: 32 hex digits.");
}

void bind_programs(ShardsClass& shards) {
  shards
      .def("program_text", &text_of_program, nb::arg("backward") = false,
           nb::kw_only(), nb::arg("scale") = nb::none(),
           nb::arg("softcap") = 0.0, nb::arg("sink_logits") = false,
           nb::arg("dlse") = false,
           "The program of all shards as StableHLO text, for a compiler with "
           "Shardy.")
      .def("program_arrays", &program_arrays, nb::arg("backward") = false,
           nb::kw_only(), nb::arg("scale") = nb::none(),
           nb::arg("softcap") = 0.0, nb::arg("sink_logits") = false,
           nb::arg("dlse") = false,
           "The arguments and the results of the program of `program_text`,\n"
           "in order: a dict of two lists, with the name, the dtype, the\n"
           "whole shape and the dividing axes of each array.")
      .def("kernel_program", &kernel_program, nb::arg("target"),
           nb::arg("backward") = false, nb::kw_only(),
           nb::arg("scale") = nb::none(), nb::arg("softcap") = 0.0,
           nb::arg("sink_logits") = false, nb::arg("dlse") = false,
           nb::arg("lowering_reason") = nb::none(),
           nb::arg("numbers") = "finite",
           "The program whose attention is our TPU kernel, for a target such\n"
           "as 'v6e': a dict of `text`, `arguments` and `results`, the last\n"
           "two as in `program_arrays`.")
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
          "The int32 arrays that the program of `kernel_program` takes,\n"
          "whole, by name, and the key of the kernel's contract.")
      .def("integers", &integers,
           "The int32 arrays that the program of `program_text` takes,\n"
           "whole, by name: worklists, ids and which tiles travel. No other\n"
           "argument depends on the batch.");
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
      "A batch that is spread over a mesh: what each shard computes,\n"
      "how even the work is, and what travels. `shard` makes it.");
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
        nb::arg("dlse") = false, nb::arg("uneven") = false,
        nb::arg("target") = nb::none(),
        "Spreads a batch over a mesh such as 'data=2,seq=4': batch rows\n"
        "along data, heads along head, query rows along seq. Returns\n"
        "Shards. A session with a mesh runs such calls.\n\n"
        "- `balance`: 'contiguous', 'headtail', 'rows' or 'tasks'\n"
        "- `exchange`: how tiles travel: 'rounds'; 'gather', which sends\n"
        "  all K and V to every shard; 'ragged', for TPUs; or 'auto',\n"
        "  which is 'gather' if rounds would send as much, else 'rounds',\n"
        "  and 'ragged' if `target` names a TPU such as 'v6e'\n"
        "- `ceilings`: the most that a shard may hold, as\n"
        "  `Shards.ceilings` has it ('rows=16,steps=128,kv=6:12:8').\n"
        "  Batches that fit have one contract; a batch that does not fit\n"
        "  raises a TesseraError\n"
        "- `work`: what a tile counts, by its class ('partial=3,full=2'),\n"
        "  where work is spread; 1 unless it is given\n"
        "- `evenness`: the most that a shard of 'rows' or 'tasks' should\n"
        "  have over the mean, of work and of tokens\n"
        "  ('work=1.05,tokens=1.02'). If shards may be less even, less\n"
        "  may have to travel\n"
        "- `heads`, `kv_heads`, `head_dim`, `v_head_dim`, `dtype`: the\n"
        "  call, which decides the bytes of a tile\n"
        "- `dlse`: `backward` counts a gradient of the log-sum-exp too,\n"
        "  which a call may have and which travels with a moved task\n"
        "- `uneven`: pads batch rows and groups of heads that an axis\n"
        "  does not divide, which are an error otherwise");
}

}  // namespace tessera::python
