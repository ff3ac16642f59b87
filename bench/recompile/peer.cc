// bench/recompile/peer.cc: gives a script the batches and reads its output.
#include "bench/recompile/peer.h"

#include <fmt/format.h>

#include <vector>

#include "base/dtype_word.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/text.h"
#include "bench/harness/cases.h"
#include "bench/harness/peer_script.h"
#include "bench/harness/temp_folder.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

constexpr const char* kScript = "recompile_flex.py";
constexpr const char* kVariable = "TESSERA_TORCH_PYTHON";

RecompilePeer not_measured(const std::string& why) {
  RecompilePeer peer;
  peer.why = why;
  return peer;
}

// Writes ids, [batch, row, token], and length, window and counts of each batch,
// [batch, 2 + rows].
Result<void> write_batches(const RecompilePeerRequest& r,
                           const std::string& ids_path,
                           const std::string& sizes_path) {
  std::vector<int32_t> ids, sizes;
  const auto most = static_cast<size_t>(r.sizes.tokens);
  for (const RaggedBatch& b : r.batches) {
    const auto length = static_cast<size_t>(b.length());
    for (size_t row = 0; row < b.counts.size(); ++row) {
      const auto from = b.ids.begin() + static_cast<ptrdiff_t>(row * length);
      ids.insert(ids.end(), from, from + static_cast<ptrdiff_t>(length));
      ids.insert(ids.end(), most - length, -1);
    }
    sizes.push_back(static_cast<int32_t>(length));
    sizes.push_back(static_cast<int32_t>(b.window));
    sizes.insert(sizes.end(), b.counts.begin(), b.counts.end());
  }
  const auto count = static_cast<int64_t>(r.batches.size());
  const int64_t ids_shape[] = {count, r.sizes.rows, r.sizes.tokens};
  const int64_t sizes_shape[] = {count, 2 + r.sizes.rows};
  auto ids_bytes = write_npy(ids_shape, ids);
  if (!ids_bytes) return ids_bytes.error();
  auto sizes_bytes = write_npy(sizes_shape, sizes);
  if (!sizes_bytes) return sizes_bytes.error();
  if (auto ok = write_file(ids_path, *ids_bytes); !ok) return ok;
  return write_file(sizes_path, *sizes_bytes);
}

}  // namespace

std::vector<RecompilePeer> parse_recompile_lines(std::string_view text) {
  std::vector<RecompilePeer> out;
  for (const json& line : script_lines(text)) {
    RecompilePeer p;
    read_field(line, "mode", p.mode);
    if (p.mode.empty()) continue;
    read_field(line, "why", p.why);
    read_field(line, "batches", p.batches);
    read_field(line, "compiles", p.compiles);
    read_field(line, "lengths", p.lengths);
    read_field(line, "eager", p.eager);
    read_field(line, "pairs", p.pairs);
    read_field(line, "mask_ms", p.mask_ms);
    read_field(line, "compile_ms", p.compile_ms);
    read_field(line, "run_ms", p.run_ms);
    read_field(line, "error", p.error);
    out.push_back(std::move(p));
  }
  return out;
}

json to_json(const RecompilePeer& p) {
  return {{"peer", "flex"},         {"mode", p.mode},
          {"why", p.why},           {"batches", p.batches},
          {"compiles", p.compiles}, {"lengths", p.lengths},
          {"eager", p.eager},       {"pairs", p.pairs},
          {"mask_ms", p.mask_ms},   {"compile_ms", p.compile_ms},
          {"run_ms", p.run_ms},     {"error", p.error}};
}

std::vector<RecompilePeer> run_recompile_peer(const RecompilePeerRequest& r) {
  const ScriptFile script = {r.folder, kScript, kVariable};
  if (const std::string why = why_no_script(script); !why.empty()) {
    return {not_measured(why)};
  }
  TempFolder folder;
  if (auto ok = folder.make(); !ok) return {not_measured(ok.error().message)};
  const std::string ids = folder.file("ids.npy");
  const std::string sizes = folder.file("sizes.npy");
  if (auto ok = write_batches(r, ids, sizes); !ok) {
    return {not_measured(ok.error().message)};
  }
  const ScriptRun ran = run_script(
      script,
      {"--ids", ids, "--sizes", sizes, "--heads", std::to_string(r.shape.heads),
       "--kv-heads", std::to_string(r.shape.kv_heads), "--head-dim",
       std::to_string(r.shape.head_dim), "--dtype", dtype_word(r.dtype),
       "--threads", std::to_string(r.threads), "--budget",
       fmt::format("{}", r.limit * 0.9)},
      {{"OMP_NUM_THREADS", std::to_string(r.threads)},
       {"TORCHINDUCTOR_COMPILE_THREADS", "1"},
       {"TORCHINDUCTOR_CACHE_DIR", folder.file("inductor")}},
      r.limit);
  std::vector<RecompilePeer> out = parse_recompile_lines(ran.out);
  if (!ran.why.empty()) {
    out.push_back(not_measured(ran.why));
  } else if (out.empty()) {
    out.push_back(not_measured("it said nothing"));
  }
  return out;
}

}  // namespace tessera::bench
