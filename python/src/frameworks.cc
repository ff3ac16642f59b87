#include "frameworks.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "lanes/cpu/batch_arrays.h"
#include "lanes/cpu/ffi_handlers.h"
#include "tessera/batch.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

template <class T>
nb::object own_row(std::vector<T> values) {
  const size_t size = values.size();
  return own_array(std::move(values), {size});
}

// The entries of a list, padded with zeros to the capacity of the contract.
nb::object padded_entries(const Worklist& list, int64_t capacity) {
  const auto size = static_cast<size_t>(capacity);
  return own_row(unlocked_if_long(size, [&] {
    std::vector<uint32_t> out(size, 0);
    for (size_t i = 0; i < list.entries.size() && i < size; ++i) {
      out[i] = list.entries[i].word;
    }
    return out;
  }));
}

nb::object row_starts(const Worklist& list) {
  return own_row(unlocked_if_long(list.row_start.size(), [&] {
    return std::vector<int32_t>(list.row_start.begin(), list.row_start.end());
  }));
}

// A batch as static values and, if `with_arrays`, its arrays in the order of a
// call's arguments.
nb::tuple parts(nb::handle self, bool with_arrays) {
  const Batch& batch = batch_of(self);
  const Plan& plan = batch.plan();
  if (batch.facts().valid_slot_counts) {
    refuse("a batch as arrays must have valid_token_counts, found slot counts");
  }
  const PlanContract contract =
      take(unlocked([&] { return make_contract(batch); }));
  const std::vector<std::string> names = cpu::fact_names(batch.facts());
  const auto told = [&](nb::list arrays) {
    return nb::make_tuple(cpu::static_text(batch.request(), batch.facts()),
                          plan.batch, plan.q_len, plan.kv_len, plan.tile.q,
                          plan.tile.kv, contract.steps, nb::cast(names),
                          nb::tuple(arrays));
  };
  nb::list arrays;
  if (!with_arrays) return told(arrays);
  arrays.append(own_row(std::vector<int32_t>(contract.window_bounds.begin(),
                                             contract.window_bounds.end())));
  arrays.append(row_starts(plan.forward));
  arrays.append(padded_entries(plan.forward, contract.steps));
  arrays.append(row_starts(plan.transposed));
  arrays.append(padded_entries(plan.transposed, contract.steps));
  nb::object facts = self.attr("facts");
  for (const std::string& name : names) {
    arrays.append(facts[nb::str(name.c_str())]);
  }
  return told(arrays);
}

}  // namespace

void bind_frameworks(nb::module_& m) {
  m.def("_parts", &parts, nb::arg("batch"), nb::arg("arrays") = true);
  m.def("_jax_handlers", [] {
    nb::dict out;
    for (const cpu::FfiHandler& h : take(cpu::ffi_handlers())) {
      out[h.target] = nb::capsule(h.handler);
    }
    return out;
  });
}

}  // namespace tessera::python
