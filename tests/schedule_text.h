// tests/schedule_text.h: makes dumps in the form of libtpu's.
#pragma once

#include <string>
#include <vector>

#include "schedule/bundles.h"

namespace tessera {

// A bundle: the text in its braces, and the comment after it.
struct BundleLine {
  std::string ops;
  std::string comment{};
  schedule::SlotCounts used{};
};

inline std::string bundles_text(const std::vector<BundleLine>& lines) {
  std::string out =
      "\n= control target key start\nLB: loop body\n= control target key "
      "end\n\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    char address[32];
    std::snprintf(address, sizeof address, i == 0 ? "%zx" : "0x%zx", i);
    out += std::string("  ") + address + "   : > { " + lines[i].ops + " }";
    if (!lines[i].comment.empty()) out += " /* " + lines[i].comment + " */";
    out += "\n";
  }
  return out;
}

inline std::string slots_text(const std::vector<BundleLine>& lines) {
  std::string out =
      "== CAPACTIY:\nMATMUL, MATPUSH, XLU, VALU, VPOP, EUP, VLOAD, VLOAD:FILL, "
      "VSTORE, VSTORE:SPILL, SALU\n"
      "    2     2     2     4     2     1     3     3     2     2     2\n"
      "== UTILIZATION:\n";
  for (const BundleLine& line : lines) {
    for (int64_t used : line.used) out += std::to_string(used) + " ";
    out += "\n";
  }
  return out;
}

inline Result<schedule::KernelText> parse_lines(
    const std::vector<BundleLine>& lines) {
  return schedule::parse_kernel("k.1", bundles_text(lines), slots_text(lines));
}

// `size` empty bundles, for tests that set some of them.
inline std::vector<BundleLine> empty_lines(size_t size) {
  return std::vector<BundleLine>(size);
}

}  // namespace tessera
