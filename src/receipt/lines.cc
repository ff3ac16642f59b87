// receipt/lines.cc: the lines about what was computed.
#include "receipt/lines.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"

namespace tessera::receipt {
namespace {

std::string arrays_text(const std::vector<Receipt::Array>& arrays) {
  std::string out;
  for (const Receipt::Array& a : arrays) {
    out += fmt::format("{}'{}' {} [{}]", out.empty() ? "" : ", ", a.name,
                       a.dtype, fmt::join(a.shape, ", "));
  }
  return out.empty() ? "none" : out;
}

std::string file_text(const std::string& file) {
  return file.empty() ? "the caller's" : "'" + file + "'";
}

std::string source_of(const Receipt::Inputs& inputs) {
  const bool drawn = !inputs.drawn.empty() || inputs.arrays.empty();
  return inputs.file.empty() && drawn ? fmt::format("seed {}", inputs.seed)
                                      : file_text(inputs.file);
}

}  // namespace

// 0.012 ms, 3.4 ms, 12.3 s: three significant digits.
std::string time_text(double ms) {
  if (ms >= 1000) return fmt::format("{:.3g} s", ms / 1000);
  return ms >= 100 ? fmt::format("{:.0f} ms", ms)
                   : fmt::format("{:.3g} ms", ms);
}

std::string plural(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

void add_operation(const Receipt& r, Lines& line) {
  line("operation", fmt::format("{} {}", r.operation, r.name));
  if (r.artifact) {
    line("artifact", fmt::format("{}, exported by JAX {}, digest {}",
                                 file_text(r.artifact->file), r.artifact->jax,
                                 r.artifact->digest));
  }
  line("inputs", fmt::format("{} ({})", arrays_text(r.inputs.arrays),
                             source_of(r.inputs)));
  line("outputs", arrays_text(r.outputs));
  line("key", r.key.digest +
                  ", wider than a kernel contract: the artifact and its "
                  "shapes");
}

void add_work(const Receipt& r, Lines& line) {
  for (const std::string& mask : r.request.masks) line("mask", mask);
  const AttentionShape& s = r.shape.attention;
  const RequestText& request = r.request;
  const std::string batch = request.batch.value_or("");
  line("arrays",
       fmt::format("{} batch row{}, {} x {} tokens, {} ({} K/V), head dim "
                   "{}{}, {} {}{}",
                   batch, batch == "1" ? "" : "s", request.q_len.value_or(""),
                   request.kv_len.value_or(""), plural(s.heads, "head"),
                   s.kv_heads, s.head_dim,
                   s.v_head_dim == s.head_dim
                       ? ""
                       : fmt::format(", values {}", s.v_head_dim),
                   r.shape.dtype, r.shape.layout,
                   r.backward ? ", with backward" : ""));
  const bool counted = r.lane.executed != "jax_bridge";
  if (r.tiles_run > 0 || r.tiles_skipped > 0) {
    line("tiles",
         fmt::format("{} run, {} skipped", r.tiles_run, r.tiles_skipped));
  } else if (r.ran()) {
    line("tiles", counted ? "none: this lane goes pair by pair"
                          : "not counted: the program is JAX's");
  }
  const auto pairs = [](int64_t n) {
    return with_unit(static_cast<double>(n));
  };
  line("pairs",
       fmt::format(
           "{} legal{}", pairs(r.pairs_legal),
           counted ? fmt::format(", {} scored", pairs(r.pairs_run)) : ""));
}

void add_lowering(const Receipt::Lowering& l, Lines& line) {
  line("lowering",
       fmt::format(
           "tiles of {} in granules of {} on {} pay {:.4g} times their "
           "pairs{}{}",
           fmt::join(l.tile, "x"), l.granule, l.chip, l.factor,
           l.paid_pairs > 0
               ? fmt::format(", {} in all",
                             with_unit(static_cast<double>(l.paid_pairs)))
               : "",
           l.reason ? ": " + *l.reason : ""));
}

std::string picks_text(const Receipt::Routing& n) {
  // A receipt is untrusted: it may count no tile row.
  const auto rows = static_cast<double>(std::max<int64_t>(n.tile_rows, 1));
  return fmt::format(
      "{}: {} of blocks of {} keys, {} pick; unions of {:.2f} blocks a tile "
      "row of {} queries, {} in the widest, capacity {}; {} keys read by tile "
      "rows that need {}",
      to_string(n.settings.meaning), n.picks, n.settings.block,
      plural(n.heads, "head"), static_cast<double>(n.union_blocks) / rows,
      n.settings.query_tile, n.widest_union, n.union_capacity, n.read_keys,
      n.needed_keys);
}

void add_routing(const Receipt::Routing& n, double ms, Lines& line) {
  line("routing", fmt::format("{}, top {}, in {}",
                              n.given ? "given" : to_string(n.settings.rule),
                              n.settings.top, time_text(ms)));
  line("picks", picks_text(n));
  line("reads", fmt::format("{} bytes of K and V more than needed, beside {} "
                            "of all, a layer",
                            n.extra_bytes, n.cache_bytes));
}

}  // namespace tessera::receipt
