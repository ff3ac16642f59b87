// cli/pack/command.cc: `tessera pack`: packs documents into rows.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>

#include "cli/json_line.h"
#include "cli/pack/run.h"

namespace tessera::cli {
namespace {

Result<int> run(const PackFlags& f) {
  auto options = stream_options(f);
  if (!options) return options.error();
  auto report = run_pack(f, *options);
  if (!report) return report.error();
  if (f.json) {
    fmt::print("{}\n", json_line(pack_json(*report, *options)));
  } else {
    fmt::print("{}", pack_text(*report, *options));
  }
  return kOk;
}

constexpr const char* kFooter =
    "A document is a line of JSON, or a row of Parquet (.parquet) or Arrow "
    "IPC\n"
    "(.arrow, .arrows, .feather, .ipc): input_ids and, where there are any,\n"
    "loss_mask, structure_ids, dep_levels, ast_depth, sibling_index, "
    "node_type,\n"
    "chunk_starts, chunk_ends, chunk_kinds, call_edges, type_edges, "
    "chunk_unit,\n"
    "token_spans (docs/data.md).\n"
    "\n"
    "Examples:\n"
    "  tessera pack documents.jsonl --tokens 8192 -o rows\n"
    "  tessera pack documents.parquet --tokens 8192 -o rows.parquet\n"
    "  tessera pack documents.parquet --format parquet -o rows\n"
    "  tessera pack documents.jsonl --strategy cost --mixing 0.01 --json\n"
    "\n"
    "The same command resumes a run into a folder that was killed, and makes\n"
    "the same files. Other inputs (name, size, time of change), options or\n"
    "version are refused; --restart begins anew. A run into one file cannot\n"
    "be resumed: it is there when all of it is, and the same command begins\n"
    "anew. For Parquet that can be, write a folder with --format parquet.";

}  // namespace

Command pack_command() {
  auto flags = std::make_shared<PackFlags>();
  Command command{"pack", "Pack documents into rows of one length"};
  add_pack_flags(command, *flags);
  command.footer = kFooter;
  command.json_fields = pack_json_fields();
  command.work = [flags] { return run(*flags); };
  return command;
}

}  // namespace tessera::cli
