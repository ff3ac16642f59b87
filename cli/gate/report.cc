// cli/gate/report.cc: the gate's table as JSON and text.
#include "cli/gate/report.h"

#include <fmt/format.h>

#include "base/dtype_word.h"
#include "base/json_read.h"
#include "base/text.h"
#include "schedule/chip.h"
#include "tessera/version.h"

namespace tessera::cli {

namespace {

// A figure in its own unit: a time to a microsecond, or whole cycles.
std::string figure(const std::optional<double>& ms,
                   const std::optional<double>& cycles) {
  if (cycles) return fmt::format("{:.0f} cycles", *cycles);
  return ms ? fmt::format("{:.3f} ms", *ms) : "-";
}

}  // namespace

std::string gate_table_json(const GateTable& table) {
  Json out = Json::parse(gate_json(table));
  out["tessera"] = kVersion;
  return out.dump(2) + "\n";
}

std::string gate_table_json(const GateReport& r) {
  Json out = Json::parse(gate_json(r.measured.table));
  out["machine"] = r.machine.key();
  out["tessera"] = kVersion;
  out["quick"] = r.quick;
  out["plugin"] = on_a_line(r.measured.plugin);
  out["busy_cores"] = r.busy_cores;
  return out.dump(2) + "\n";
}

std::string gate_table_text(const GateTable& table) {
  std::string out = fmt::format(
      "{:<15} {:<32} {:<5} {:>6} {:>6} {:>8} {:>9} {:>16} {:>16} "
      "{:>7} {:>7}  {}\n",
      "kernel", "mask", "dtype", "q", "kv", "density", "tile", "ours", "plain",
      "factor", "error", "verdict");
  for (const GateRow& r : table.rows) {
    out += fmt::format(
        "{:<15} {:<32} {:<5} {:>6} {:>6} {:>8.3f} {:>9} {:>16} {:>16} "
        "{:>7} {:>7}  {}{}\n",
        r.kernel, r.mask + (r.shape.softcap != 0 ? ", softcap" : ""),
        dtype_word(r.dtype), r.q_len, r.kv_len, r.density,
        r.tile ? fmt::format("{}x{}", r.tile->q, r.tile->kv) : "-",
        figure(r.kernel_ms, r.kernel_cycles),
        figure(r.plain_ms, r.plain_cycles),
        r.factor ? fmt::format("{:.2f}", *r.factor) : "-",
        r.error ? fmt::format("{:.3g}", *r.error) : "-", to_string(r.verdict),
        r.basis == GateBasis::predicted
            ? ", predicted, " + schedule::known_words(r.generation)
            : "");
  }
  return out;
}

std::string gate_table_text(const GateReport& r) {
  std::string out =
      fmt::format("machine     {}\nplain XLA   {}\n\n", r.machine.key(),
                  in_quotes(r.measured.plugin, 1000));
  out += gate_table_text(r.measured.table);
  if (r.busy_cores > 0.5) {
    out += fmt::format("\nOther programs kept {:.1f} cores busy meanwhile.\n",
                       r.busy_cores);
  }
  return out;
}

}  // namespace tessera::cli
