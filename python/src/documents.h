// documents.h: documents from whatever Python has: an Arrow stream, files of
// JSON lines, an iterable.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <string>

#include "tessera/documents.h"

namespace tessera::python {

namespace nb = nanobind;

// Of an iterable that another thread reads.
struct Raised {
  nb::object exception;             // under the GIL
  std::atomic<bool> closed{false};  // nobody wants more of it
};

// What os.fsdecode takes, else a TypeError.
std::string path_of(nb::handle object);

// Of an object with __arrow_c_stream__; a path or a list of paths; or an
// iterable of documents, each a token array or a dict of fields.
std::unique_ptr<DocumentSource> documents_of(
    nb::handle object, const std::shared_ptr<Raised>& raised);

}  // namespace tessera::python
