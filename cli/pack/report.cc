// cli/pack/report.cc: what was packed, as text and JSON.
#include "cli/pack/report.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tessera::cli {

namespace {

// Null if no step was full, since the balance is then unknown.
nlohmann::json known(const PackBalance& b, double value) {
  return b.steps == 0 ? nlohmann::json() : nlohmann::json(value);
}

}  // namespace

nlohmann::json pack_json(const PackReport& r, const StreamOptions& o) {
  const PackAccount& a = r.stream.account;
  const ChunkAccount& c = r.stream.chunks;
  const PackBalance& b = r.stream.balance;
  return {{"strategy", to_string(o.pack.strategy)},
          {"tokens", o.pack.tokens},
          {"documents", a.documents},
          {"documents_empty", a.empty_documents},
          {"documents_long", a.long_documents},
          {"documents_dropped", a.dropped_documents},
          {"parts", a.parts},
          {"tokens_in", a.tokens_in},
          {"tokens_out", a.tokens_out},
          {"tokens_dropped", a.tokens_dropped},
          {"dropped_by", to_string(o.pack.long_documents)},
          {"padding", a.padding},
          {"rows", a.rows},
          {"fill", a.rows == 0 ? nlohmann::json() : nlohmann::json(a.fill())},
          {"full_steps", b.steps},
          {"cost_max_over_mean", known(b, b.max_over_mean)},
          {"cost_worst_step", known(b, b.worst)},
          {"length_spread", known(b, b.length_spread)},
          {"chunks",
           {{"in", c.chunks_in},
            {"out", c.chunks_out},
            {"cut", c.chunks_cut},
            {"room", to_string(o.chunk_room)},
            {"no_room", c.chunks_over},
            {"dropped", c.chunks_dropped()}}},
          {"edges",
           {{"in", c.edges_in},
            {"out", c.edges_out},
            {"across_rows", c.edges_across},
            {"no_room", c.edges_over},
            {"dropped", c.edges_dropped()}}},
          {"ignored_columns", r.stream.ignored},
          {"files", r.files},
          {"resumed", {{"files", r.resumed_files}, {"rows", r.resumed_rows}}},
          {"documents_per_second", r.documents_per_second()}};
}

std::span<const JsonField> pack_json_fields() {
  static constexpr JsonField kFields[] = {
      {"strategy, tokens"},
      {"documents, documents_empty, documents_long, documents_dropped",
       "long: longer than a row"},
      {"parts", "pieces of documents, in rows"},
      {"tokens_in, tokens_out, tokens_dropped, dropped_by"},
      {"padding, rows"},
      {"fill", "share of places that hold tokens; null without rows"},
      {"full_steps", "the next three are of these, null where there is none"},
      {"cost_max_over_mean", "tiles of a step's costliest row over their mean"},
      {"cost_worst_step", "highest of these"},
      {"length_spread",
       "deviation over mean of the steps' mean lengths of parts"},
      {"chunks.{in,out,cut,room,no_room,dropped}",
       "room: a row's; no_room: left out, as a row had no more"},
      {"edges.{in,out,across_rows,no_room,dropped}"},
      {"ignored_columns, files"},
      {"resumed.{files,rows}", "left by a run that was killed"},
      {"documents_per_second", "from file to rows, of this run"},
  };
  return kFields;
}

std::string pack_text(const PackReport& r, const StreamOptions& o) {
  const PackAccount& a = r.stream.account;
  const ChunkAccount& c = r.stream.chunks;
  const PackBalance& b = r.stream.balance;
  std::string out;
  const auto line = [&](std::string_view name, std::string_view text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  line("documents",
       fmt::format("{}, {} empty, {} longer than a row, {:.0f} a second",
                   a.documents, a.empty_documents, a.long_documents,
                   r.documents_per_second()));
  line("tokens",
       fmt::format("{} in, {} out, {} dropped ({})", a.tokens_in, a.tokens_out,
                   a.tokens_dropped, to_string(o.pack.long_documents)));
  line("rows", a.rows == 0
                   ? "none"
                   : fmt::format("{} of {} tokens, {:.4f} full, {} of padding",
                                 a.rows, o.pack.tokens, a.fill(), a.padding));
  line("cost",
       b.steps == 0
           ? fmt::format("not known: no step of {} rows is full",
                         o.pack.rows_per_step)
           : fmt::format("of {} rows at a time: max over mean {:.3f}, worst "
                         "{:.3f}; lengths spread {:.3f}",
                         o.pack.rows_per_step, b.max_over_mean, b.worst,
                         b.length_spread));
  if (c.chunks_in > 0) {
    line("chunks",
         fmt::format("{} in, {} out, {} cut, {} without room ({}), {} dropped",
                     c.chunks_in, c.chunks_out, c.chunks_cut, c.chunks_over,
                     to_string(o.chunk_room), c.chunks_dropped()));
  }
  if (c.edges_in > 0) {
    line("edges",
         fmt::format(
             "{} in, {} out, {} across rows, {} without room ({}), {} dropped",
             c.edges_in, c.edges_out, c.edges_across, c.edges_over,
             to_string(o.chunk_room), c.edges_dropped()));
  }
  for (const std::string& name : r.stream.ignored)
    line("ignored", on_a_line(name));
  if (r.files > 0) line("files", std::to_string(r.files));
  if (r.resumed_files > 0) {
    line("resumed", fmt::format("{} rows in {} files of a run that was ended",
                                r.resumed_rows, r.resumed_files));
  }
  return out;
}

}  // namespace tessera::cli
