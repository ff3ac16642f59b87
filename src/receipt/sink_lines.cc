// receipt/sink_lines.cc: sink telemetry, a line for each document.
#include <algorithm>
#include <optional>
#include <vector>

#include "receipt/lines.h"

namespace tessera::receipt {
namespace {

constexpr size_t kMaxLines = 8;

using Numbers = std::vector<std::optional<double>>;

// "0.41 (0.2 to 0.63 by head)"
std::string by_head(const Numbers& of, const std::vector<int64_t>& queries) {
  std::vector<double> found;
  for (size_t h = 0; h < std::min(of.size(), queries.size()); ++h) {
    if (queries[h] == 0) continue;
    if (!of[h]) return "not finite";
    found.push_back(*of[h]);
  }
  if (found.empty()) return "none";
  double sum = 0;
  for (const double x : found) sum += x;
  const double mean = sum / static_cast<double>(found.size());
  if (found.size() == 1) return fmt::format("{:.3g}", mean);
  const auto [least, most] = std::minmax_element(found.begin(), found.end());
  return fmt::format("{:.3g} ({:.3g} to {:.3g} by head)", mean, *least, *most);
}

}  // namespace

void add_sinks(const Receipt::SinkTelemetry& sinks, Lines& line) {
  const auto documents = static_cast<int64_t>(sinks.documents.size());
  line("sinks", fmt::format("mass on the first {} of each of {}, and entropy "
                            "in nats: means over queries",
                            plural(sinks.first_keys, "key"),
                            plural(documents, "document")));
  size_t lines = 0;
  for (const auto& d : sinks.documents) {
    if (lines++ == kMaxLines) break;
    line("", fmt::format(
                 "row {}{}: mass {}, entropy {}", d.batch_row,
                 d.document ? fmt::format(", document {}", *d.document) : "",
                 by_head(d.mass, d.queries), by_head(d.entropy, d.queries)));
  }
  if (sinks.documents.size() > kMaxLines) {
    line("", fmt::format("and {} more, in the receipt",
                         sinks.documents.size() - kMaxLines));
  }
}

}  // namespace tessera::receipt
