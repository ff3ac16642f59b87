// receipt/sink_telemetry.cc: numbers by document, digests of those by query.
#include "receipt/sink_telemetry.h"

#include <cmath>
#include <utility>

#include "receipt/digests.h"

namespace tessera::receipt {
namespace {

std::vector<std::optional<double>> finite(const std::vector<double>& values) {
  std::vector<std::optional<double>> out;
  out.reserve(values.size());
  for (const double x : values) {
    out.push_back(std::isfinite(x) ? std::optional(x) : std::nullopt);
  }
  return out;
}

}  // namespace

Receipt::SinkTelemetry sink_telemetry_of(const SinkTelemetry& told) {
  Receipt::SinkTelemetry out;
  out.first_keys = told.first_keys;
  out.mass_digest = array_digest(told.mass);
  out.entropy_digest = array_digest(told.entropy);
  out.documents.reserve(told.documents.size());
  for (const SinkTelemetry::Document& d : told.documents) {
    Receipt::SinkTelemetry::Document document;
    document.batch_row = d.batch_row;
    document.document = d.document;
    document.queries = d.queries;
    document.mass = finite(d.mass);
    document.entropy = finite(d.entropy);
    out.documents.push_back(std::move(document));
  }
  return out;
}

}  // namespace tessera::receipt
