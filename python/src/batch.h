// batch.h: one batch as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tessera/batch.h"
#include "worklist.h"

namespace tessera::python {

namespace nb = nanobind;

class Ready;  // for PyTorch's operators (torch_calls.cc)

struct PyBatch {
  explicit PyBatch(OwnedBatch of) : batch(std::move(of)) {}

  OwnedBatch batch;
  // Made when they are first looked at; under the GIL.
  std::optional<Columns> forward, transposed;
  std::shared_ptr<Ready> ready;
};

// As Python gets it. While a framework watches (`tessera.torch`), it looks at
// each one first, so that a batch is known to it before a compiler meets it.
using NewBatch = nb::typed<nb::object, PyBatch>;
NewBatch new_batch(OwnedBatch batch);

// As a call is given it: whether it is one, batch_of says.
using GivenBatch = nb::typed<nb::object, PyBatch>;
const Batch& batch_of(nb::handle object);

// The masks of a request, of one head after another.
std::string mask_text(const Request& request);

void bind_batch(nb::module_& m);

}  // namespace tessera::python
