// run/check_arrays.cc: checks sizes, types and strides, which every lane needs,
// the reference too. Lanes with kernels check more.
#include "run/check_arrays.h"

#include <span>
#include <vector>

#include "base/fail.h"
#include "base/tensor_rows.h"

namespace tessera::run {
namespace {

// One array of a call, with the sizes that it must have.
struct Due {
  std::string_view name;
  TensorView found;
  int64_t heads, tokens, dim;
};
struct DueFloats {
  std::string_view name;
  size_t found, due;
};

Result<void> check(const Request& r, Dtype dtype, std::span<const Due> arrays,
                   std::span<const DueFloats> floats) {
  for (const Due& a : arrays) {
    const TensorView& t = a.found;
    if (!t.data || t.batch != r.batch || t.heads != a.heads ||
        t.tokens != a.tokens || t.dim != a.dim) {
      return invalid("run",
                     "{} must have shape [{}, {}, {}, {}], found [{}, {}, {}, "
                     "{}]{}",
                     a.name, r.batch, a.heads, a.tokens, a.dim, t.batch,
                     t.heads, t.tokens, t.dim, t.data ? "" : " without data");
    }
    if (!is_float_dtype(t.dtype) || t.dtype != dtype) {
      return invalid("run",
                     "arrays must be of one type, F32, BF16 or F16, "
                     "found {} for {}",
                     to_string(t.dtype), a.name);
    }
    if (t.batch_stride < 0 || t.head_stride < 0 || t.token_stride < 0) {
      return invalid("run", "strides must be 0 or more, found one below for {}",
                     a.name);
    }
  }
  for (const DueFloats& a : floats) {
    if (a.found != a.due) {
      return invalid("run", "{} must have {} values, found {}", a.name, a.due,
                     a.found);
    }
  }
  return {};
}

size_t rows_of(const Request& r, const AttentionCall& call) {
  return static_cast<size_t>(r.batch * call.shape.heads * r.q_len);
}

}  // namespace

Result<void> check_dlse(std::string_view where, const AttentionCall& call) {
  if (!call.dlse || call.backward) return {};
  return invalid(where, "dlse goes with backward, found it alone");
}

Result<void> check_forward_arrays(const Request& r, const AttentionCall& call,
                                  const ForwardTensors& f) {
  const AttentionShape& s = call.shape;
  const std::vector<Due> arrays = {
      {"q", f.q, s.heads, r.q_len, s.head_dim},
      {"k", f.k, s.kv_heads, r.kv_len, s.head_dim},
      {"v", f.v, s.kv_heads, r.kv_len, s.v_head_dim},
      {"out", as_input(f.out), s.heads, r.q_len, s.v_head_dim}};
  std::vector<DueFloats> floats;
  if (!f.lse.empty() || call.backward) {
    floats.push_back({"lse", f.lse.size(), rows_of(r, call)});
  }
  if (f.sink_logits.has_value() != call.sink_logits) {
    return invalid("run",
                   "sink logits must be as the call was prepared, found {} for "
                   "{}",
                   f.sink_logits ? "some" : "none",
                   call.sink_logits ? "some" : "none");
  }
  if (f.sink_logits) {
    floats.push_back(
        {"sink_logits", f.sink_logits->size(), static_cast<size_t>(s.heads)});
  }
  return check(r, call.dtype, arrays, floats);
}

Result<void> check_backward_arrays(const Request& r, const AttentionCall& call,
                                   const ForwardTensors& f,
                                   const Gradients& g) {
  const AttentionShape& s = call.shape;
  const std::vector<Due> arrays = {
      {"dout", g.dout, s.heads, r.q_len, s.v_head_dim},
      {"dq", as_input(g.dq), s.heads, r.q_len, s.head_dim},
      {"dk", as_input(g.dk), s.kv_heads, r.kv_len, s.head_dim},
      {"dv", as_input(g.dv), s.kv_heads, r.kv_len, s.v_head_dim}};
  std::vector<DueFloats> floats;
  if (g.dlse.empty() == call.dlse) {
    return invalid(
        "run", "dlse must be as the call was prepared, found {} for {}",
        g.dlse.empty() ? "none" : "some", call.dlse ? "some" : "none");
  }
  if (!g.dlse.empty()) {
    floats.push_back({"dlse", g.dlse.size(), rows_of(r, call)});
  }
  if (f.sink_logits) {
    floats.push_back(
        {"dsink_logits", g.dsink_logits.size(), static_cast<size_t>(s.heads)});
  }
  return check(r, call.dtype, arrays, floats);
}

}  // namespace tessera::run
