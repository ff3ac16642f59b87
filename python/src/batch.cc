#include "batch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <utility>

#include "arrays.h"
#include "base/digest.h"
#include "block_mask.h"
#include "failure.h"
#include "interrupts.h"
#include "mask.h"
#include "mask/canonical.h"
#include "picture/picture.h"
#include "plan/stoppable.h"
#include "repr.h"
#include "states.h"
#include "tessera/batch.h"
#include "tessera/contract.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

using Pair = std::pair<int64_t, int64_t>;

// Held until the process ends, as modules are.
PyObject* watching = nullptr;

void show(nb::handle made) {
  if (watching == nullptr) return;
  const nb::handle call = watching;
  call(made);
}

size_t dims_of(nb::handle object) {
  if (nb::hasattr(object, "ndim")) return nb::cast<size_t>(object.attr("ndim"));
  size_t n = 0;
  nb::object at = nb::borrow(object);
  while (nb::isinstance<nb::list>(at) || nb::isinstance<nb::tuple>(at)) {
    ++n;
    if (nb::len(at) == 0) break;
    at = at[0];
  }
  return n;
}

void take_picks(TopkPicks picks, OwnedFacts& facts) {
  facts.picks = std::move(picks.blocks);
  facts.picks_heads = picks.heads;
  facts.picks_k = picks.k;
}

void take_topk(nb::handle topk_idxs, const Request& request,
               OwnedFacts& facts) {
  if (topk_idxs.is_none()) return;
  const size_t dims = dims_of(topk_idxs);
  const std::vector<int64_t> any(dims >= 2 && dims <= 4 ? dims : 3, -1);
  const IntArray read = read_ints("topk_idxs", topk_idxs, any);
  take_picks(take(picks_from_topk(read.values, read.shape, request)), facts);
}

NumpyArray<int32_t> topk_of(const PyBatch& b) {
  TopkIdxs topk = take(make_topk(b.batch));
  return own_array(std::move(topk.values),
                   {topk.shape.begin(), topk.shape.end()});
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
      batch, q_len, request.kv_len);
  const int sources = static_cast<int>(!picks.is_none()) +
                      static_cast<int>(!topk_idxs.is_none()) +
                      static_cast<int>(!block_mask.is_none());
  if (sources > 1) {
    refuse("picks come from one of picks, topk_idxs and block_mask, found " +
           std::to_string(sources));
  }
  take_topk(topk_idxs, request, facts);
  if (!block_mask.is_none()) {
    const BlockMask cells = read_block_mask("block_mask", block_mask, {});
    take_picks(take(picks_from_blocks(cells, request)), facts);
  }
  auto made = without_gil([&](const StopFlag*) {
    auto out =
        plan::make_batch(std::move(request), std::move(facts), look_and_tell);
    // Above a ceiling there is no batch.
    if (out && ceilings) {
      if (auto contract = make_contract(*out); !contract) {
        return Result<OwnedBatch>(contract.error());
      }
    }
    return out;
  });
  return new_batch(take(std::move(made)));
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
  const Statistics s = take(make_statistics(batch_of(self)));
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

// The request, what there is of facts, contract and counts; no array.
nb::dict summary_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  const Request& r = batch.request();
  nb::list masks;
  for (const Mask& mask : r.masks) masks.append(to_string(mask));
  nb::list facts;
  for (auto [name, value] : facts_of(self)) facts.append(name);
  nb::dict out;
  out["masks"] = masks;
  out["batch"] = r.batch;
  out["heads"] = batch.plan().heads;
  out["q_len"] = r.q_len;
  out["kv_len"] = r.kv_len;
  out["tile"] = nb::make_tuple(r.tile.q, r.tile.kv);
  out["max_steps"] = r.ceilings.max_steps;
  out["max_width"] = r.ceilings.max_width;
  out["max_union"] = r.ceilings.max_union;
  out["facts"] = facts;
  out["contract"] = take(make_contract(batch)).key;
  out["digest"] = plan_digest(batch.plan());
  out["statistics"] = statistics_of(self);
  return out;
}

std::string html_of(nb::handle self) {
  const Batch& batch = batch_of(self);
  picture::Input input{batch, mask_text(batch.request())};
  if (batch.request().masks.size() > 1) {
    for (const Mask& mask : batch.request().masks) {
      input.head_masks.push_back(to_string(mask));
    }
  }
  const nb::gil_scoped_release released;
  return take(picture::draw_html(input));
}

OwnedBatch read_plan(const nb::bytes& bytes) {
  const std::string_view view(bytes.c_str(), bytes.size());
  auto made = unlocked([&] { return decode_plan(view); });
  return take(std::move(made));
}

// Memory of the last BlockMasks that nobody holds any more. Under the GIL.
std::vector<std::vector<int32_t>>& spare_lists() {
  static auto* const lists = new std::vector<std::vector<int32_t>>;
  return *lists;
}
constexpr size_t kMaxSpareLists = 8;
constexpr size_t kMaxSpareSize = size_t{1} << 22;  // numbers of one

void take_spare(std::vector<int32_t>& into) {
  if (spare_lists().empty()) return;
  into = std::move(spare_lists().back());
  spare_lists().pop_back();
}

// Writable, for PyTorch takes no other.
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
  FlexBlockMask flex = take(
      unlocked([&] { return make_flex(self.batch.plan(), heads, &before); }));
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

nb::object splash_array(const SplashArray& array) {
  const char* const type = array.type == SplashType::boolean ? "bool"
                           : array.type == SplashType::int8  ? "int8"
                           : array.type == SplashType::int16 ? "int16"
                                                             : "int32";
  nb::object bytes = own_array(array.bytes, {array.bytes.size()});
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
  const SplashMaskInfo info = take(
      unlocked([&] { return make_splash(self.batch, batch_row, options); }));
  const auto maybe = [](const std::optional<SplashArray>& a) -> nb::object {
    return a ? splash_array(*a) : nb::none();
  };
  nb::dict out;
  out["data_next"] = splash_array(info.data_next);
  out["mask_next"] = maybe(info.mask_next);
  out["block_mask"] = splash_array(info.block_mask);
  out["partial_mask_blocks"] = maybe(info.partial_mask_blocks);
  out["q_sequence"] = maybe(info.q_sequence);
  return out;
}

PyWorklist worklist_of(nb::object owner, bool transposed) {
  auto& b = nb::cast<PyBatch&>(owner);
  const Plan& plan = b.batch.plan();
  return {std::move(owner), transposed ? &plan.transposed : &plan.forward,
          transposed ? &b.transposed : &b.forward, transposed};
}

nb::dict worklist_values(nb::handle self) {
  const auto& w = nb::cast<const PyWorklist&>(self);
  nb::dict out;
  out["lists"] = w.list->lists;
  out["rows"] = w.list->rows;
  out["columns"] = w.list->columns;
  for (const char* const name : {"row_start", "column", "tile_class"}) {
    out[name] = self.attr(name);
  }
  return out;
}

nb::dict worklist_state(nb::handle self) {
  const auto& w = nb::cast<const PyWorklist&>(self);
  nb::dict out;
  out["of"] = w.owner;
  out["transposed"] = w.transposed;
  return out;
}

PyWorklist worklist_of_state(const nb::dict& state) {
  const auto of = read_state<nb::object>(state, "of");
  const bool transposed = read_state<bool>(state, "transposed");
  if (nb::isinstance<PyBatch>(of)) return worklist_of(of, transposed);
  return worklist_of_blocks(of, transposed);
}

void bind_worklist(nb::module_& m) {
  nb::class_<PyWorklist> worklist(
      m, "Worklist",
      "The active tiles of every row, ascending by column, as NumPy views: row "
      "r of list l is [row_start[l * rows + r], row_start[l * rows + r + 1]). "
      "Classes are 1 partial and 2 full.");
  worklist
      .def_prop_ro(
          "lists", [](const PyWorklist& w) { return w.list->lists; },
          "Of each batch row one, or one a plan head.")
      .def_prop_ro(
          "rows", [](const PyWorklist& w) { return w.list->rows; },
          "Tile rows of a list.")
      .def_prop_ro(
          "columns", [](const PyWorklist& w) { return w.list->columns; },
          "Tile columns of a list.")
      .def_prop_ro(
          "row_start",
          [](const PyWorklist& w) {
            return view_of<uint32_t>(w.list->row_start, w.owner);
          },
          "Where each row begins in `column`: uint32 [lists * rows + 1].")
      .def_prop_ro(
          "column",
          [](const PyWorklist& w) {
            return view_of<int32_t>(w.columns().column, w.owner);
          },
          "Of each active tile: int32.")
      .def_prop_ro(
          "tile_class",
          [](const PyWorklist& w) {
            return view_of<uint8_t>(w.columns().tile_class, w.owner);
          },
          "Of each active tile: uint8, 1 partial and 2 full.")
      .def("__len__",
           [](const PyWorklist& w) { return w.list->entries.size(); })
      .def("__repr__", [](const PyWorklist& w) {
        const Worklist& l = *w.list;
        return "Worklist(lists=" + std::to_string(l.lists) +
               ", rows=" + std::to_string(l.rows) +
               ", columns=" + std::to_string(l.columns) +
               ", tiles=" + std::to_string(l.entries.size()) + ")";
      });
  bind_json(worklist, &worklist_values);
  bind_pickle(worklist, &worklist_state, &worklist_of_state);
}

nb::dict contract_state(nb::handle self) {
  const auto& c = nb::cast<const PlanContract&>(self);
  nb::dict out;
  out["key"] = c.key;
  out["text"] = c.text;
  out["steps"] = c.steps;
  out["union_blocks"] = c.union_blocks;
  out["window_bounds"] = c.window_bounds;
  out["unused_facts"] = c.unused_facts;
  out["folded"] = c.folded;
  return out;
}

PlanContract contract_of_state(const nb::dict& state) {
  PlanContract c;
  c.key = read_state<std::string>(state, "key");
  c.text = read_state<std::string>(state, "text");
  c.steps = read_state<int64_t>(state, "steps");
  c.union_blocks = read_state<int64_t>(state, "union_blocks");
  c.window_bounds = read_state<std::vector<int64_t>>(state, "window_bounds");
  c.unused_facts = read_state<std::vector<std::string>>(state, "unused_facts");
  c.folded = read_state<std::vector<std::string>>(state, "folded");
  Digest digest;
  digest.add(c.text.data(), c.text.size());
  if (digest.hex() != c.key) {
    refuse("a contract's key must be that of its text, found " + c.key +
           " for " + digest.hex());
  }
  // What stands in the text too must be that.
  const nb::dict text = dict_of_json(c.text);
  if (read_state<int64_t>(text, "steps") != c.steps) {
    refuse("a contract's steps must be those of its text, found " +
           std::to_string(c.steps));
  }
  const int64_t blocks =
      text.contains("picks")
          ? read_state<int64_t>(read_state<nb::dict>(text, "picks"), "union")
          : 0;
  if (blocks != c.union_blocks) {
    refuse("a contract's union_blocks must be those of its text, found " +
           std::to_string(c.union_blocks));
  }
  return c;
}

void bind_contract(nb::module_& m) {
  nb::class_<PlanContract> contract(
      m, "Contract",
      "Everything static that a compiled program of this batch depends on; "
      "`key` is its cache key.");
  contract
      .def_ro("key", &PlanContract::key,
              "32 hex digits, a digest of `text`: the same on every machine.")
      .def_ro("text", &PlanContract::text, "Canonical JSON.")
      .def_ro("steps", &PlanContract::steps,
              "That a packed worklist of either direction may have.")
      .def_ro("union_blocks", &PlanContract::union_blocks,
              "Blocks that the queries of a tile row may pick together; 0 "
              "where no mask names picks.")
      .def_ro("window_bounds", &PlanContract::window_bounds,
              "Exact window bounds, which are no part of the key.")
      .def_ro("unused_facts", &PlanContract::unused_facts,
              "Facts that were given and that no mask names.")
      .def_ro("folded", &PlanContract::folded,
              "A line for each thing that was folded.")
      .def(
          "__eq__",
          [](const PlanContract& l, const PlanContract& r) {
            return l.key == r.key;
          },
          nb::is_operator(), nb::sig(kEqual))
      .def("__hash__",
           [](const PlanContract& c) {
             return nb::hash(nb::str(c.key.c_str()));
           })
      .def("__repr__", [](const PlanContract& c) {
        return "Contract('" + c.key + "', steps=" + std::to_string(c.steps) +
               ")";
      });
  bind_json(contract, &contract_state);
  bind_from_json(contract, &contract_of_state);
  bind_pickle(contract, &contract_state, &contract_of_state);
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
  for (const Mask& mask : request.masks) {
    if (!out.empty()) out += " / ";
    out += to_string(mask);
  }
  return out;
}

NewBatch new_batch(OwnedBatch batch) {
  nb::object out = nb::cast(PyBatch(std::move(batch)));
  show(out);
  return nb::borrow<NewBatch>(out);
}

const Columns& PyWorklist::columns() const {
  std::optional<Columns>& out = *kept;
  if (!out) {
    out.emplace();
    out->column.reserve(list->entries.size());
    out->tile_class.reserve(list->entries.size());
    for (const Entry e : list->entries) {
      out->column.push_back(static_cast<int32_t>(e.column()));
      out->tile_class.push_back(static_cast<uint8_t>(e.tile_class()));
    }
  }
  return *out;
}

namespace {

void read_same(nb::handle given, std::span<const int64_t> shape,
               OwnedFacts& facts) {
  if (!nb::isinstance<nb::dict>(given)) {
    refuse("same must be a dict of a letter to its ids, found " +
           nb::cast<std::string>(given.type().attr("__name__")));
  }
  for (auto [key, ids] : nb::borrow<nb::dict>(given)) {
    const auto name = nb::cast<std::string>(nb::str(key));
    if (name.size() != 1 || name[0] < 'a' || name[0] >= 'a' + kSameNames) {
      refuse("same takes letters from a to h, found '" + name + "'");
    }
    const auto i = static_cast<size_t>(name[0] - 'a');
    const std::string fact = mask::same_fact(static_cast<int64_t>(i));
    facts.same_ids[i] = read_ints(fact.c_str(), ids, shape).values;
  }
}

}  // namespace

OwnedFacts read_facts(const FactArguments& given, int64_t batch, int64_t q_len,
                      int64_t kv_len) {
  const int64_t keys[] = {batch, kv_len};
  const int64_t queries[] = {batch, q_len};
  const int64_t rows[] = {batch};
  OwnedFacts out;
  const int sources = static_cast<int>(!given.doc_ids.is_none()) +
                      static_cast<int>(!given.cu_seqlens.is_none()) +
                      static_cast<int>(!given.position_ids.is_none());
  if (sources > 1) {
    refuse(
        "documents come from one of doc_ids, cu_seqlens and position_ids, "
        "found " +
        std::to_string(sources));
  }
  if (!given.doc_ids.is_none()) {
    out.doc_ids = read_ints("doc_ids", given.doc_ids, keys).values;
  }
  if (!given.cu_seqlens.is_none()) {
    if (batch != 1) {
      refuse("cu_seqlens are of a batch of 1, found " + std::to_string(batch));
    }
    const std::vector<int64_t> any{-1};
    const IntArray at = read_ints("cu_seqlens", given.cu_seqlens, any);
    out.doc_ids = take(ids_from_cu_seqlens(at.values, kv_len));
  }
  if (!given.position_ids.is_none()) {
    const IntArray at = read_ints("position_ids", given.position_ids, keys);
    out.doc_ids = take(ids_from_position_ids(at.values, batch));
  }
  if (!given.q_doc_ids.is_none()) {
    out.q_doc_ids = read_ints("q_doc_ids", given.q_doc_ids, queries).values;
  }
  if (!given.valid_token_counts.is_none()) {
    out.valid_token_counts =
        read_ints("valid_token_counts", given.valid_token_counts, rows).values;
  }
  if (!given.prefix.is_none()) {
    out.prefix_lengths = read_ints("prefix", given.prefix, rows).values;
  }
  if (!given.q_offset.is_none()) {
    out.q_offsets = read_ints("q_offset", given.q_offset, rows).values;
  }
  if (!given.tree_enter.is_none()) {
    out.tree_enter = read_ints("tree_enter", given.tree_enter, keys).values;
  }
  if (!given.tree_leave.is_none()) {
    out.tree_leave = read_ints("tree_leave", given.tree_leave, keys).values;
  }
  if (!given.same.is_none()) read_same(given.same, keys, out);
  if (!given.picks.is_none()) {
    const std::vector<int64_t> shape{batch, -1, q_len, -1};
    IntArray picks = read_ints("picks", given.picks, shape);
    const size_t n = picks.shape.size();
    out.picks_heads = n >= 3 ? picks.shape[n - 3] : 1;
    out.picks_k = n >= 1 ? picks.shape[n - 1] : 0;
    out.picks = std::move(picks.values);
  }
  return out;
}

namespace {

void bind_files(nb::class_<PyBatch>& batch) {
  batch
      .def(
          "to_bytes",
          [](const PyBatch& b) {
            const std::string bytes =
                take(unlocked([&] { return encode_plan(b.batch); }));
            return nb::bytes(bytes.data(), bytes.size());
          },
          "A plan file.")
      .def_static(
          "from_bytes",
          [](const nb::bytes& bytes) { return new_batch(read_plan(bytes)); },
          nb::arg("bytes"),
          "Of a plan file; its lists are checked against its facts.")
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
          [](const PyBatch& b, const std::string& path) {
            take(unlocked([&] { return save_plan(path, b.batch); }));
          },
          nb::arg("path"), "Writes a plan file.")
      .def_static(
          "load",
          [](const std::string& path) {
            return new_batch(take(unlocked([&] { return load_plan(path); })));
          },
          nb::arg("path"),
          "Reads a plan file; its lists are checked against its facts.");
}

void bind_layouts(nb::class_<PyBatch>& batch) {
  batch
      .def("flex_lists", &flex_of, nb::arg("heads") = 0,
           "FlexAttention's BlockMask as arrays.")
      .def("splash_arrays", &splash_of, nb::arg("batch_row") = 0, nb::kw_only(),
           nb::arg("dkv") = false, nb::arg("shrink") = true,
           nb::arg("downcast") = true, nb::arg("heads") = 0,
           "Splash attention's MaskInfo as arrays.")
      .def("topk_idxs", &topk_of, "The picks as [queries, groups, k], int32.");
}

}  // namespace

void bind_batch(nb::module_& m) {
  bind_worklist(m);
  bind_contract(m);
  nb::class_<PyBatch> batch(
      m, "Batch", nb::dynamic_attr(), nb::is_weak_referenceable(),
      "One batch: a request, its facts and the exact worklists that they plan "
      "to. It never changes. `plan` makes it.");
  batch
      .def_prop_ro(
          "masks",
          [](const PyBatch& b) {
            std::vector<std::string> out;
            for (const Mask& mask : b.batch.request().masks) {
              out.push_back(to_string(mask));
            }
            return out;
          },
          "Their texts: one for all heads, or one for each group of heads.")
      .def_prop_ro(
          "batch", [](const PyBatch& b) { return b.batch.plan().batch; },
          "Batch rows.")
      .def_prop_ro(
          "heads", [](const PyBatch& b) { return b.batch.plan().heads; },
          "Plan heads: 1 unless masks or picks differ by head.")
      .def_prop_ro(
          "q_len", [](const PyBatch& b) { return b.batch.plan().q_len; },
          "Queries of a batch row.")
      .def_prop_ro(
          "kv_len", [](const PyBatch& b) { return b.batch.plan().kv_len; },
          "Keys of a batch row.")
      .def_prop_ro(
          "keys_per_query",
          [](const PyBatch& b) { return keys_per_query(b.batch); },
          "The keys that a query sees in the mean.")
      .def_prop_ro(
          "tile",
          [](const PyBatch& b) {
            const Tile t = b.batch.plan().tile;
            return Pair{t.q, t.kv};
          },
          "Queries and keys of a tile.")
      .def_prop_ro(
          "forward", [](nb::object self) { return worklist_of(self, false); },
          "The lists by query tile.")
      .def_prop_ro(
          "transposed", [](nb::object self) { return worklist_of(self, true); },
          "The lists by key tile, of a backward pass.")
      .def_prop_ro(
          "contract",
          [](const PyBatch& b) { return take(make_contract(b.batch)); },
          "What a compiled program of it depends on.")
      .def_prop_ro(
          "digest",
          [](const PyBatch& b) { return plan_digest(b.batch.plan()); },
          "Of sizes and lists: two plans are equal when it is.")
      .def_prop_ro("facts", &facts_of, "Read-only views of what was given.")
      .def_prop_ro(
          "warnings", [](const PyBatch& b) { return b.batch.plan().warnings; },
          "What is right and probably not meant, a line each.")
      .def_prop_ro(
          "legal_pairs",
          [](nb::handle self) {
            return view_of<int64_t>(batch_of(self).plan().legal_pairs, self);
          },
          "Pairs of a query and a key that it sees, of each list.")
      .def_prop_ro(
          "plan_ms", [](const PyBatch& b) { return b.batch.plan_ms(); },
          "Milliseconds that binding the facts and planning took.")
      .def("statistics", &statistics_of,
           "Counts of tiles and of pairs that are needed and paid for.")
      .def("summary", &summary_of,
           "Request, contract, digest and counts as plain values.")
      .def(
          "json", [](nb::handle self) { return json_of(summary_of(self)); },
          "`summary` as JSON.")
      .def("html", &html_of, "The page that `tessera show` makes.")
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
      .def(
          "__eq__",
          [](const PyBatch& l, const PyBatch& r) {
            return &l == &r ||
                   (l.batch.request() == r.batch.request() &&
                    own_facts(l.batch.facts()) == own_facts(r.batch.facts()));
          },
          nb::is_operator(), nb::sig(kEqual))
      .def("__hash__", [](const PyBatch& b) {
        return nb::hash(nb::str(plan_digest(b.batch.plan()).c_str()));
      });
  bind_files(batch);
  bind_layouts(batch);
  m.def(
      "_watch_batches",
      [](nb::object of) {
        Py_XDECREF(watching);
        watching = of.is_none() ? nullptr : of.release().ptr();
      },
      nb::arg("of").none());
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
        "Plans one batch: a mask, its lengths and what changes each batch.\n\n"
        "Facts are int32 arrays (NumPy, DLPack) or lists; they are kept, so a "
        "batch never goes stale. `kv_len` is `q_len` where it is not given. "
        "`max_*` fix the contract for a whole run: a batch above one is an "
        "error. `topk_idxs` are picks as [queries, groups, k], `block_mask` as "
        "[batch, heads, rows, columns] of bool: which blocks of n queries and "
        "n keys, for a mask that names `blocks(n)`. `same` has the ids of "
        "`same(a)`, `same(b)`, ...: {'a': ids, 'b': ids}.");
}

}  // namespace tessera::python
