// cli/receipt/verdict.cc: prints the result of verifying a receipt, and the
// differences of two receipts, as text or JSON.
#include "cli/receipt/verdict.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/json_line.h"
#include "receipt/parts.h"

namespace tessera::cli {
namespace {

Json json_of(const std::vector<ReceiptDifference>& all, const char* a,
             const char* b) {
  Json out = Json::array();
  for (const ReceiptDifference& d : all) {
    out.push_back({{"field", d.field}, {a, d.a}, {b, d.b}});
  }
  return out;
}

void print_verdict_text(const run::ReceiptVerdict& v) {
  for (const std::string& c : v.contradictions) {
    fmt::print("WRONG       {}\n", c);
  }
  for (const ReceiptDifference& d : v.wrong) {
    fmt::print("WRONG       {}: the receipt says {}, running it again {}\n",
               on_a_line(d.field), d.a.empty() ? "nothing" : d.a,
               d.b.empty() ? "nothing" : d.b);
  }
  for (const std::string& note : v.notes) fmt::print("note        {}\n", note);
  if (v.is_true()) {
    fmt::print("verified    its digest, and {} fields by running it again\n",
               v.compared);
  }
}

}  // namespace

void print_verdict(const run::ReceiptVerdict& verdict, bool as_json) {
  if (!as_json) return print_verdict_text(verdict);
  const Json out = {{"verified", verdict.is_true()},
                    {"compared", verdict.compared},
                    {"wrong", json_of(verdict.wrong, "claimed", "found")},
                    {"contradictions", verdict.contradictions},
                    {"notes", verdict.notes}};
  fmt::print("{}\n", json_line(out));
}

void print_differences(const std::vector<ReceiptDifference>& all,
                       bool as_json) {
  if (as_json) {
    const Json out = {{"differences", json_of(all, "a", "b")}};
    fmt::print("{}\n", json_line(out));
    return;
  }
  for (const ReceiptDifference& d : all) {
    fmt::print("{}: {} | {}\n", on_a_line(d.field),
               d.a.empty() ? "nothing" : d.a, d.b.empty() ? "nothing" : d.b);
  }
}

}  // namespace tessera::cli
