// cli/pack/command.cc: `tessera pack`: documents to rows, and where they went.
#include "cli/command.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/out_folder.h"
#include "cli/pack/report.h"
#include "data/row_stats.h"
#include "picture/rows.h"

namespace tessera::cli {
namespace {

// A folder that is new or empty, so that no row of another run lies in it.
Result<void> make_new_folder(const std::string& path) {
  auto made = make_folder(path);
  if (!made) return made.error();
  std::error_code error;
  if (!std::filesystem::is_empty(path, error) || error) {
    return invalid("cli", "--out must be an empty folder, found files in {}",
                   in_quotes(path));
  }
  return {};
}

// Before any work.
Result<void> check_out(const std::string& out) {
  return is_row_file(out) ? check_row_file(out) : make_new_folder(out);
}

using NextRows = std::function<Result<Rows>()>;

// Into files of a folder, one file, or nowhere; how many files.
Result<int64_t> write_rows(const PackFlags& f, const NextRows& next) {
  if (f.out && is_row_file(*f.out)) {
    if (auto e = save_row_file(*f.out, next); !e) return e.error();
    return 1;
  }
  int64_t files = 0;
  while (true) {
    auto rows = next();
    if (!rows) return rows.error();
    if (rows->rows == 0) return files;
    if (!f.out) continue;
    const std::filesystem::path path =
        std::filesystem::path(*f.out) /
        fmt::format("rows-{:05}.safetensors", files);
    if (auto e = save_rows(path, *rows); !e) return e.error();
    ++files;
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
  auto size = rows_per_file(f);
  if (!size) return size.error();
  if (f.stats && !f.stats->ends_with(".svg")) {
    return invalid("cli", "--stats must end in .svg, found {}",
                   in_quotes(*f.stats));
  }
  auto source = open_documents(f.inputs);
  if (!source) return source.error();
  auto stream = RowStream::open(std::move(*source), *options);
  if (!stream) return stream.error();
  data::RowStats stats;
  if (f.stats) {  // that it can be written is known before any work
    if (auto e = draw_stats(f, stats); !e) return e.error();
  }
  if (f.out) {
    if (auto e = check_out(*f.out); !e) return e.error();
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
    "rows, fill; cost_max_over_mean (tiles of a step's costliest row over\n"
    "their mean), cost_worst_step, length_spread (of the steps' mean lengths\n"
    "of parts: deviation over mean), chunks, edges, ignored_columns,\n"
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
