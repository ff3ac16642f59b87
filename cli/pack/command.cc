// cli/pack/command.cc: `tessera pack`: documents to rows, and where they went.
#include "cli/command.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/pack/report.h"
#include "data/row_stats.h"
#include "picture/rows.h"

namespace tessera::cli {
namespace {

// Before any work, and nothing that is read may be written over.
Result<void> check_out(const PackFlags& f, const std::string& out) {
  for (const std::string& input : f.inputs) {
    std::error_code error;
    if (!std::filesystem::equivalent(input, out, error) || error) continue;
    return invalid("cli", "--out must be no input, found {}", in_quotes(out));
  }
  if (is_row_file(out)) return check_row_file(out);
  const std::string ending = std::filesystem::path(out).extension().string();
  for (const char* other :
       {".safetensors", ".jsonl", ".json", ".npy", ".csv"}) {
    if (ending != other) continue;
    return invalid("cli",
                   "--out must be a folder, or a file of Parquet or Arrow IPC, "
                   "found {}",
                   in_quotes(out));
  }
  return check_row_folder(out);
}

using NextRows = std::function<Result<Rows>()>;

// Into files of a folder, one file, or nowhere; how many files.
Result<int64_t> write_rows(const PackFlags& f, const NextRows& next) {
  if (f.out && !is_row_file(*f.out)) return save_row_folder(*f.out, next);
  if (f.out) {
    if (auto e = save_row_file(*f.out, next); !e) return e.error();
    return 1;
  }
  while (true) {
    auto rows = next();
    if (!rows) return rows.error();
    if (rows->rows == 0) return 0;
  }
}

Result<void> draw_stats(const PackFlags& f, const data::RowStats& stats) {
  const std::string title = fmt::format(
      "{}, strategy {}", f.mask.value_or("causal & documents"), f.strategy);
  return write_file(*f.stats, picture::draw_rows(stats, title));
}

Result<int> run(const PackFlags& f) {
  auto options = stream_options(f);
  if (!options) return options.error();
  if (f.stats && !f.stats->ends_with(".svg")) {
    return invalid("cli", "--stats must end in .svg, found {}",
                   in_quotes(*f.stats));
  }
  auto source = open_documents(f.inputs);
  if (!source) return source.error();
  auto stream = RowStream::open(std::move(*source), *options);
  if (!stream) return stream.error();
  auto size = rows_per_file(f, stream->shape());
  if (!size) return size.error();
  data::RowStats stats;
  if (f.stats) {  // that it can be written is known before any work
    if (auto e = draw_stats(f, stats); !e) return e.error();
  }
  if (f.out) {
    if (auto e = check_out(f, *f.out); !e) return e.error();
  }
  const auto begin = std::chrono::steady_clock::now();
  auto files = write_rows(f, [&]() -> Result<Rows> {
    auto rows = stream->next(*size);
    if (!rows || !f.stats) return rows;
    if (auto e = data::add_row_stats(*rows, options->pack, stats); !e) {
      return e.error();
    }
    return rows;
  });
  if (!files) return files.error();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  if (f.stats) {
    if (auto e = draw_stats(f, stats); !e) return e.error();
  }
  const PackReport report{
      stream->account(),          stream->chunks(), stream->balance(),
      stream->source().ignored(), *files,           took.count()};
  if (f.json) {
    fmt::print("{}\n", pack_json(report, *options).dump());
  } else {
    fmt::print("{}", pack_text(report, *options));
  }
  return kOk;
}

constexpr const char* kFooter =
    "A document is a line of JSON, or a row of Parquet (.parquet) or Arrow "
    "IPC\n"
    "(.arrow, .arrows, .feather, .ipc): input_ids and, where there are any,\n"
    "loss_mask, structure_ids, dep_levels, ast_depth, sibling_index, "
    "node_type,\n"
    "chunk_starts, chunk_ends, chunk_kinds, call_edges, type_edges.\n"
    "Examples:\n"
    "  tessera pack documents.jsonl --tokens 8192 -o rows\n"
    "  tessera pack documents.parquet --tokens 8192 -o rows.parquet\n"
    "  tessera pack documents.jsonl --strategy cost --mixing 0.01 --json\n"
    "\n"
    "JSON fields: documents, tokens_in, tokens_out, tokens_dropped, padding,\n"
    "rows, fill; full_steps, and of those, null where there is none:\n"
    "cost_max_over_mean (tiles of a step's costliest row over their mean),\n"
    "cost_worst_step, length_spread (of the steps' mean lengths of parts:\n"
    "deviation over mean); chunks, edges, ignored_columns,\n"
    "documents_per_second (from file to rows).";

}  // namespace

Command pack_command() {
  auto flags = std::make_shared<PackFlags>();
  Command command{"pack", "Pack documents into rows of one length"};
  add_pack_flags(command, *flags);
  command.footer = kFooter;
  command.work = [flags] { return run(*flags); };
  return command;
}

}  // namespace tessera::cli
