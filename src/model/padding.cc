// model/padding.cc: pads or cuts each dimension whose size differs.
#include "model/padding.h"

namespace tessera::model {

Value grown(Writer& w, Value a, const Dims& dims, double fill) {
  for (size_t d = 0; d < dims.size(); ++d) {
    Dims more = a.dims();
    more[d] = dims[d] - more[d];
    if (more[d] == 0) continue;
    const Values parts = {a, w.real(fill, more, a.type.element)};
    a = w.join(parts, static_cast<int64_t>(d));
  }
  return a;
}

Value shrunk(Writer& w, Value a, const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (a.dims()[d] == dims[d]) continue;
    a = w.part(a, static_cast<int64_t>(d), 0, dims[d]);
  }
  return a;
}

}  // namespace tessera::model
