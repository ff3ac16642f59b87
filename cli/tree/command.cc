// cli/tree/command.cc: `tessera tree`: packs sequences into one prefix tree.
#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/files.h"
#include "cli/export/layouts.h"
#include "cli/json_line.h"
#include "cli/request/file_checks.h"
#include "request/trees.h"

namespace tessera::cli {
namespace {

struct TreeFlags {
  std::string file;
  std::optional<std::string> out;
  bool json = false;
};

Result<void> write_tree(const PackedTree& tree, const std::string& path) {
  NamedArrays arrays;
  for (const auto& [name, values] :
       {std::pair("tokens", &tree.tokens), std::pair("enter", &tree.enter),
        std::pair("leave", &tree.leave), std::pair("depth", &tree.depth),
        std::pair("path", &tree.path)}) {
    arrays.add(name, Dtype::i32, {static_cast<int64_t>(values->size())},
               *values);
  }
  arrays.add("path_start", Dtype::i64, {tree.sequences() + 1}, tree.path_start);
  auto bytes = write_safetensors(arrays.file());
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

Result<int> run(const TreeFlags& f) {
  if (f.out) {
    if (auto e = check_files({f.file}, {*f.out}); !e) return e.error();
  }
  auto tree = request::pack_tree_file(f.file);
  if (!tree) return tree.error();
  if (f.out) {
    if (auto e = write_tree(*tree, *f.out); !e) return e.error();
  }
  const auto given = static_cast<int64_t>(tree->path.size());
  const int32_t deepest =
      *std::max_element(tree->depth.begin(), tree->depth.end());
  if (f.json) {
    fmt::print("{}\n",
               json_line(nlohmann::json({{"sequences", tree->sequences()},
                                         {"tokens_in", given},
                                         {"tokens", tree->size()},
                                         {"tokens_saved", tree->tokens_saved()},
                                         {"longest", deepest + 1}})));
    return kOk;
  }
  fmt::print(
      "sequences {}, the longest of {} tokens\n"
      "tokens    {} in a tree, {} in the sequences: {} saved ({:.1f}%)\n",
      tree->sequences(), deepest + 1, tree->size(), given, tree->tokens_saved(),
      100.0 * static_cast<double>(tree->tokens_saved()) /
          static_cast<double>(given));
  if (f.out) fmt::print("wrote {}\n", *f.out);
  return kOk;
}

constexpr JsonField kJsonFields[] = {
    {"sequences"},
    {"tokens_in, tokens, tokens_saved", "in the sequences; in the tree"},
    {"longest", "tokens of the longest sequence"},
};

}  // namespace

Command tree_command() {
  auto f = std::make_shared<TreeFlags>();
  Command command{"tree", "Pack sequences that share prefixes as one tree"};
  add_flags(command,
            {
                {"file", &f->file, "FILE",
                 "JSON lines, a sequence each, with `input_ids`", true},
                {"-o,--out", &f->out, "FILE",
                 "Write tokens, enter, leave, depth (positions for RoPE), and "
                 "each sequence's path: .safetensors, as --tree reads it"},
                {"--json", &f->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Examples:\n"
      "  tessera tree prompts.jsonl -o tree.safetensors\n"
      "  tessera plan --mask tree --q-len 4096 --tree tree.safetensors";
  command.json_fields = kJsonFields;
  command.work = [f] { return run(*f); };
  return command;
}

}  // namespace tessera::cli
