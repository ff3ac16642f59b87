#include "batch.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "facts.h"
#include "failure.h"
#include "interrupts.h"
#include "layouts.h"
#include "mask.h"
#include "mask/canonical.h"
#include "picture/picture.h"
#include "plan/stoppable.h"
#include "repr.h"
#include "states.h"
#include "tessera/mosaic.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

using Pair = std::pair<int64_t, int64_t>;

// The hook of `tessera.torch`, or null; kept until the process ends.
PyObject* watching = nullptr;

void show(nb::handle made) {
  if (watching == nullptr) return;
  const nb::handle call = watching;
  call(made);
}

NewBatch plan(nb::object mask, int64_t q_len, std::optional<int64_t> kv_len,
              int64_t batch, Pair tile, nb::object doc_ids,
              nb::object q_doc_ids, nb::object cu_seqlens,
              nb::object position_ids, nb::object valid_token_counts,
              nb::object prefix, nb::object q_offset, nb::object picks,
              nb::object tree_enter, nb::object tree_leave, int64_t max_steps,
              int64_t max_width, int64_t max_union, nb::object topk_idxs,
              nb::object block_mask, nb::object same) {
  Request request;
  request.masks = read_masks(mask);
  request.batch = batch;
  request.q_len = q_len;
  request.kv_len = kv_len.value_or(q_len);
  request.tile = {tile.first, tile.second};
  request.ceilings = {max_steps, max_width, max_union};
  const bool ceilings = max_steps > 0 || max_width > 0 || max_union > 0;
  OwnedFacts facts = read_facts(
      {doc_ids, q_doc_ids, cu_seqlens, position_ids, valid_token_counts, prefix,
       q_offset, picks, tree_enter, tree_leave, same},
      request);
  read_selections(picks, topk_idxs, block_mask, request, facts);
  auto made = without_gil([&](const StopFlag*) {
    auto out = plan::make_batch(std::move(request), std::move(facts),
                                Interrupts::stopped);
    // A batch above a ceiling is an error.
    if (out && ceilings) {
      if (auto contract = make_contract(*out); !contract) {
        return Result<OwnedBatch>(contract.error());
      }
    }
    return out;
  });
  return new_batch(take(std::move(made)));
}

std::vector<std::string> mask_texts(const Request& request) {
  std::vector<std::string> out;
  out.reserve(request.masks.size());
  for (const Mask& mask : request.masks) out.push_back(to_string(mask));
  return out;
}

nb::object ints_or_none(const std::optional<Ints>& values, nb::handle owner,
                        size_t rows) {
  if (!values) return nb::none();
  nb::object flat = view_of(*values, owner);
  return rows == 0 ? flat : flat.attr("reshape")(rows, values->size() / rows);
}

nb::dict facts_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  const Facts& f = batch.facts();
  const auto rows = static_cast<size_t>(batch.plan().batch);
  nb::dict out;
  const auto add = [&](const char* name, const std::optional<Ints>& values,
                       size_t shape) {
    if (values) out[name] = ints_or_none(values, self, shape);
  };
  add("doc_ids", f.doc_ids, rows);
  add("q_doc_ids", f.q_doc_ids, rows);
  add("valid_token_counts", f.valid_token_counts, 0);
  add("prefix", f.prefix_lengths, 0);
  add("q_offset", f.q_offsets, 0);
  add("tree_enter", f.tree_enter, rows);
  add("tree_leave", f.tree_leave, rows);
  for (size_t i = 0; i < f.same_ids.size(); ++i) {
    const std::string name = mask::same_fact(static_cast<int64_t>(i));
    add(name.c_str(), f.same_ids[i], rows);
  }
  if (f.picks) {
    nb::object flat = view_of(f.picks->blocks, self);
    out["picks"] = flat.attr("reshape")(rows, f.picks->heads,
                                        batch.plan().q_len, f.picks->k);
  }
  return out;
}

nb::dict statistics_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  const Statistics s = take(unlocked([&] { return make_statistics(batch); }));
  nb::dict out;
  out["tiles_total"] = s.tiles_total;
  out["tiles_active"] = s.tiles_active;
  out["tiles_partial"] = s.tiles_partial;
  out["tiles_full"] = s.tiles_full;
  out["pairs_total"] = s.pairs_total;
  out["pairs_needed"] = s.pairs_needed;
  out["pairs_paid"] = s.pairs_paid;
  out["density"] = s.density;
  out["grid_width"] = s.grid_width;
  out["grid_width_transposed"] = s.grid_width_transposed;
  out["empty_rows"] = s.empty_rows;
  return out;
}

std::string repr_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  const Plan& p = batch.plan();
  const int64_t tiles = p.forward.lists * p.forward.rows * p.forward.columns;
  return one_line("Batch('", mask_text(batch.request()),
                  "', batch=" + std::to_string(p.batch) +
                      ", q_len=" + std::to_string(p.q_len) +
                      ", kv_len=" + std::to_string(p.kv_len) +
                      ", tiles=" + std::to_string(p.forward.entries.size()) +
                      "/" + std::to_string(tiles) + ")");
}

PlanContract contract_of(const Batch& batch) {
  return take(unlocked([&] { return make_contract(batch); }));
}

std::string digest_of(const Batch& batch) {
  return unlocked([&] { return plan_digest(batch.plan()); });
}

bool equal(const PyBatch& l, const PyBatch& r) {
  if (&l == &r) return true;
  return unlocked([&] {
    return l.batch.request() == r.batch.request() &&
           own_facts(l.batch.facts()) == own_facts(r.batch.facts());
  });
}

// The request, the names of the facts, the contract and counts, but no array.
nb::dict summary_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  const Request& r = batch.request();
  nb::list facts;
  for (auto [name, value] : facts_of(self)) facts.append(name);
  nb::dict out;
  out["masks"] = mask_texts(r);
  out["batch"] = r.batch;
  out["heads"] = batch.plan().heads;
  out["q_len"] = r.q_len;
  out["kv_len"] = r.kv_len;
  out["tile"] = nb::make_tuple(r.tile.q, r.tile.kv);
  out["max_steps"] = r.ceilings.max_steps;
  out["max_width"] = r.ceilings.max_width;
  out["max_union"] = r.ceilings.max_union;
  out["facts"] = facts;
  out["contract"] = contract_of(batch).key;
  out["digest"] = digest_of(batch);
  out["statistics"] = statistics_of(self);
  return out;
}

std::string html_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  return take(unlocked([&] {
    std::vector<std::string> titles =
        picture::titles_of_heads(batch.plan(), mask_texts(batch.request()));
    picture::Input input{batch, titles.front()};
    input.head_masks = std::move(titles);
    return picture::draw_html(input);
  }));
}

OwnedBatch read_plan(const nb::bytes& bytes) {
  const std::string_view view(bytes.c_str(), bytes.size());
  auto made = unlocked([&] { return decode_plan(view); });
  return take(std::move(made));
}

}  // namespace

const Batch& batch_of(nb::handle object) {
  if (!nb::isinstance<PyBatch>(object)) {
    refuse("batch must be a tessera.Batch, found " +
           nb::cast<std::string>(object.type().attr("__name__")));
  }
  return nb::cast<const PyBatch&>(object).batch;
}

std::string mask_text(const Request& request) {
  std::string out;
  for (const std::string& mask : mask_texts(request)) {
    out += (out.empty() ? "" : " / ") + mask;
  }
  return out;
}

NewBatch new_batch(OwnedBatch batch) {
  nb::object out = nb::cast(PyBatch(std::move(batch)));
  show(out);
  return nb::borrow<NewBatch>(out);
}

namespace {

void bind_files(nb::class_<PyBatch>& batch) {
  batch
      .def(
          "to_bytes",
          [](const PyBatch& b) {
            return bytes_of(
                take(unlocked([&] { return encode_plan(b.batch); })));
          },
          "The batch as the bytes of a plan file.")
      .def_static(
          "from_bytes",
          [](const nb::bytes& bytes) { return new_batch(read_plan(bytes)); },
          nb::arg("bytes"),
          "Reads a batch from the bytes of a plan file. Raises a\n"
          "TesseraError if the file is damaged or its lists differ from\n"
          "those that its facts plan to.")
      .def("__getstate__",
           [](nb::handle self) { return self.attr("to_bytes")(); })
      .def("__setstate__",
           [](nb::handle self, nb::bytes bytes) {
             new (nb::inst_ptr<PyBatch>(self)) PyBatch(read_plan(bytes));
             nb::inst_mark_ready(self);
             show(self);
           })
      .def(
          "save",
          [](const PyBatch& b, const std::filesystem::path& path) {
            take(unlocked([&] { return save_plan(path, b.batch); }));
          },
          nb::arg("path"), "Writes the batch to a plan file.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            return new_batch(take(unlocked([&] { return load_plan(path); })));
          },
          nb::arg("path"),
          "Reads a batch from a plan file. Raises a TesseraError if the\n"
          "file is damaged or its lists differ from those that its facts\n"
          "plan to.");
}

void bind_request(nb::class_<PyBatch>& batch) {
  batch
      .def_prop_ro(
          "masks",
          [](const PyBatch& b) { return mask_texts(b.batch.request()); },
          "The masks as text: one for all heads, or one for each group of "
          "heads.")
      .def_prop_ro(
          "batch", [](const PyBatch& b) { return b.batch.plan().batch; },
          "Number of batch rows.")
      .def_prop_ro(
          "heads", [](const PyBatch& b) { return b.batch.plan().heads; },
          "Number of plan heads: 1 unless masks or picks differ by head.")
      .def_prop_ro(
          "q_len", [](const PyBatch& b) { return b.batch.plan().q_len; },
          "Number of queries of a batch row.")
      .def_prop_ro(
          "kv_len", [](const PyBatch& b) { return b.batch.plan().kv_len; },
          "Number of keys of a batch row.")
      .def_prop_ro(
          "keys_per_query",
          [](const PyBatch& b) { return keys_per_query(b.batch); },
          "The mean number of keys that a query sees, rounded down. Padding\n"
          "queries count too.")
      .def_prop_ro(
          "tile",
          [](const PyBatch& b) {
            const Tile t = b.batch.plan().tile;
            return Pair{t.q, t.kv};
          },
          "The queries and the keys of a tile: (q, kv).");
}

void bind_lists(nb::class_<PyBatch>& batch) {
  batch
      .def_prop_ro(
          "forward", [](nb::object self) { return worklist_of(self, false); },
          "The worklist whose rows are query tiles.")
      .def_prop_ro(
          "transposed", [](nb::object self) { return worklist_of(self, true); },
          "The worklist whose rows are key tiles. Backward passes use it.")
      .def_prop_ro(
          "contract", [](const PyBatch& b) { return contract_of(b.batch); },
          "The plan contract: everything static that a compiled program of\n"
          "this batch depends on.")
      .def_prop_ro(
          "digest", [](const PyBatch& b) { return digest_of(b.batch); },
          "Digest of the plan's sizes and lists. Plans with equal digests\n"
          "are equal.")
      .def_prop_ro(
          "facts", &facts_of,
          "The facts of this batch by name, as read-only int32 arrays.\n"
          "`picks` is [batch, heads, q_len, k]; ids and trees are [batch,\n"
          "tokens]; counts, prefixes and offsets are [batch].")
      .def_prop_ro(
          "warnings", [](const PyBatch& b) { return make_warnings(b.batch); },
          "Warnings, one line each, about input that is valid but probably\n"
          "not intended.")
      .def_prop_ro(
          "legal_pairs",
          [](nb::handle self) {
            return view_of<int64_t>(batch_of(self).plan().legal_pairs, self);
          },
          "Number of legal (query, key) pairs in each list: int64 [lists].")
      .def_prop_ro(
          "plan_ms", [](const PyBatch& b) { return b.batch.plan_ms(); },
          "Milliseconds that it took to bind the facts and to plan.")
      .def("statistics", &statistics_of,
           "Counts of tiles (total, active, partial, full) and of pairs\n"
           "(total, needed: legal; paid: in active tiles), the density, the\n"
           "widest rows, and the number of empty rows, as a dict.")
      .def("summary", &summary_of,
           "The request, the names of the facts, the contract's key, the\n"
           "digest and the statistics, as a dict of plain values.")
      .def(
          "json", [](nb::handle self) { return json_of(summary_of(self)); },
          "The values of `summary` as JSON text.");
}

void bind_plan(nb::module_& m) {
  m.def("plan", &plan, nb::arg("mask"), nb::kw_only(), nb::arg("q_len"),
        nb::arg("kv_len") = nb::none(), nb::arg("batch") = 1,
        nb::arg("tile") = Pair{256, 256}, nb::arg("doc_ids") = nb::none(),
        nb::arg("q_doc_ids") = nb::none(), nb::arg("cu_seqlens") = nb::none(),
        nb::arg("position_ids") = nb::none(),
        nb::arg("valid_token_counts") = nb::none(),
        nb::arg("prefix") = nb::none(), nb::arg("q_offset") = nb::none(),
        nb::arg("picks") = nb::none(), nb::arg("tree_enter") = nb::none(),
        nb::arg("tree_leave") = nb::none(), nb::arg("max_steps") = 0,
        nb::arg("max_width") = 0, nb::arg("max_union") = 0,
        nb::arg("topk_idxs") = nb::none(), nb::arg("block_mask") = nb::none(),
        nb::arg("same") = nb::none(),
        "Plans one batch from a mask, lengths and facts. Returns a Batch.\n\n"
        "`mask` is a Mask, its text, or a list of either with one mask\n"
        "for each group of heads. `kv_len` is `q_len` unless it is given.\n"
        "`tile` is the queries and the keys of a tile.\n\n"
        "Facts are what changes with each batch: int32 arrays (NumPy,\n"
        "DLPack) or lists. The batch keeps its own copy, so later changes\n"
        "of the arrays do not affect it.\n\n"
        "- `doc_ids`: [batch, kv_len]; a negative id is padding\n"
        "- `cu_seqlens`: boundaries of documents, in place of `doc_ids`,\n"
        "  for a batch of one row\n"
        "- `position_ids`: [batch, kv_len], in place of `doc_ids`\n"
        "- `q_doc_ids`: [batch, q_len]\n"
        "- `valid_token_counts`, `prefix`, `q_offset`: [batch];\n"
        "  `q_offset` is kv_len - q_len unless it is given\n"
        "- `picks`: [batch, heads, q_len, k], block numbers; -1 is an\n"
        "  unused slot\n"
        "- `topk_idxs`: picks as [queries, groups, k]\n"
        "- `block_mask`: picks as [batch, heads, rows, columns] of bool,\n"
        "  which says of each block of n queries and n keys whether it is\n"
        "  active; for a mask that names `blocks(n)`\n"
        "- `tree_enter`, `tree_leave`: [batch, kv_len]; `pack_tree` makes\n"
        "  them\n"
        "- `same`: the ids of `same(a)`, `same(b)`, ...: {'a': ids, 'b':\n"
        "  ids}\n\n"
        "`max_steps`, `max_width` and `max_union` are ceilings that fix\n"
        "the contract for a whole run; 0 leaves a size to its bucket.\n"
        "Raises a TesseraError if the batch is above a ceiling.");
}

}  // namespace

void bind_batch(nb::module_& m) {
  nb::class_<PyBatch> batch(
      m, "Batch", nb::dynamic_attr(), nb::is_weak_referenceable(),
      "One batch: a request, its facts and the exact worklists that\n"
      "they plan to. A batch never changes. `plan` makes it.");
  bind_request(batch);
  bind_lists(batch);
  batch
      .def("html", &html_of,
           "The HTML page that `tessera show` makes of this batch, as text.")
      .def("_repr_html_",
           [](nb::handle self) {
             nb::object escape = nb::module_::import_("html").attr("escape");
             const auto page =
                 nb::cast<std::string>(escape(nb::str(html_of(self).c_str())));
             return "<iframe style=\"width:100%;height:640px;border:0\" "
                    "srcdoc=\"" +
                    page + "\"></iframe>";
           })
      .def("__repr__", &repr_of)
      .def("__eq__", &equal, nb::is_operator(), nb::sig(kEqual))
      .def("__hash__", [](const PyBatch& b) {
        return nb::hash(nb::str(digest_of(b.batch).c_str()));
      });
  bind_files(batch);
  bind_layouts(m, batch);
  m.def(
      "_watch_batches",
      [](nb::object of) {
        Py_XDECREF(watching);
        watching = of.is_none() ? nullptr : of.release().ptr();
      },
      nb::arg("of").none());
  bind_plan(m);
}

}  // namespace tessera::python
