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
#include "states.h"

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

nb::dict document_state(nb::handle self) {
  nb::dict out;
  for (const char* const name :
       {"batch_row", "document", "queries", "mass", "entropy"}) {
    out[name] = self.attr(name);
  }
  return out;
}

// Reads an array with `dims` dimensions of dtype T from a state.
template <class T>
NumpyArray<T> read_numbers(const nb::dict& state, const char* key,
                           size_t dims) {
  const auto given = read_state<nb::object>(state, key);
  nb::ndarray<nb::numpy, T, nb::c_contig> array;
  if (!nb::try_cast(given, array, false) || array.ndim() != dims) {
    refuse(std::string("a state must be as it was saved, found another array "
                       "for '") +
           key + "'");
  }
  return nb::borrow<NumpyArray<T>>(given);
}

PyDocument document_of_state(const nb::dict& state) {
  PyDocument out;
  out.batch_row = read_state<int64_t>(state, "batch_row");
  out.document = read_state<std::optional<int32_t>>(state, "document");
  out.queries = read_numbers<int64_t>(state, "queries", 1);
  out.mass = read_numbers<double>(state, "mass", 1);
  out.entropy = read_numbers<double>(state, "entropy", 1);
  if (nb::len(out.mass) != nb::len(out.queries) ||
      nb::len(out.entropy) != nb::len(out.queries)) {
    refuse("numbers of a SinkDocument must be of the same heads, found others");
  }
  return out;
}

nb::dict telemetry_state(nb::handle self) {
  nb::dict out;
  for (const char* const name :
       {"first_keys", "mass", "entropy", "documents"}) {
    out[name] = self.attr(name);
  }
  return out;
}

nb::dict telemetry_values(nb::handle self) {
  nb::dict out = telemetry_state(self);
  nb::list documents;
  for (nb::handle d : nb::iter(out["documents"])) {
    documents.append(document_state(d));
  }
  out["documents"] = documents;
  return out;
}

PyTelemetry telemetry_of_state(const nb::dict& state) {
  PyTelemetry out;
  out.first_keys = read_state<int64_t>(state, "first_keys");
  check_first_keys(out.first_keys);
  out.mass = read_numbers<float>(state, "mass", 3);
  out.entropy = read_numbers<float>(state, "entropy", 3);
  if (!out.mass.attr("shape").equal(out.entropy.attr("shape"))) {
    refuse("mass and entropy must have one shape, found two");
  }
  out.documents = read_state<std::vector<PyDocument>>(state, "documents");
  return out;
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
  nb::class_<PyDocument> document(
      m, "SinkDocument",
      "Sink telemetry of one document, or segment, of a batch row. The\n"
      "arrays have one element for each query head.");
  document
      .def_ro("batch_row", &PyDocument::batch_row,
              "The batch row of the document.")
      .def_ro("document", &PyDocument::document,
              "The id of the document, or the number of the segment. None for\n"
              "the queries that belong to no document.")
      .def_ro("queries", &PyDocument::queries,
              "Number of queries that have a legal key: int64 [heads].")
      .def_ro("mass", &PyDocument::mass,
              "Mean mass that these queries put on the first keys: float64 "
              "[heads].")
      .def_ro("entropy", &PyDocument::entropy,
              "Mean entropy of these queries in nats: float64 [heads].")
      .def("__repr__", &words_of_document);
  bind_json(document, &document_state);
  bind_pickle(document, &document_state, &document_of_state);
  nb::class_<PyTelemetry> telemetry(
      m, "SinkTelemetry",
      "Where attention goes: the mass that each query puts on the first\n"
      "keys, and the entropy of its probabilities in nats, for each\n"
      "query and for each document.");
  telemetry
      .def_ro("first_keys", &PyTelemetry::first_keys,
              "The number of first keys that the mass is summed over.")
      .def_ro(
          "mass", &PyTelemetry::mass,
          "The mass that each query puts on the first keys: float32 [batch,\n"
          "heads, q_len]; 0 for a query without a legal key.")
      .def_ro("entropy", &PyTelemetry::entropy,
              "The entropy of each query's probabilities in nats: float32\n"
              "[batch, heads, q_len]; 0 for a query without a legal key.")
      .def_ro("documents", &PyTelemetry::documents,
              "A SinkDocument for each document of each batch row.")
      .def("__repr__", &words);
  bind_json(telemetry, &telemetry_values);
  bind_pickle(telemetry, &telemetry_state, &telemetry_of_state);
}

}  // namespace tessera::python
