// receipt/sink_contradictions.cc: checks telemetry by itself and by its batch.
#include "receipt/sink_contradictions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "receipt/sink_telemetry.h"
#include "tessera/dispatch.h"

namespace tessera::receipt {
namespace {

using Document = Receipt::SinkTelemetry::Document;
using Broken = std::optional<std::string>;

// The number in a field of the request; nothing if it is absent or no number.
std::optional<int64_t> number_of(const std::optional<std::string>& text) {
  int64_t out = 0;
  if (!text) return {};
  const char* const end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, out);
  if (error != std::errc() || at != end) return {};
  return out;
}

// The largest entropy of N terms, log N, with the errors of fp32. A weight
// e^d_j has a relative error of at most (8 + sqrt N) u + 2 u |d_j|, which can
// raise the entropy above log N by as much. The sums add (8 + sqrt N) u (1 + T)
// and 8 u times the entropy. No |d_j| of a weight above 0, nor T, exceeds 104.
double most_entropy(double terms) {
  constexpr double kU = 0x1p-24, kFarthest = 104;
  const double sums = (8 + std::sqrt(terms)) * kU;
  const double most = std::log(terms);
  return most + sums * (2 + kFarthest) + 2 * kU * kFarthest + 8 * kU * most;
}

// The reader has already refused numbers below 0.
Broken numbers_broken(const Receipt& r, const Document& d) {
  const auto keys = number_of(r.request.kv_len);
  const double entropy =
      most_entropy(static_cast<double>(keys.value_or(kMaxTokens)) +
                   (r.shape.sink_logits ? 1 : 0));
  for (size_t h = 0; h < d.queries.size(); ++h) {
    if (d.queries[h] == 0 && (d.mass[h] != 0 || d.entropy[h] != 0)) {
      return "sink_telemetry must have a mass and an entropy of 0 where no "
             "query has a legal key";
    }
    if (d.mass[h].value_or(0) > 1) {
      return "sink_telemetry.mass must be at most 1";
    }
    if (d.entropy[h].value_or(0) > entropy) {
      return "sink_telemetry.entropy must be at most the logarithm of the "
             "number of keys";
    }
  }
  return {};
}

// In doubles: a sum of claimed counts may overflow an integer.
Broken counts_broken(const Receipt& r, const std::vector<Document>& documents) {
  const auto q_len = number_of(r.request.q_len);
  const auto heads = static_cast<size_t>(r.shape.attention.heads);
  std::vector<double> of_row(heads);
  double all = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    const Document& d = documents[i];
    if (i > 0 && d.batch_row != documents[i - 1].batch_row) {
      std::fill(of_row.begin(), of_row.end(), 0);
    }
    for (size_t h = 0; h < heads; ++h) {
      of_row[h] += static_cast<double>(d.queries[h]);
      all += static_cast<double>(d.queries[h]);
      if (q_len && of_row[h] > static_cast<double>(*q_len)) {
        return "sink_telemetry.queries of a batch row must come to at most "
               "request.q_len";
      }
    }
  }
  // Each counted query has at least one legal pair.
  if (all > static_cast<double>(r.pairs_legal)) {
    return "sink_telemetry.queries must come to at most pairs.legal";
  }
  if (all == 0 && r.pairs_legal > 0) {
    return "sink_telemetry.queries must count some where there are legal pairs";
  }
  return {};
}

Broken documents_broken(const Receipt& r,
                        const std::vector<Document>& documents) {
  const auto heads = static_cast<size_t>(r.shape.attention.heads);
  const auto batch = number_of(r.request.batch);
  std::set<std::pair<int64_t, std::optional<int64_t>>> met;
  int64_t row = 0;
  for (const Document& d : documents) {
    if (d.queries.size() != heads || d.mass.size() != heads ||
        d.entropy.size() != heads) {
      return "sink_telemetry must have a number for every head";
    }
    if (d.batch_row < row || (batch && d.batch_row >= *batch)) {
      return "sink_telemetry.batch_row must be one of the batch's, in order";
    }
    row = d.batch_row;
    if (!met.emplace(d.batch_row, d.document).second) {
      return "sink_telemetry must name a document of a batch row once";
    }
    if (auto broken = numbers_broken(r, d)) return broken;
  }
  return counts_broken(r, documents);
}

}  // namespace

Broken sink_contradiction(const Receipt& r, const std::string& executed) {
  if (!r.sink_telemetry) return {};
  const auto lane = parse_lane(executed);
  if (!r.ran() || !lane || !facts_of(*lane).sink_telemetry) {
    return "sink_telemetry must be of a run on a lane that has it";
  }
  const Receipt::SinkTelemetry& sinks = *r.sink_telemetry;
  if (sinks.first_keys < 1 || sinks.first_keys > kMaxTokens) {
    return "sink_telemetry.first_keys must be from 1 to 1073741824";
  }
  return documents_broken(r, sinks.documents);
}

}  // namespace tessera::receipt
