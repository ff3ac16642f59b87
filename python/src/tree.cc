// tree.cc: sequences packed as one prefix tree.
#include "tree.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "states.h"
#include "tessera/facts.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

PackedTree pack(nb::handle sequences) {
  const std::vector<int64_t> any{-1};
  std::vector<std::vector<int32_t>> read;
  for (nb::handle sequence : nb::iter(sequences)) {
    read.push_back(read_ints("a sequence", sequence, any).values);
  }
  return take(unlocked([&] {
    const std::vector<Ints> views(read.begin(), read.end());
    auto made = pack_tree(views);
    // Freed here, because the heap joins the many blocks that packing freed
    // when it next frees a large one.
    read = {};
    return made;
  }));
}

std::span<const int32_t> path_of(const PackedTree& tree, int64_t sequence) {
  const auto at = static_cast<size_t>(sequence);
  return {tree.path.begin() + tree.path_start[at],
          tree.path.begin() + tree.path_start[at + 1]};
}

// A list of arrays with of(place in the row) for each token of a sequence.
template <class Of>
nb::list list_of(const PackedTree& tree, Of of) {
  nb::list out;
  for (int64_t s = 0; s < tree.sequences(); ++s) {
    const std::span<const int32_t> path = path_of(tree, s);
    auto numbers = unlocked_if_long(path.size(), [&] {
      std::vector<int32_t> made(path.size());
      std::ranges::transform(path, made.begin(), of);
      return made;
    });
    out.append(own_array(std::move(numbers), {path.size()}));
  }
  return out;
}

nb::list paths_of(const PackedTree& tree) {
  return list_of(tree, [](int32_t at) { return at; });
}

template <std::vector<int32_t> PackedTree::*numbers>
NumpyArray<const int32_t> array_of(nb::handle self) {
  const auto& tree = nb::cast<const PackedTree&>(self);
  return view_of(std::span<const int32_t>(tree.*numbers), self);
}

nb::dict values_of(nb::handle self) {
  nb::dict out;
  for (const char* const name :
       {"tokens", "enter", "leave", "depth", "paths"}) {
    out[name] = self.attr(name);
  }
  return out;
}

// The state is the sequences: packing them again gives the same tree.
nb::dict state_of(nb::handle self) {
  const auto& tree = nb::cast<const PackedTree&>(self);
  nb::dict out;
  out["sequences"] = list_of(
      tree, [&](int32_t at) { return tree.tokens[static_cast<size_t>(at)]; });
  return out;
}

PackedTree of_state(const nb::dict& state) {
  return pack(read_state<nb::list>(state, "sequences"));
}

}  // namespace

void bind_tree(nb::module_& m) {
  nb::class_<PackedTree> packed(
      m, "PackedTree",
      "Sequences packed as one row of tokens in depth-first order, in\n"
      "which each common prefix stands once. `pack_tree` makes it.");
  packed
      .def_prop_ro("tokens", &array_of<&PackedTree::tokens>,
                   "The tokens of the row: int32 [tokens].")
      .def_prop_ro("enter", &array_of<&PackedTree::enter>,
                   "The argument `tree_enter` of `plan`: int32 [tokens].")
      .def_prop_ro("leave", &array_of<&PackedTree::leave>,
                   "The argument `tree_leave` of `plan`: int32 [tokens].")
      .def_prop_ro(
          "depth", &array_of<&PackedTree::depth>,
          "The position of each token in its sequences: int32 [tokens].")
      .def_prop_ro("paths", &paths_of,
                   "For each sequence an int32 array of the places of its "
                   "tokens in the row.")
      .def_prop_ro(
          "tokens_saved", &PackedTree::tokens_saved,
          "The number of tokens in the sequences minus the number in the row.")
      .def("__len__", &PackedTree::size)
      .def("__repr__", [](const PackedTree& tree) {
        return "PackedTree(sequences=" + std::to_string(tree.sequences()) +
               ", tokens=" + std::to_string(tree.size()) + ")";
      });
  bind_json(packed, &values_of);
  bind_pickle(packed, &state_of, &of_state);
  m.def("pack_tree", &pack, nb::arg("sequences"),
        "Packs sequences of tokens into one row in which each common\n"
        "prefix stands once, for the mask `tree`. Returns a PackedTree.\n\n"
        "`sequences` is an iterable of int32 arrays or lists of one\n"
        "dimension.");
}

}  // namespace tessera::python
