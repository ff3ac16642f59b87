// tree.cc: sequences packed as one prefix tree.
#include "tree.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "failure.h"
#include "states.h"
#include "tessera/facts.h"

namespace tessera::python {
namespace {

PackedTree pack(nb::handle sequences) {
  const std::vector<int64_t> any{-1};
  std::vector<std::vector<int32_t>> read;
  for (nb::handle sequence : nb::iter(sequences)) {
    read.push_back(read_ints("a sequence", sequence, any).values);
  }
  const std::vector<Ints> views(read.begin(), read.end());
  const nb::gil_scoped_release released;
  return take(pack_tree(views));
}

nb::list paths_of(const PackedTree& tree) {
  nb::list out;
  for (int64_t s = 0; s < tree.sequences(); ++s) {
    const auto at = static_cast<size_t>(s);
    std::vector<int32_t> path(tree.path.begin() + tree.path_start[at],
                              tree.path.begin() + tree.path_start[at + 1]);
    const size_t n = path.size();
    out.append(own_array(std::move(path), {n}));
  }
  return out;
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
  nb::list sequences;
  for (int64_t s = 0; s < tree.sequences(); ++s) {
    const auto at = static_cast<size_t>(s);
    std::vector<int32_t> tokens;
    for (int64_t i = tree.path_start[at]; i < tree.path_start[at + 1]; ++i) {
      tokens.push_back(
          tree.tokens[static_cast<size_t>(tree.path[static_cast<size_t>(i)])]);
    }
    const size_t n = tokens.size();
    sequences.append(own_array(std::move(tokens), {n}));
  }
  nb::dict out;
  out["sequences"] = sequences;
  return out;
}

PackedTree of_state(const nb::dict& state) {
  return pack(read_state<nb::list>(state, "sequences"));
}

}  // namespace

void bind_tree(nb::module_& m) {
  nb::class_<PackedTree> packed(
      m, "PackedTree",
      "Sequences as one row of tokens, depth-first, in "
      "which each common prefix stands once.");
  packed
      .def_prop_ro("tokens", &array_of<&PackedTree::tokens>, "The row: int32.")
      .def_prop_ro("enter", &array_of<&PackedTree::enter>,
                   "For `plan`: tree_enter.")
      .def_prop_ro("leave", &array_of<&PackedTree::leave>,
                   "For `plan`: tree_leave.")
      .def_prop_ro("depth", &array_of<&PackedTree::depth>,
                   "The position of each token in its sequences.")
      .def_prop_ro("paths", &paths_of,
                   "Of each sequence, its tokens' places in the row.")
      .def_prop_ro("tokens_saved", &PackedTree::tokens_saved,
                   "How many tokens fewer the row has than the sequences.")
      .def("__len__", &PackedTree::size)
      .def("__repr__", [](const PackedTree& tree) {
        return "PackedTree(sequences=" + std::to_string(tree.sequences()) +
               ", tokens=" + std::to_string(tree.size()) + ")";
      });
  bind_json(packed, &values_of);
  bind_pickle(packed, &state_of, &of_state);
  m.def("pack_tree", &pack, nb::arg("sequences"),
        "Packs sequences of tokens that share prefixes for the mask `tree`.\n\n"
        "`tokens_saved` is how many tokens fewer the row has than the "
        "sequences.");
}

}  // namespace tessera::python
