// run/verify.cc: the one flow that verifies receipts.
#include "run/verify.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "receipt/parts.h"
#include "run/lane_rules.h"
#include "run/receipt_parts.h"
#include "tessera/version.h"

namespace tessera::run {
namespace {

int64_t count_leaves(const Json& value) {
  if (!value.is_structured() || value.empty()) return 1;
  int64_t out = 0;
  for (const Json& inner : value) out += count_leaves(inner);
  return out;
}

// The claimed rows of the gate, checked like those of a gate file. A receipt
// may have none, a file may not.
Result<GateTable> rows_of(const receipt::Receipt& claimed) {
  if (claimed.choice.gate.empty()) return GateTable();
  auto out = parse_gate_rows(gate_json({claimed.choice.gate}));
  if (!out) return out;
  for (const GateRow& row : out->rows) {
    if (auto e = check_verdict_alone(row); !e) return e.error();
  }
  return out;
}

// The choice that the rules give, or that of the named lane.
Result<Choice> choice_due(const receipt::Receipt& claimed,
                          const SecondRun::Asked& asked) {
  const Machine machine = machine_of(claimed);
  if (claimed.lane.requested != "auto") {
    auto lane = parse_lane(claimed.lane.requested);
    if (!lane) return lane.error();
    return by_name(*lane, asked.features, asked.plan, machine);
  }
  auto rows = rows_of(claimed);
  if (!rows) return rows.error();
  auto choice = choose(asked.features, asked.plan, machine, *rows);
  return choice ? choice : no_lane(asked.features, asked.plan, machine, *rows);
}

// The device that a receipt of another machine must name. It cannot be looked
// up here, but the receipt's fields must agree.
std::string device_due(const receipt::Receipt& claimed) {
  const bool on_cpu = !claimed.plugin || claimed.plugin->platform == "cpu";
  return on_cpu ? claimed.machine.cpu : claimed.plugin->device;
}

void compare(const receipt::Receipt& claimed, SecondRun second,
             ReceiptVerdict& out) {
  receipt::Receipt& found = second.receipt;
  if (second.asked) {
    const auto due = choice_due(claimed, *second.asked);
    if (due) {
      found.choice = receipt_choice(*due);
      found.lane.chosen = to_string(due->lane);
    } else {
      found.choice = claimed.choice;
      found.lane.chosen = claimed.lane.chosen;
      const Json rows = receipt::fields_json(claimed)["choice"]["gate"];
      out.wrong.push_back(
          {"choice.gate", rows.dump(), in_quotes(due.error().message)});
    }
  }
  if (!claimed.ran()) {
    out.notes.emplace_back("nothing ran: it says compiled only");
  } else if (claimed.machine.cpu != found.machine.cpu) {
    out.notes.emplace_back(
        "it ran on another machine, whose name cannot be compared here");
    found.device = device_due(claimed);
  }
  const Json due = receipt::repeatable_json(found);
  out.compared = count_leaves(due);
  for (ReceiptDifference& d :
       receipt::differences(receipt::repeatable_json(claimed), due)) {
    out.wrong.push_back(std::move(d));
  }
  std::ranges::stable_sort(out.wrong, {}, &ReceiptDifference::field);
}

}  // namespace

Result<ReceiptVerdict> verify_receipt(const receipt::ReceiptClaim& claim,
                                      const RunAgain& run_again) {
  ReceiptVerdict out;
  if (auto e = receipt::check_digest(claim); !e) {
    out.contradictions.push_back(e.error().message);
    return out;
  }
  out.contradictions = receipt::contradictions(claim);
  if (!out.contradictions.empty()) return out;
  if (claim.version != kVersion) {
    out.notes.push_back(
        fmt::format("it was written by tessera {}, and this is {}",
                    in_quotes(claim.version), kVersion));
  }
  auto second = run_again(claim);
  if (!second) return second.error();
  compare(claim, std::move(*second), out);
  return out;
}

}  // namespace tessera::run
