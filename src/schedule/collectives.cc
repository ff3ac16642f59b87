// schedule/collectives.cc: matches starts with their ends, and sums the ops
// between them.
#include "schedule/collectives.h"

#include <algorithm>

namespace tessera::schedule {
namespace {

// The opcode of a collective; for an async-start, that of the collective in its
// body.
std::string_view opcode_of(const HloCall& call, const HloBodies& bodies) {
  if (call.opcode != "async-start") return collective_of(call.opcode);
  const auto body = bodies.find(call.body);
  if (body == bodies.end()) return {};
  for (const HloCall& inner : body->second) {
    const std::string_view found = collective_of(inner.opcode);
    if (!found.empty()) return found;
  }
  return {};
}

bool ends(const HloCall& call, const HloCall& start) {
  return call.opcode.ends_with("-done") && !call.operands.empty() &&
         call.operands[0] == start.name;
}

int64_t bytes_of(const HloCall& call, std::string_view opcode) {
  // The other operands of a ragged collective are its destination and sizes.
  if (opcode == "ragged-all-to-all" && !call.sent.empty()) {
    return call.sent.front();
  }
  int64_t out = 0;
  for (const int64_t bytes : call.sent) {
    if (out > INT64_MAX - bytes) break;
    out += bytes;
  }
  return out;
}

}  // namespace

std::vector<Collective> find_collectives(const std::vector<HloCall>& calls,
                                         const HloBodies& bodies,
                                         const CyclesOf& cycles_of) {
  std::vector<Collective> out;
  for (auto start = calls.begin(); start != calls.end(); ++start) {
    const std::string_view opcode = opcode_of(*start, bodies);
    if (opcode.empty()) continue;
    Collective c;
    c.name = start->name;
    c.opcode = opcode;
    c.bytes = bytes_of(*start, opcode);
    c.asynchronous = start->opcode.ends_with("-start");
    double most = 0;
    const auto end = std::find_if(
        start, calls.end(), [&](const HloCall& x) { return ends(x, *start); });
    for (auto at = start + 1; end != calls.end() && at < end; ++at) {
      const auto cycles = cycles_of(*at);
      if (!cycles) continue;
      ++c.ops_between;
      if (at->opcode == "custom-call") c.kernels.push_back(at->name);
      c.cycles_between += *cycles;
      if (*cycles > most) c.longest = at->name;
      most = std::max(most, *cycles);
    }
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace tessera::schedule
