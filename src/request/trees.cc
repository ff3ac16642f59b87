// request/trees.cc: reads or draws prefix trees.
#include "request/trees.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "mask/bind.h"
#include "request/documents.h"
#include "request/numbers.h"
#include "tessera/documents.h"

namespace tessera::request {
namespace {

constexpr std::string_view kDrawnTree = "random";

struct Numbers {
  std::vector<int32_t> enter, leave;
  int64_t rows = 1;  // how many these are; 1 row serves every batch row
};

// Draws a row in which a branch begins after `run` tokens on average, at a
// random token of the path to the previous token.
void draw_row(int64_t run, uint64_t seed, int64_t length, Numbers& out) {
  // Uses remainders, since distributions differ between standard libraries.
  std::mt19937_64 random(seed);
  const auto first = static_cast<int64_t>(out.enter.size());
  out.leave.resize(static_cast<size_t>(first + length),
                   static_cast<int32_t>(length));
  std::vector<int64_t> open;  // the path to the previous token
  for (int64_t t = 0; t < length; ++t) {
    out.enter.push_back(static_cast<int32_t>(t));
    if (t > 0 && random() % static_cast<uint64_t>(run) == 0) {
      const auto keep = static_cast<int64_t>(random() % open.size()) + 1;
      for (; static_cast<int64_t>(open.size()) > keep; open.pop_back()) {
        out.leave[static_cast<size_t>(first + open.back())] =
            static_cast<int32_t>(t);
      }
    }
    open.push_back(t);
  }
}

Result<Numbers> draw(std::string_view arguments, const Request& r) {
  int64_t run = 64;
  int64_t seed = 0;
  std::set<std::string_view> seen;
  for (std::string_view part : split(arguments, ',')) {
    if (part.empty() && arguments.empty()) break;
    const std::string_view name = part.substr(0, part.find('='));
    const bool is_run = take_prefix(part, "run=");
    if (!is_run && !take_prefix(part, "seed=")) {
      return invalid("tree", "--tree random takes run=N and seed=N, found {}",
                     in_quotes(part));
    }
    auto n = parse_int(part, is_run ? "--tree run" : "--tree seed",
                       is_run ? 1 : 0, int64_t{1} << 62);
    if (!n) return n.error();
    auto e = take_once(seen, name, "tree", "--tree random");
    if (!e) return e.error();
    (is_run ? run : seed) = *n;
  }
  Numbers out;
  out.rows = r.batch;
  for (int64_t b = 0; b < r.batch; ++b) {
    draw_row(run, static_cast<uint64_t>(seed + b), r.kv_len, out);
  }
  return out;
}

Result<Numbers> read_tensors(const std::string& path, int64_t batch) {
  auto bytes = read_file(path, kMaxFactBytes);
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return in_file(file.error(), path);
  Numbers out;
  std::vector<int64_t> shape;
  for (const auto& [name, to] :
       {std::pair("enter", &out.enter), std::pair("leave", &out.leave)}) {
    auto tensor = file->find(name);
    if (!tensor) return in_file(tensor.error(), path);
    const std::vector<int64_t>& s = tensor->shape;
    const bool fits = s.size() == 1 || (s.size() == 2 && s[0] == batch);
    if (!fits || (to == &out.leave && s != shape)) {
      return invalid("tree",
                     "enter and leave must have one shape, [n] or [{}, n], "
                     "found [{}] for {} of {}",
                     batch, fmt::join(s, ", "), name, in_quotes(path));
    }
    shape = s;
    auto values = int32_values(*tensor, name);
    if (!values) return in_file(values.error(), path);
    *to = std::move(*values);
  }
  if (shape.size() == 2) out.rows = batch;
  return out;
}

Result<Numbers> read_sequences(const std::string& path) {
  auto tree = pack_tree_file(path);
  if (!tree) return tree.error();
  return Numbers{std::move(tree->enter), std::move(tree->leave)};
}

Result<void> cut_off(const Request& r, int64_t n, OwnedFacts& facts) {
  auto& counts = facts.valid_token_counts;
  if (!counts) {
    counts.emplace(static_cast<size_t>(r.batch), static_cast<int32_t>(n));
  }
  const int32_t most = *std::max_element(counts->begin(), counts->end());
  if (most <= n) return {};
  return invalid("tree",
                 "--valid must be at most the {} tokens of the tree, found {}",
                 n, most);
}

// Fills a tree for each batch row, after the check that it fits. Tokens after
// the tree's n are padding, which valid counts cut off; a tree that no mask
// names does not change the counts.
Result<void> fill_rows(const Request& r, Numbers& numbers, OwnedFacts& facts) {
  const int64_t n = static_cast<int64_t>(numbers.enter.size()) / numbers.rows;
  if (n > r.kv_len) {
    return invalid("tree", "a tree must fit the row of {} tokens, found {}",
                   r.kv_len, n);
  }
  if (n < r.kv_len && mask::names_of(r).tree) {
    if (auto e = cut_off(r, n, facts); !e) return e;
  }
  if (n < r.kv_len || numbers.rows < r.batch) {
    Numbers all;
    for (int64_t b = 0; b < r.batch; ++b) {
      const int64_t begin = numbers.rows == 1 ? 0 : b * n;
      for (const auto& [from, to] : {std::pair(&numbers.enter, &all.enter),
                                     std::pair(&numbers.leave, &all.leave)}) {
        to->insert(to->end(), from->begin() + begin, from->begin() + begin + n);
        to->resize(static_cast<size_t>((b + 1) * r.kv_len));
      }
    }
    numbers = std::move(all);
  }
  facts.tree_enter = std::move(numbers.enter);
  facts.tree_leave = std::move(numbers.leave);
  return {};
}

}  // namespace

Result<PackedTree> pack_tree_file(const std::string& path) {
  auto source = open_json_lines({path});
  if (!source) return source.error();
  Documents documents;
  while (true) {
    auto more = (*source)->read(documents);
    if (!more) return more.error();
    if (!*more) break;
  }
  std::vector<Ints> sequences;
  for (int64_t d = 0; d < documents.size(); ++d) {
    const auto at = static_cast<size_t>(d);
    const int64_t begin = documents.token_start[at];
    const int64_t end = documents.token_start[at + 1];
    sequences.push_back(Ints(documents.input_ids)
                            .subspan(static_cast<size_t>(begin),
                                     static_cast<size_t>(end - begin)));
  }
  return pack_tree(sequences);
}

Result<void> read_tree_fact(const std::string& source, const Request& request,
                            OwnedFacts& facts) {
  std::string_view rest = source;
  const bool drawn = source == kDrawnTree || take_prefix(rest, "random:");
  auto numbers = drawn ? draw(source == kDrawnTree ? "" : rest, request)
                 : source.ends_with(".safetensors")
                     ? read_tensors(source, request.batch)
                     : read_sequences(source);
  if (!numbers) return numbers.error();
  return fill_rows(request, *numbers, facts);
}

}  // namespace tessera::request
