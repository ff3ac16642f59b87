// bench/kernels/blocks_peer.cc: gives the script the mask and our lists as
// files, and reads its output.
#include "bench/kernels/blocks_peer.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/files.h"
#include "base/npy.h"
#include "bench/harness/peer_script.h"
#include "bench/harness/temp_folder.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

constexpr const char* kScript = "blocks_flex.py";
constexpr const char* kVariable = "TESSERA_TORCH_PYTHON";
constexpr double kLimit = 600;  // seconds

BlocksPeer not_measured(std::string why) {
  BlocksPeer peer;
  peer.why = std::move(why);
  return peer;
}

Result<void> write_ints(const std::string& path, std::vector<int64_t> shape,
                        const std::vector<int32_t>& values) {
  auto bytes = write_npy(shape, values);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

// Writes the list's columns, and the start of each row.
Result<void> write_list(const TempFolder& folder, const std::string& name,
                        const Worklist& list) {
  std::vector<int32_t> blocks;
  blocks.reserve(list.entries.size());
  for (const Entry e : list.entries) {
    blocks.push_back(static_cast<int32_t>(e.column()));
  }
  const std::vector<int32_t> start(list.row_start.begin(),
                                   list.row_start.end());
  auto ok = write_ints(folder.file(name + ".npy"),
                       {static_cast<int64_t>(blocks.size())}, blocks);
  if (!ok) return ok;
  return write_ints(folder.file(name + "_start.npy"),
                    {static_cast<int64_t>(start.size())}, start);
}

}  // namespace

BlocksPeer parse_blocks_line(std::string_view text) {
  BlocksPeer out = not_measured("it said nothing");
  for (const json& line : script_lines(text)) {
    out = {};
    read_field(line, "call", out.call);
    read_field(line, "why", out.why);
    read_field(line, "us", out.us);
    read_field(line, "runs", out.runs);
    if (line.contains("versions")) out.versions = line["versions"];
    if (!(out.us > 0) && out.why.empty()) out.why = "its line has no time";
  }
  return out;
}

json to_json(const BlocksPeer& p) {
  return {{"peer", "flex"}, {"call", p.call}, {"why", p.why},
          {"us", p.us},     {"runs", p.runs}, {"versions", p.versions}};
}

BlocksPeer run_blocks_peer(const std::string& folder, const BlockMask& mask,
                           const BlockLists& lists, double seconds) {
  const ScriptFile script = {folder, kScript, kVariable};
  if (std::string why = why_no_script(script); !why.empty()) {
    return not_measured(std::move(why));
  }
  TempFolder files;
  if (auto ok = files.make(); !ok) return not_measured(ok.error().message);
  const std::vector<int32_t> cells(mask.cells.begin(), mask.cells.end());
  for (const auto& ok :
       {write_ints(files.file("mask.npy"),
                   {mask.lists, mask.rows, mask.columns}, cells),
        write_list(files, "forward", lists.forward),
        write_list(files, "transposed", lists.transposed)}) {
    if (!ok) return not_measured(ok.error().message);
  }
  const ScriptRun ran = run_script(
      script,
      {"--mask", files.file("mask.npy"), "--forward", files.file("forward.npy"),
       "--forward-start", files.file("forward_start.npy"), "--transposed",
       files.file("transposed.npy"), "--transposed-start",
       files.file("transposed_start.npy"), "--threads", "1", "--seconds",
       fmt::format("{}", seconds)},
      {{"OMP_NUM_THREADS", "1"}}, kLimit);
  if (!ran.why.empty()) return not_measured(ran.why);
  return parse_blocks_line(ran.out);
}

}  // namespace tessera::bench
