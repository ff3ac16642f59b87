// cli/pack/run.cc: reads documents and writes rows.
#include "cli/pack/run.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/pack/output_checks.h"
#include "data/row_stats.h"
#include "picture/rows.h"

namespace tessera::cli {
namespace {

Result<void> draw_stats(const PackFlags& f, const data::RowStats& stats) {
  const std::string title = fmt::format(
      "{}, strategy {}", f.mask.value_or("causal & documents"), f.strategy);
  return write_file(*f.stats, picture::draw_rows(stats, title));
}

using SeeRows = std::function<Result<void>(const Rows&)>;

// Packs into files of a folder, which a killed run may have begun.
Result<PackReport> pack_to_folder(const PackFlags& f,
                                  RowFolderOptions options) {
  options.restart = f.restart;
  options.format = f.format.value_or(options.format);
  options.resumes = [](int64_t rows) {
    fmt::print(stderr, "tessera: going on after {} rows of a run that ended\n",
               rows);
  };
  auto packed = pack_row_folder(f.inputs, *f.out, options);
  if (!packed) return packed.error();
  PackReport report{std::move(packed->report), packed->files};
  report.resumed_files = packed->resumed_files;
  report.resumed_rows = packed->resumed_rows;
  report.resumed_documents = packed->resumed_documents;
  return report;
}

// Packs into one file, or without --out only counts.
Result<PackReport> pack_stream(const PackFlags& f, RowStream& stream,
                               int64_t size, const SeeRows& see) {
  const auto next = [&](Rows spare) -> Result<Rows> {
    auto rows = stream.next(size, std::move(spare));
    if (!rows || !see) return rows;
    if (auto e = see(*rows); !e) return e.error();
    return rows;
  };
  if (f.out) {
    const auto fresh = [&] { return next({}); };
    if (auto e = save_row_file(*f.out, fresh); !e) return e.error();
  }
  Result<Rows> rows{Rows{}};
  while (!f.out) {
    rows = next(std::move(*rows));
    if (!rows) return rows.error();
    if (rows->rows == 0) break;
  }
  return PackReport{stream.report(), f.out ? 1 : 0};
}

}  // namespace

Result<PackReport> run_pack(const PackFlags& f, const StreamOptions& options) {
  auto threads = threads_of(f);
  if (!threads) return threads.error();
  const bool to_folder = f.out && !is_row_file(*f.out);
  if ((f.restart || f.format) && !to_folder) {
    return invalid("cli",
                   "{} must come with a folder as --out, found {} for it",
                   f.restart ? "--restart" : "--format",
                   f.out ? in_quotes(*f.out) : "none");
  }
  if (f.rows_per_file && !f.out) {
    return invalid("cli", "--rows-per-file must come with --out, found none");
  }
  if (f.stats) {
    if (auto e = check_stats(f, *f.stats, to_folder); !e) return e.error();
  }
  auto source = open_documents(f.inputs);
  if (!source) return source.error();
  (*source)->set_workers(*threads);
  auto stream = RowStream::open(std::move(*source), options);
  if (!stream) return stream.error();
  auto size = rows_per_file(f, stream->shape());
  if (!size) return size.error();
  if (f.out) {
    if (auto e = check_out(f, *f.out); !e) return e.error();
  }
  data::RowStats stats;
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> took = {};
  const auto stop_clock = [&] {
    took = std::chrono::steady_clock::now() - begin;
  };
  SeeRows see;
  std::function<Result<void>()> draw;
  if (f.stats) {
    see = [&](const Rows& rows) {
      return data::add_row_stats(rows, options.pack, stats);
    };
    draw = [&] {
      stop_clock();
      return draw_stats(f, stats);
    };
  }
  auto report = to_folder ? pack_to_folder(f, {.stream = options,
                                               .rows_per_file = *size,
                                               .workers = *threads,
                                               .each = see,
                                               .last = draw})
                          : pack_stream(f, *stream, *size, see);
  if (!report) return report.error();
  if (!draw) {
    stop_clock();
  } else if (!to_folder) {
    if (auto e = draw(); !e) return e.error();
  }
  report->seconds = took.count();
  return report;
}

}  // namespace tessera::cli
