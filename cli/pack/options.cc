// cli/pack/options.cc: the flags of `tessera pack`, and options parsed from
// them.
#include "cli/pack/options.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/numbers.h"
#include "data/row_file.h"
#include "request/make_request.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxNumber = int64_t{1} << 24;
// The default rows of a file, reduced to at most 256 MiB: a file is in memory
// as a whole.
constexpr int64_t kRowsPerFile = 256;
constexpr int64_t kNumbersPerFile = int64_t{1} << 26;

Result<double> parse_share(const std::string& text, std::string_view what) {
  double share = -1;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), share);
  if (error == std::errc() && end == text.data() + text.size() && share >= 0 &&
      share <= 1) {
    return share;
  }
  return invalid("cli", "{} must be a number of 0 to 1, found {} for it", what,
                 in_quotes(text));
}

Result<void> read_optional(const std::optional<std::string>& text,
                           std::string_view what, int64_t& into) {
  if (!text) return {};
  auto n = request::parse_int(*text, what, 1, kMaxNumber);
  if (!n) return n.error();
  into = *n;
  return {};
}

Result<PackOptions> pack_options(const PackFlags& f) {
  PackOptions o;
  auto strategy = parse_pack_strategy(f.strategy);
  if (!strategy) return strategy.error();
  o.strategy = *strategy;
  auto rule = parse_long_documents(f.long_documents);
  if (!rule) return rule.error();
  o.long_documents = *rule;
  for (const auto& [text, what, most, into] :
       {std::tuple{&f.tokens, "--tokens", kMaxRowTokens, &o.tokens},
        std::tuple{&f.window_rows, "--window-rows", kMaxWindowRows,
                   &o.window_rows},
        std::tuple{&f.rows_per_step, "--rows-per-step", kMaxRowsPerStep,
                   &o.rows_per_step}}) {
    auto n = request::parse_int(*text, what, 1, most);
    if (!n) return n.error();
    *into = *n;
  }
  auto mixing = parse_share(f.mixing, "--mixing");
  if (!mixing) return mixing.error();
  o.mixing = *mixing;
  auto seed = parse_seed(f.seed);
  if (!seed) return seed.error();
  o.seed = *seed;
  auto tile = request::parse_tile(f.tile, "--tile");
  if (!tile) return tile.error();
  o.tile = *tile;
  if (f.mask) {
    auto mask = parse_mask(*f.mask);
    if (!mask) return mask.error();
    o.mask = std::move(*mask);
  }
  return o;
}

}  // namespace

void add_pack_flags(Command& command, PackFlags& f) {
  add_flags(
      command,
      {{"input", &f.inputs, "FILE", "JSON lines, Parquet or Arrow IPC", true},
       {"--tokens", &f.tokens, "N", "Tokens of a row [8192]"},
       {"--strategy", &f.strategy, "NAME",
        "How rows are filled: inorder, firstfit, bestfit or cost [bestfit]"},
       {"--long", &f.long_documents, "RULE",
        "Rule for a document longer than a row: split, keep_head, keep_tail or "
        "drop [split]"},
       {"--window-rows", &f.window_rows, "N",
        "Documents of this many rows are packed at a time [4096]"},
       {"--rows-per-step", &f.rows_per_step, "N",
        "Rows that are computed together [8]"},
       {"--mixing", &f.mixing, "SHARE",
        "With --strategy cost: how freely rows are put into steps, 0 the most "
        "even steps, 1 any rows [0]"},
       {"--mask", &f.mask, "EXPR",
        "Mask whose tiles are the cost [causal & documents]"},
       {"--tile", &f.tile, "QxKV", "Size of those tiles [256x256]"},
       {"--seed", &f.seed, "N", "Seed of the order of rows [0]"},
       {"--pad-id", &f.pad_id, "ID", "The token of padding [0]"},
       {"--max-chunks", &f.max_chunks, "N",
        "Most chunks of a row [max(128, tokens / 32)]"},
       {"--max-edges", &f.max_edges, "N",
        "Most edges of a row, for each kind [twice the chunks]"},
       {"--strict-chunks", &f.strict_chunks, "",
        "Refuse more chunks or edges than these; else they are dropped and "
        "counted"},
       {"-o,--out", &f.out, "PATH",
        "Write rows: into a folder, as rows-00000.safetensors and so on, or "
        "into one file, .parquet or .arrow, which cannot be resumed"},
       {"--format", &f.format, "NAME",
        "Format of a folder's files: safetensors, parquet or arrow "
        "[safetensors]"},
       {"--stats", &f.stats, "FILE",
        "Draw the fill, cost, documents and tiles of the rows, as .svg"},
       {"--rows-per-file", &f.rows_per_file, "N",
        "Rows of each file of a folder; of one file, rows of a row group or "
        "batch [256, or 256 MiB]"},
       {"--threads", &f.threads, "N",
        "Threads that read columns of Parquet and parse JSON lines; any number "
        "gives the same rows [every core]"},
       {"--restart", &f.restart, "",
        "Begin a folder anew, where a killed run left rows that would be "
        "resumed"},
       {"--json", &f.json, "", "One JSON object on stdout"}});
}

Result<StreamOptions> stream_options(const PackFlags& f) {
  StreamOptions o;
  auto pack = pack_options(f);
  if (!pack) return pack.error();
  o.pack = std::move(*pack);
  auto pad_id = request::parse_int(f.pad_id, "--pad-id", INT32_MIN, INT32_MAX);
  if (!pad_id) return pad_id.error();
  o.pad_id = static_cast<int32_t>(*pad_id);
  if (auto e = read_optional(f.max_chunks, "--max-chunks", o.max_chunks); !e) {
    return e.error();
  }
  if (auto e = read_optional(f.max_edges, "--max-edges", o.max_edges); !e) {
    return e.error();
  }
  if (f.strict_chunks) o.chunk_room = ChunkRoom::refuse;
  return o;
}

Result<int64_t> threads_of(const PackFlags& f) {
  if (f.threads)
    return request::parse_int(*f.threads, "--threads", 1, kMaxAhead);
  return std::min<int64_t>(machine_threads(), kMaxAhead);
}

Result<int64_t> rows_per_file(const PackFlags& f, const RowShape& shape) {
  if (f.rows_per_file) {
    return request::parse_int(*f.rows_per_file, "--rows-per-file", 1,
                              kMaxNumber);
  }
  return std::clamp<int64_t>(kNumbersPerFile / data::numbers_of_row(shape), 1,
                             kRowsPerFile);
}

}  // namespace tessera::cli
