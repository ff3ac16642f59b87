// tests/spans.h: counts the spans of a trace.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/trace.h"

namespace tessera::testing {

// The number of spans by "category name".
inline std::map<std::string, int> spans_of(const Trace& trace) {
  std::map<std::string, int> out;
  const auto file = nlohmann::json::parse(trace.json());
  for (const auto& e : file["traceEvents"]) {
    if (e["ph"] != "X") continue;
    ++out[e["cat"].get<std::string>() + " " + e["name"].get<std::string>()];
  }
  return out;
}

}  // namespace tessera::testing
