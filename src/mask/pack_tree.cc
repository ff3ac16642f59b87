// mask/pack_tree.cc: builds a trie and lists its tokens depth-first.
#include <unordered_map>

#include "base/fail.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera {
namespace {

constexpr int32_t kNone = -1;

// Nodes are numbered in the order of creation.
struct Trie {
  struct Node {
    int32_t token;
    int32_t depth;
    int32_t first_child = kNone;
    int32_t last_child = kNone;
    int32_t next = kNone;  // the parent's next child
  };
  std::vector<Node> nodes;
  Node root{0, -1};
  std::unordered_map<uint64_t, int32_t> children;  // node by (parent, token)

  Node& at(int32_t node) {
    return node == kNone ? root : nodes[static_cast<size_t>(node)];
  }

  int32_t child(int32_t parent, int32_t token) {
    const auto key = uint64_t{static_cast<uint32_t>(parent)} << 32 |
                     static_cast<uint32_t>(token);
    const auto [it, made] =
        children.try_emplace(key, static_cast<int32_t>(nodes.size()));
    if (!made) return it->second;
    const int32_t node = it->second;
    nodes.push_back({token, at(parent).depth + 1});
    Node& above = at(parent);
    if (above.first_child == kNone) {
      above.first_child = node;
    } else {
      at(above.last_child).next = node;
    }
    above.last_child = node;
    return node;
  }
};

// Fills tokens, enter, leave and depth; returns the number of each node.
std::vector<int32_t> number_nodes(Trie& trie, PackedTree& out) {
  std::vector<int32_t> number(trie.nodes.size());
  std::vector<int32_t> open;  // nodes on the current path
  out.leave.resize(trie.nodes.size());
  int32_t node = trie.root.first_child;
  while (node != kNone || !open.empty()) {
    if (node == kNone) {
      const int32_t done = open.back();
      open.pop_back();
      out.leave[static_cast<size_t>(number[static_cast<size_t>(done)])] =
          static_cast<int32_t>(out.size());
      node = trie.at(done).next;
      continue;
    }
    const Trie::Node& n = trie.at(node);
    const auto at = static_cast<int32_t>(out.size());
    number[static_cast<size_t>(node)] = at;
    out.tokens.push_back(n.token);
    out.enter.push_back(at);
    out.depth.push_back(n.depth);
    open.push_back(node);
    node = n.first_child;
  }
  return number;
}

}  // namespace

Result<PackedTree> pack_tree(std::span<const Ints> sequences) {
  if (sequences.empty()) {
    return invalid("tree", "sequences must be one or more, found 0");
  }
  PackedTree out;
  out.path_start.push_back(0);
  Trie trie;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (sequences[s].empty()) {
      return invalid("tree",
                     "a sequence must hold one token or more, found 0 for "
                     "sequence {}",
                     s);
    }
    int32_t node = kNone;
    for (const int32_t token : sequences[s]) {
      node = trie.child(node, token);
      out.path.push_back(node);
    }
    if (static_cast<int64_t>(trie.nodes.size()) > kMaxTokens) {
      return over_limit("tree", "a tree holds at most {} tokens, found more",
                        kMaxTokens);
    }
    out.path_start.push_back(static_cast<int64_t>(out.path.size()));
  }
  const std::vector<int32_t> number = number_nodes(trie, out);
  for (int32_t& node : out.path) node = number[static_cast<size_t>(node)];
  return out;
}

}  // namespace tessera
