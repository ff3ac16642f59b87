#include "sink_telemetry.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "failure.h"

namespace tessera::python {
namespace {

struct PyDocument {
  int64_t batch_row = 0;
  std::optional<int32_t> document;
  NumpyArray<int64_t> queries;  // [heads]
  NumpyArray<double> mass, entropy;
};

struct PyTelemetry {
  int64_t first_keys = 0;
  NumpyArray<float> mass, entropy;  // [batch, heads, q_len]
  std::vector<PyDocument> documents;
};

std::string words_of_document(const PyDocument& d) {
  return "SinkDocument(batch_row=" + std::to_string(d.batch_row) +
         ", document=" + (d.document ? std::to_string(*d.document) : "None") +
         ", heads=" + std::to_string(nb::len(d.queries)) + ")";
}

std::string words(const PyTelemetry& t) {
  return "SinkTelemetry(first_keys=" + std::to_string(t.first_keys) +
         ", documents=" + std::to_string(t.documents.size()) + ")";
}

}  // namespace

void check_first_keys(int64_t first_keys) {
  if (first_keys >= 1 && first_keys <= kMaxTokens) return;
  refuse("sink_telemetry must be 1 to " + std::to_string(kMaxTokens) +
         " first keys, found " + std::to_string(first_keys));
}

nb::object sink_telemetry_of(SinkTelemetry told, const Batch& batch,
                             const AttentionShape& shape) {
  const auto heads = static_cast<size_t>(shape.heads);
  const Request& request = batch.request();
  const std::vector<size_t> queries = {static_cast<size_t>(request.batch),
                                       heads,
                                       static_cast<size_t>(request.q_len)};
  PyTelemetry out;
  out.first_keys = told.first_keys;
  out.mass = own_array(std::move(told.mass), queries);
  out.entropy = own_array(std::move(told.entropy), queries);
  for (SinkTelemetry::Document& d : told.documents) {
    out.documents.push_back({d.batch_row, d.document,
                             own_array(std::move(d.queries), {heads}),
                             own_array(std::move(d.mass), {heads}),
                             own_array(std::move(d.entropy), {heads})});
  }
  return nb::cast(std::move(out));
}

void bind_sink_telemetry(nb::module_& m) {
  nb::class_<PyDocument>(m, "SinkDocument",
                         "One document, or segment, of a batch row; `document` "
                         "is its number, None for what is of none. Arrays are "
                         "by query head: queries that have a legal key, and "
                         "their means.")
      .def_ro("batch_row", &PyDocument::batch_row)
      .def_ro("document", &PyDocument::document)
      .def_ro("queries", &PyDocument::queries)
      .def_ro("mass", &PyDocument::mass)
      .def_ro("entropy", &PyDocument::entropy)
      .def("__repr__", &words_of_document);
  nb::class_<PyTelemetry>(m, "SinkTelemetry",
                          "The mass that each query puts on the first keys, "
                          "and the entropy of its probabilities in nats: "
                          "[batch, heads, q_len], and by document.")
      .def_ro("first_keys", &PyTelemetry::first_keys)
      .def_ro("mass", &PyTelemetry::mass)
      .def_ro("entropy", &PyTelemetry::entropy)
      .def_ro("documents", &PyTelemetry::documents)
      .def("__repr__", &words);
}

}  // namespace tessera::python
