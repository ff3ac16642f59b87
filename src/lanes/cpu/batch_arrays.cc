// lanes/cpu/batch_arrays.cc: parses the static text, plans, checks the lists
// and keeps prepared work.
#include "lanes/cpu/batch_arrays.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "lanes/cpu/work.h"
#include "mask/canonical.h"
#include "tessera/batch.h"

namespace tessera::cpu {
namespace {

// Takes a field "key value" up to the next ';'. Masks contain no ';'.
std::string_view next_field(std::string_view& text) {
  const size_t end = std::min(text.find(';'), text.size());
  const std::string_view field = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return field;
}

std::string_view next_word(std::string_view& field) {
  const size_t end = std::min(field.find(' '), field.size());
  const std::string_view word = field.substr(0, end);
  field.remove_prefix(std::min(end + 1, field.size()));
  return word;
}

int64_t next_number(std::string_view& field) {
  return std::strtoll(std::string(next_word(field)).c_str(), nullptr, 10);
}

// Replaces the classes of window bounds by the exact bounds, in order.
void set_bounds(Expr& expr, std::span<const int32_t>& bounds) {
  if (expr.atom == Atom::window && bounds.size() >= 2) {
    expr.a = bounds[0];
    expr.b = bounds[1];
    bounds = bounds.subspan(2);
  }
  for (Expr& child : expr.children) set_bounds(child, bounds);
}

std::optional<size_t> same_number(std::string_view name) {
  for (int64_t i = 0; i < kSameNames; ++i) {
    if (name == mask::same_fact(i)) return static_cast<size_t>(i);
  }
  return {};
}

Result<Facts> read_facts(const StaticTerms& terms, const BatchArrays& given) {
  if (terms.facts.size() != given.facts.size()) {
    return invalid("cpu", "a batch of {} facts needs as many arrays, found {}",
                   terms.facts.size(), given.facts.size());
  }
  Facts out;
  for (size_t i = 0; i < terms.facts.size(); ++i) {
    const std::string& name = terms.facts[i];
    const FactArray& array = given.facts[i];
    if (name == "doc_ids") {
      out.doc_ids = array.values;
    } else if (name == "q_doc_ids") {
      out.q_doc_ids = array.values;
    } else if (name == "valid_token_counts") {
      out.valid_token_counts = array.values;
    } else if (name == "prefix") {
      out.prefix_lengths = array.values;
    } else if (name == "q_offset") {
      out.q_offsets = array.values;
    } else if (name == "tree_enter") {
      out.tree_enter = array.values;
    } else if (name == "tree_leave") {
      out.tree_leave = array.values;
    } else if (name == "picks" && array.shape.size() == 4) {
      out.picks = Picks{array.values, array.shape[1], array.shape[3],
                        terms.meaning, terms.query_tile};
    } else if (const auto which = same_number(name)) {
      out.same_ids[*which] = array.values;
    } else {
      return invalid("cpu", "a fact's name must be known, found '{}'", name);
    }
  }
  return out;
}

// With 0 bytes a pointer may be null, which memcmp does not allow.
bool same_bytes(const void* a, const void* b, size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

bool same(std::span<const uint32_t> ours, std::span<const int32_t> theirs) {
  return ours.size() == theirs.size() &&
         same_bytes(ours.data(), theirs.data(), ours.size_bytes());
}

// The given words are only compared, never used as indices: they may be wrong.
bool same(const Worklist& ours, const ListArrays& theirs) {
  return same(ours.row_start, theirs.row_start) &&
         ours.entries.size() <= theirs.entries.size() &&
         same_bytes(ours.entries.data(), theirs.entries.data(),
                    ours.entries.size() * sizeof(Entry));
}

// Whether the lists are left out, as they are for picks that the program itself
// makes. A list that is given has at least one row start.
bool has_none(const BatchArrays& given, const Facts& facts) {
  if (!facts.picks) return false;
  for (const ListArrays& list : {given.forward, given.transposed}) {
    if (!list.row_start.empty() || !list.entries.empty()) return false;
  }
  return true;
}

// The name of the list that differs from the plan's, or null.
const char* other_list(const Batch& batch, const BatchArrays& given) {
  if (has_none(given, batch.facts())) return nullptr;
  const Plan& plan = batch.plan();
  if (!same(plan.forward, given.forward)) return "forward";
  return same(plan.transposed, given.transposed) ? nullptr : "transposed";
}

Result<void> check_lists(const Batch& batch, const BatchArrays& given) {
  const char* const which = other_list(batch, given);
  if (which == nullptr) return {};
  return invalid("cpu",
                 "worklists must be those that the batch's facts plan to, "
                 "found another {} one",
                 which);
}

// The arrays of facts in the order of fact_names.
std::vector<Ints> fact_values(const Facts& f) {
  std::vector<Ints> out;
  for (const auto* values :
       {&f.doc_ids, &f.q_doc_ids, &f.valid_token_counts, &f.prefix_lengths,
        &f.q_offsets, &f.tree_enter, &f.tree_leave}) {
    if (*values) out.push_back(**values);
  }
  for (const auto& ids : f.same_ids) {
    if (ids) out.push_back(*ids);
  }
  if (f.picks) out.push_back(f.picks->blocks);
  return out;
}

std::vector<int64_t> bounds_of(const Request& request) {
  std::vector<int64_t> out;
  for (const Mask& mask : request.masks) {
    mask::append_window_bounds(mask.expr, out);
  }
  return out;
}

// Prepared work, with all that it was made from.
struct Kept {
  std::string text;
  std::vector<int32_t> window_bounds;
  OwnedBatch batch;
  std::vector<Ints> facts;  // of the batch
  std::vector<std::vector<int64_t>> shapes;
  std::shared_ptr<const CpuWork> work;

  bool is_of(const BatchArrays& given) const {
    const Request& r = batch.request();
    if (r.q_len != given.q_len || r.kv_len != given.kv_len ||
        r.batch != given.batch || text != given.text ||
        facts.size() != given.facts.size() ||
        !std::ranges::equal(window_bounds, given.window_bounds) ||
        other_list(batch, given) != nullptr) {
      return false;
    }
    for (size_t i = facts.size(); i-- > 0;) {  // picks, the last, differ most
      const std::span<const int32_t> theirs = given.facts[i].values;
      if (shapes[i] != given.facts[i].shape ||
          facts[i].size() != theirs.size() ||
          !same_bytes(facts[i].data(), theirs.data(), facts[i].size_bytes())) {
        return false;
      }
    }
    return true;
  }
};

// The most batches that a process keeps: those of a pipeline, or those of a
// step's clustered layers, which the backward pass visits in reverse order.
constexpr size_t kMaxKept = 64;
// The most bytes kept. Work of more than a quarter of this is not kept, so it
// is prepared in every call.
constexpr int64_t kMaxKeptBytes = int64_t{256} << 20;

int64_t bytes_of(const Kept& one) {
  size_t bytes = 0;
  for (const Ints& values : one.facts) bytes += values.size_bytes();
  for (const Worklist* list :
       {&one.batch.plan().forward, &one.batch.plan().transposed}) {
    bytes += list->entries.size() * sizeof(Entry);
  }
  const CpuWork::State& work = one.work->state();
  bytes += work.spans.size() * sizeof(KeySpan);
  bytes += work.span_start.size() * sizeof(int64_t);
  return static_cast<int64_t>(bytes);
}

// The most recent first.
struct KeptBatches {
  std::mutex mutex;
  std::deque<std::shared_ptr<const Kept>> all;
  int64_t bytes = 0;
};

KeptBatches& kept() {
  static auto* const out = new KeptBatches;
  return *out;
}

// Compares outside the lock, since a large batch takes long to compare.
std::shared_ptr<const CpuWork> find_kept(const BatchArrays& given) {
  KeptBatches& k = kept();
  for (size_t i = 0; i < kMaxKept; ++i) {
    std::shared_ptr<const Kept> one;
    {
      const std::lock_guard lock(k.mutex);
      if (i >= k.all.size()) break;
      one = k.all[i];
    }
    if (!one->is_of(given)) continue;
    if (i == 0) return one->work;
    const std::lock_guard lock(k.mutex);
    const auto at = std::ranges::find(k.all, one);
    if (at != k.all.end()) std::rotate(k.all.begin(), at, at + 1);
    return one->work;
  }
  return nullptr;
}

void keep(std::shared_ptr<const Kept> one) {
  const int64_t bytes = bytes_of(*one);
  if (bytes > kMaxKeptBytes / 4) return;
  KeptBatches& k = kept();
  std::deque<std::shared_ptr<const Kept>> gone;  // freed outside the lock
  const std::lock_guard lock(k.mutex);
  k.bytes += bytes;
  k.all.push_front(std::move(one));
  while (k.all.size() > kMaxKept || k.bytes > kMaxKeptBytes) {
    k.bytes -= bytes_of(*k.all.back());
    gone.push_back(std::move(k.all.back()));
    k.all.pop_back();
  }
}

}  // namespace

std::vector<std::string> fact_names(const Facts& f) {
  std::vector<std::string> out;
  if (f.doc_ids) out.emplace_back("doc_ids");
  if (f.q_doc_ids) out.emplace_back("q_doc_ids");
  if (f.valid_token_counts) out.emplace_back("valid_token_counts");
  if (f.prefix_lengths) out.emplace_back("prefix");
  if (f.q_offsets) out.emplace_back("q_offset");
  if (f.tree_enter) out.emplace_back("tree_enter");
  if (f.tree_leave) out.emplace_back("tree_leave");
  for (size_t i = 0; i < f.same_ids.size(); ++i) {
    if (f.same_ids[i]) out.push_back(mask::same_fact(static_cast<int64_t>(i)));
  }
  if (f.picks) out.emplace_back("picks");
  return out;
}

Result<StaticTerms> read_static_text(std::string_view text,
                                     std::span<const int32_t> bounds) {
  StaticTerms out;
  while (!text.empty()) {
    std::string_view field = next_field(text);
    const std::string_view key = next_word(field);
    if (key == "tile") {
      out.request.tile.q = next_number(field);
      out.request.tile.kv = next_number(field);
    } else if (key == "facts") {
      while (!field.empty()) out.facts.emplace_back(next_word(field));
    } else if (key == "meaning") {
      auto meaning = parse_route_meaning(next_word(field));
      if (!meaning) return meaning.error();
      out.meaning = *meaning;
      out.query_tile = next_number(field);
    } else if (key == "mask") {
      auto expr = parse_expr(field);
      if (!expr) return expr.error();
      set_bounds(*expr, bounds);
      auto mask = make_mask(*expr);
      if (!mask) return mask.error();
      out.request.masks.push_back(std::move(*mask));
    } else if (key == "names" && !out.request.masks.empty()) {
      // The names of the mask as written: simplifying may have dropped some.
      Names& names = out.request.masks.back().names;
      names.prefix = next_number(field) != 0;
      names.documents = next_number(field) != 0;
      names.segments = next_number(field) != 0;
      names.picks = next_number(field) != 0;
      names.picks_block = next_number(field);
      names.tree = next_number(field) != 0;
      names.same = static_cast<uint32_t>(next_number(field));
    } else {
      return invalid("cpu", "a batch's text has known fields, found '{}'", key);
    }
  }
  if (!bounds.empty()) {
    return invalid("cpu",
                   "window bounds must be two for each window, found {} more",
                   bounds.size());
  }
  return out;
}

std::string static_text(const Request& r, const Facts& f) {
  std::string out = fmt::format("tile {} {};facts", r.tile.q, r.tile.kv);
  for (const std::string& name : fact_names(f)) out += " " + name;
  if (f.picks) {
    out += fmt::format(";meaning {} {}", to_string(f.picks->meaning),
                       f.picks->query_tile);
  }
  for (const Mask& mask : r.masks) {
    const Names& n = mask.names;
    out += fmt::format(";mask {};names {:d} {:d} {:d} {:d} {} {:d} {}",
                       mask::folded_text(mask.expr), n.prefix, n.documents,
                       n.segments, n.picks, n.picks_block, n.tree, n.same);
  }
  return out;
}

Result<std::vector<NamedInts>> batch_arrays(const Batch& batch,
                                            std::optional<int64_t> steps) {
  const Plan& plan = batch.plan();
  std::vector<NamedInts> out;
  const std::vector<int64_t> bounds = bounds_of(batch.request());
  out.push_back({"bounds", {bounds.begin(), bounds.end()}});
  for (const bool transposed : {false, true}) {
    const Worklist& list = transposed ? plan.transposed : plan.forward;
    const auto taken = static_cast<int64_t>(list.entries.size());
    const std::string name = transposed ? "transposed." : "forward.";
    if (!steps) {
      out.push_back({name + "row_start", {}});
      out.push_back({name + "entries", {}});
      continue;
    }
    if (taken > *steps) {
      return over_limit("cpu", "steps must fit the program's {}, found {}",
                        *steps, taken);
    }
    out.push_back(
        {name + "row_start", {list.row_start.begin(), list.row_start.end()}});
    std::vector<int32_t> entries(static_cast<size_t>(*steps));
    std::transform(list.entries.begin(), list.entries.end(), entries.begin(),
                   [](Entry e) { return static_cast<int32_t>(e.word); });
    out.push_back({name + "entries", std::move(entries)});
  }
  const std::vector<std::string> names = fact_names(batch.facts());
  const std::vector<Ints> values = fact_values(batch.facts());
  for (size_t i = 0; i < names.size(); ++i) {
    out.push_back({names[i], {values[i].begin(), values[i].end()}});
  }
  return out;
}

std::vector<NamedSize> batch_array_sizes(const Request& r, const Facts& present,
                                         std::optional<int64_t> steps) {
  const int64_t lists = r.batch * static_cast<int64_t>(r.masks.size());
  const auto starts = [&](int64_t tiles) {
    return steps ? lists * tiles + 1 : 0;
  };
  std::vector<NamedSize> out = {
      {"bounds", static_cast<int64_t>(bounds_of(r).size())},
      {"forward.row_start", starts(ceil_div(r.q_len, r.tile.q))},
      {"forward.entries", steps.value_or(0)},
      {"transposed.row_start", starts(ceil_div(r.kv_len, r.tile.kv))},
      {"transposed.entries", steps.value_or(0)}};
  const std::vector<std::string> names = fact_names(present);
  const std::vector<Ints> values = fact_values(present);
  for (size_t i = 0; i < names.size(); ++i) {
    out.push_back({names[i], static_cast<int64_t>(values[i].size())});
  }
  return out;
}

Result<std::shared_ptr<const CpuWork>> ready_work(const BatchArrays& given) {
  if (auto work = find_kept(given)) return work;
  auto terms = read_static_text(given.text, given.window_bounds);
  if (!terms) return terms.error();
  terms->request.batch = given.batch;
  terms->request.q_len = given.q_len;
  terms->request.kv_len = given.kv_len;
  auto facts = read_facts(*terms, given);
  if (!facts) return facts.error();
  auto batch = OwnedBatch::copy(std::move(terms->request), *facts);
  if (!batch) return batch.error();
  if (auto e = check_lists(*batch, given); !e) return e.error();
  auto made = cpu_prepare(*batch);
  if (!made) return made.error();
  auto work = std::make_shared<const CpuWork>(std::move(*made));
  std::vector<Ints> values = fact_values(batch->facts());
  std::vector<std::vector<int64_t>> shapes;
  for (const FactArray& array : given.facts) shapes.push_back(array.shape);
  keep(std::make_shared<const Kept>(
      Kept{std::string(given.text),
           {given.window_bounds.begin(), given.window_bounds.end()},
           std::move(*batch),
           std::move(values),
           std::move(shapes),
           work}));
  return work;
}

}  // namespace tessera::cpu
