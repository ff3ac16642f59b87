// module.cc: the extension `tessera._core`: thin bindings of the library.
#include <nanobind/nanobind.h>

#include "batch.h"
#include "block_mask.h"
#include "choice.h"
#include "contract.h"
#include "data.h"
#include "failure.h"
#include "fit.h"
#include "frameworks.h"
#include "join_sinks.h"
#include "mask.h"
#include "route.h"
#include "session.h"
#include "shard.h"
#include "sink_telemetry.h"
#include "tessera/version.h"
#include "train.h"
#include "tree.h"
#include "worklist.h"

// Python calls PyInit__core below, which first checks the interpreter.
NB_MODULE(core_of_the_main_interpreter, m) {
  using namespace tessera::python;
  // Compilers of frameworks keep objects until the process ends, which nanobind
  // would report as leaks.
  nanobind::set_leak_warnings(false);
  m.doc() = "Block-sparse attention: plans, sessions and kernels.";
  m.attr("__version__") = tessera::kVersion;
  bind_failure(m);
  bind_mask(m);
  bind_worklist(m);
  bind_contract(m);
  bind_batch(m);
  bind_block_mask(m);
  bind_tree(m);
  bind_sink_telemetry(m);
  bind_choice(m);
  bind_session(m);
  bind_join_sinks(m);
  bind_route(m);
  bind_shard(m);
  bind_data(m);
  bind_train(m);
  bind_compile(m);
  bind_fit(m);
  bind_frameworks(m);
  bind_torch(m);
  bind_mask_parts(m);
}

// nanobind's types belong to the last interpreter that made them. After an
// import in a second interpreter, both would refuse their own objects.
// NOLINTNEXTLINE(readability-identifier-naming): by the name of the module.
extern "C" NB_EXPORT PyObject* PyInit__core(void) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError,
                    "[python] tessera must be imported by the main "
                    "interpreter, found a subinterpreter");
    return nullptr;
  }
  return PyInit_core_of_the_main_interpreter();
}
