// documents.h: documents from whatever Python has: an Arrow stream, files of
// JSON lines, an iterable.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "tessera/documents.h"

namespace tessera::python {

namespace nb = nanobind;

// What an iterable raised while another thread read it; under the GIL.
struct Raised {
  nb::object exception;
};

// Of an object with __arrow_c_stream__; a path or a list of paths; or an
// iterable of documents, each a token array or a dict of fields.
std::unique_ptr<DocumentSource> documents_of(
    nb::handle object, const std::shared_ptr<Raised>& raised);

}  // namespace tessera::python
