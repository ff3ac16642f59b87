// run/gate_rows.cc: finds the rows that keep a lane out, and words rows.
#include "run/gate_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/chip.h"

namespace tessera {
namespace {

std::string kernel_words(const GateRow& row) {
  return row.tile ? fmt::format("{} at tiles of {}x{}", row.kernel, row.tile->q,
                                row.tile->kv)
                  : row.kernel;
}

std::string predicted_words(const GateRow& row) {
  const double apart = std::max(*row.factor, 1 / *row.factor);
  return fmt::format(
      "predicted for {} at density {:.3g}, of {} heads and {} x {} tokens: {} "
      "takes {:.0f} cycles and xla's {} program {:.0f}, {:.4g} times apart, {} "
      "the error bar of {:.4g}, {} (verdict: {})",
      row.generation, row.density, row.shape.heads, row.q_len, row.kv_len,
      kernel_words(row), *row.kernel_cycles, to_string(row.plain),
      *row.plain_cycles, apart,
      apart > *row.error_bar ? "beyond" : "a tie within", *row.error_bar,
      schedule::known_words(row.generation), to_string(row.verdict));
}

std::string measured_words(const GateRow& row, bool ours) {
  const std::string xla = fmt::format("xla's {} program", to_string(row.plain));
  const std::string kernel = kernel_words(row);
  return fmt::format(
      "measured on this machine at density {:.3g}: {} took {:.2f} times as "
      "long as {} (verdict: {})",
      row.density, ours ? xla : kernel, ours ? *row.factor : 1 / *row.factor,
      ours ? kernel : xla, to_string(row.verdict));
}

}  // namespace

const GateRow* run::barred(const GateTable& gate, LaneId lane,
                           const RequestFeatures& f, const Machine& m) {
  for (const GateRow& row : gate.rows) {
    if (bars(row, lane, f, m)) return &row;
  }
  return nullptr;
}

const GateRow* run::denied(const GateTable& gate, LaneId lane,
                           const RequestFeatures& f, const Machine& m) {
  for (const GateRow& row : gate.rows) {
    if (row.basis == GateBasis::measured && row.lane == lane &&
        row.verdict == GateVerdict::drop && row.backward == f.call.backward &&
        speaks_for(row, m)) {
      return &row;
    }
  }
  return nullptr;
}

std::string run::barred_words(const GateRow& row) {
  return fmt::format("the gate {}: {} is {}",
                     row.basis == GateBasis::measured ? "on this machine"
                                                      : "of " + row.generation,
                     row.kernel, to_string(row.verdict));
}

std::string run::row_words(const GateRow& row, bool ours) {
  return row.basis == GateBasis::measured ? measured_words(row, ours)
                                          : predicted_words(row);
}

}  // namespace tessera
