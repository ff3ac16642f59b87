// batch.h: the Python class Batch.
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

class Ready;  // the batch for PyTorch's operators (torch_calls.cc)

struct PyBatch {
  explicit PyBatch(OwnedBatch of) : batch(std::move(of)) {}

  OwnedBatch batch;
  // Each is made at its first use, under the GIL.
  std::optional<Columns> forward, transposed;
  std::shared_ptr<Ready> ready;
};

// A batch that is returned to Python. If `tessera.torch` is imported, its hook
// sees each new batch first, so that torch.compile finds a tensor on every one.
using NewBatch = nb::typed<nb::object, PyBatch>;
NewBatch new_batch(OwnedBatch batch);

// An argument that should be a batch; batch_of() refuses other types.
using GivenBatch = nb::typed<nb::object, PyBatch>;
const Batch& batch_of(nb::handle object);

// The masks of a request as text, head by head.
std::string mask_text(const Request& request);

void bind_batch(nb::module_& m);

}  // namespace tessera::python
