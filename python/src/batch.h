// batch.h: one batch as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/batch.h"

namespace tessera::python {

namespace nb = nanobind;

// Of a worklist's entries, column and class apart.
struct Columns {
  std::vector<int32_t> column;
  std::vector<uint8_t> tile_class;
};

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

// The lists of one direction; `owner` is the Python object that has them.
struct PyWorklist {
  nb::object owner;
  const Worklist* list = nullptr;
  std::optional<Columns>* kept = nullptr;
  bool transposed = false;

  const Columns& columns() const;
};

// The masks of a request, of one head after another.
std::string mask_text(const Request& request);

// What `plan` and `route` take beside mask and lengths.
struct FactArguments {
  nb::object doc_ids, q_doc_ids, cu_seqlens, position_ids, valid_token_counts,
      prefix, q_offset, picks, tree_enter, tree_leave;
  nb::object same = nb::none();
};
OwnedFacts read_facts(const FactArguments& given, int64_t batch, int64_t q_len,
                      int64_t kv_len);

void bind_batch(nb::module_& m);

}  // namespace tessera::python
