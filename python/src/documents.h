// documents.h: documents from Python: an Arrow stream, files of JSON lines, or
// an iterable.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>

#include "tessera/documents.h"

namespace tessera::python {

namespace nb = nanobind;

// State shared with the loader's thread, which reads the iterable.
struct Raised {
  nb::object exception;             // of the iterable; under the GIL
  std::atomic<bool> closed{false};  // the loader is closed: read no more
};

// `object` has __arrow_c_stream__, or is a path, a list of paths, or an
// iterable of documents, each a token array or a dict of fields.
std::unique_ptr<DocumentSource> documents_of(
    nb::handle object, const std::shared_ptr<Raised>& raised);

}  // namespace tessera::python
