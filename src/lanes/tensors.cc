// lanes/tensors.cc: the arrays of an attention call, checked before any work.
#include "lanes/tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/tensor_rows.h"

namespace tessera::lanes {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;

// a * b + c of numbers >= 0; nullopt where the result reaches 2^62.
std::optional<int64_t> multiply_add(int64_t a, int64_t b, int64_t c) {
  int64_t sum = 0;
  if (__builtin_mul_overflow(a, b, &sum) ||
      __builtin_add_overflow(sum, c, &sum) || sum >= kMaxBytes) {
    return {};
  }
  return sum;
}

struct Dimension {
  int64_t count = 1;
  int64_t stride = 0;  // bytes
};

// The bytes that one array occupies: rows of `row` bytes, one for each index of
// `dimensions`. Dimensions of size 1 are left out.
struct Region {
  std::string_view name;
  bool output = false;
  uintptr_t address = 0;
  int64_t row = 0;
  std::vector<Dimension> dimensions;
  int64_t extent = 0;  // bytes from the first to the end of the last
};

// The span of a row with all dimensions whose stride is no multiple of period.
int64_t span_within(int64_t period, const Region& r) {
  int64_t span = r.row;
  for (const Dimension& d : r.dimensions) {
    if (d.stride % period != 0) span += (d.count - 1) * d.stride;
  }
  return span;
}

// Whether the addresses of `a` and `b`, each taken modulo `period`, lie in two
// disjoint arcs.
bool apart_modulo(int64_t period, const Region& a, const Region& b) {
  if (period == 0) return false;
  const auto p = static_cast<uintptr_t>(period);
  const uintptr_t distance =
      a.address <= b.address
          ? (b.address - a.address) % p
          : (p - (a.address - b.address) % p) % p;  // from a up to b
  const auto d = static_cast<int64_t>(distance);
  return d >= span_within(period, a) && d + span_within(period, b) <= period;
}

bool apart(const Region& a, const Region& b) {
  const auto a_extent = static_cast<uintptr_t>(a.extent);
  const auto b_extent = static_cast<uintptr_t>(b.extent);
  if (a_extent == 0 || b_extent == 0) return true;
  if (a.address + a_extent <= b.address || b.address + b_extent <= a.address) {
    return true;
  }
  for (const Region* r : {&a, &b}) {
    for (const Dimension& d : r->dimensions) {
      if (apart_modulo(d.stride, a, b)) return true;
    }
  }
  return false;
}

// All checks of one call. The first error is kept.
class Check {
 public:
  Check(std::string_view where, const PlanSizes& plan,
        const AttentionShape& shape)
      : where_(where), plan_(plan), shape_(shape) {}

  void shape() {
    if (auto e = check_shape(); !e) error_ = e.error();
  }

  void tensor(std::string_view name, const TensorView& t, bool output) {
    if (error_) return;
    const std::array<int64_t, 4> sizes = {t.batch, t.heads, t.tokens, t.dim};
    if (const Want w = want(name); sizes != w.sizes) {
      return fail("{} must be {} = [{}], found [{}]", name, w.dims,
                  fmt::join(w.sizes, ", "), fmt::join(sizes, ", "));
    }
    if (t.dtype != Dtype::f32 && t.dtype != Dtype::bf16 &&
        t.dtype != Dtype::f16) {
      return fail("tensors must be F32, BF16 or F16, found {} for {}",
                  to_string(t.dtype), name);
    }
    if (!dtype_) dtype_ = t.dtype;
    if (t.dtype != *dtype_) {
      return fail(
          "tensors must share the dtype of q, found {} for {} and {} "
          "for q",
          to_string(t.dtype), name, to_string(*dtype_));
    }
    const int64_t width = byte_width(t.dtype);
    data(name, t.data, width);
    strides(name, t, width, output);
  }

  void input(std::string_view name, const TensorView& t) {
    tensor(name, t, false);
  }
  void output(std::string_view name, const MutableTensorView& t) {
    tensor(name, as_input(t), true);
  }
  void input(std::string_view name, std::span<const float> s, bool may_lack) {
    floats(name, s, may_lack, false);
  }
  void output(std::string_view name, std::span<const float> s, bool may_lack) {
    floats(name, s, may_lack, true);
  }
  // `dsink`: the gradient of the sink logits, an output; null in forward.
  void sinks(const std::optional<std::span<const float>>& logits,
             const std::span<float>* dsink) {
    const int64_t heads = logits ? shape_.heads : 0;
    if (logits) floats("sink_logits", *logits, heads, "[heads]", false);
    if (dsink == nullptr) return;
    floats("dsink_logits", *dsink, heads, logits ? "[heads]" : "no sink logits",
           true);
  }

  // Compares every output with all others.
  Result<void> done() {
    for (size_t i = 0; i < regions_.size() && !error_; ++i) {
      for (size_t j = 0; j < i && !error_; ++j) {
        const Region& a = regions_[i];
        const Region& b = regions_[j];
        if (!(a.output || b.output) || apart(a, b)) continue;
        const Region& out = a.output ? a : b;
        fail("an output must share no byte with another array, found {} for {}",
             (a.output ? b : a).name, out.name);
      }
    }
    if (error_) return *error_;
    return {};
  }

 private:
  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    if (!error_) error_ = invalid(where_, text, std::forward<Args>(args)...);
  }

  Result<void> check_shape() const {
    const std::pair<std::string_view, int64_t> sizes[] = {
        {"plan heads", plan_.heads},
        {"batch", plan_.batch},
        {"q_len", plan_.q_len},
        {"kv_len", plan_.kv_len},
    };
    for (const auto& [name, n] : sizes) {
      if (n < 1) {
        return invalid(where_, "sizes must be 1 or more, found {} for {}", n,
                       name);
      }
    }
    for (const auto& [name, n] : {std::pair{"head_dim", shape_.head_dim},
                                  std::pair{"v_head_dim", shape_.v_head_dim}}) {
      if (n < kDimStep || n > kMaxDim || n % kDimStep != 0) {
        return invalid(where_,
                       "head dims must be a multiple of {} up to {}, found {} "
                       "for {}",
                       kDimStep, kMaxDim, n, name);
      }
    }
    if (auto e = check_heads(where_, shape_, plan_.heads); !e) return e;
    return check_factors(where_, shape_);
  }

  // The sizes that a tensor must have, by its name; others are shaped like out.
  struct Want {
    std::string_view dims;
    std::array<int64_t, 4> sizes;
  };
  Want want(std::string_view name) const {
    if (name == "q" || name == "dq") {
      return {"[batch, heads, q_len, head_dim]",
              {plan_.batch, shape_.heads, plan_.q_len, shape_.head_dim}};
    }
    if (name == "k" || name == "dk") {
      return {"[batch, kv_heads, kv_len, head_dim]",
              {plan_.batch, shape_.kv_heads, plan_.kv_len, shape_.head_dim}};
    }
    if (name == "v" || name == "dv") {
      return {"[batch, kv_heads, kv_len, v_head_dim]",
              {plan_.batch, shape_.kv_heads, plan_.kv_len, shape_.v_head_dim}};
    }
    return {"[batch, heads, q_len, v_head_dim]",
            {plan_.batch, shape_.heads, plan_.q_len, shape_.v_head_dim}};
  }

  void data(std::string_view name, const void* at, int64_t width) {
    if (at == nullptr) {
      return fail("data must be there, found a null pointer for {}", name);
    }
    if (reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(width) != 0) {
      fail("data must be aligned to its {} bytes an element, found {} for {}",
           width, at, name);
    }
  }

  void strides(std::string_view name, const TensorView& t, int64_t width,
               bool output) {
    if (error_) return;
    const struct {
      std::string_view name;
      int64_t count, stride;
    } dimensions[] = {{"batch_stride", t.batch, t.batch_stride},
                      {"head_stride", t.heads, t.head_stride},
                      {"token_stride", t.tokens, t.token_stride}};
    for (const auto& d : dimensions) {
      if (d.stride < 0) {
        return fail("strides must be 0 or more, found {} for {} of {}",
                    d.stride, d.name, name);
      }
    }
    if (t.tokens > 1 && t.token_stride < t.dim) {
      return fail("token_stride must be at least the dim {}, found {} for {}",
                  t.dim, t.token_stride, name);
    }
    Region r{name,          output, reinterpret_cast<uintptr_t>(t.data),
             t.dim * width, {},     0};
    std::optional<int64_t> extent = r.row;
    for (const auto& d : dimensions) {
      if (d.count == 1) continue;
      const auto bytes = multiply_add(d.stride, width, 0);
      extent = bytes && extent ? multiply_add(d.count - 1, *bytes, *extent)
                               : std::nullopt;
      if (!extent) {
        return fail(
            "a tensor must end before byte 2^62, found {} {} of {} "
            "elements for {}",
            d.count, d.name, d.stride, name);
      }
      r.dimensions.push_back({d.count, *bytes});
    }
    r.extent = *extent;
    if (output) distinct(name, t, r);
    add(std::move(r));
  }

  void distinct(std::string_view name, const TensorView& t, const Region& r) {
    std::vector<Dimension> rising = r.dimensions;
    std::ranges::sort(rising, {}, &Dimension::stride);
    int64_t span = r.row;
    for (const Dimension& d : rising) {
      if (d.stride < span) {
        return fail(
            "elements of an output must not coincide, found batch, head and "
            "token strides of {}, {} and {} for {} [{}, {}, {}, {}]",
            t.batch_stride, t.head_stride, t.token_stride, name, t.batch,
            t.heads, t.tokens, t.dim);
      }
      span += (d.count - 1) * d.stride;
    }
  }

  // One float for each query of each head.
  void floats(std::string_view name, std::span<const float> s, bool may_lack,
              bool output) {
    if (error_ || (may_lack && s.empty())) return;
    // Cannot overflow: out or dq, already checked, has as many rows.
    const int64_t rows = plan_.batch * shape_.heads * plan_.q_len;
    floats(name, s, rows, "[batch, heads, q_len]", output);
  }

  void floats(std::string_view name, std::span<const float> s, int64_t want,
              std::string_view dims, bool output) {
    if (error_) return;
    if (s.size() != static_cast<size_t>(want)) {
      return fail("{} must hold {} values, found {} for {}", name, want,
                  s.size(), dims);
    }
    if (s.empty()) return;
    data(name, s.data(), sizeof(float));
    const int64_t bytes = want * static_cast<int64_t>(sizeof(float));
    add({name,
         output,
         reinterpret_cast<uintptr_t>(s.data()),
         bytes,
         {},
         bytes});
  }

  void add(Region r) {
    uintptr_t end = 0;
    if (__builtin_add_overflow(r.address, static_cast<uintptr_t>(r.extent),
                               &end)) {
      return fail(
          "a tensor must end within the address space, found {} bytes "
          "for {}",
          r.extent, r.name);
    }
    regions_.push_back(std::move(r));
  }

  const std::string_view where_;
  const PlanSizes plan_;
  const AttentionShape& shape_;
  std::optional<Dtype> dtype_;
  std::vector<Region> regions_;
  std::optional<Error> error_;
};

}  // namespace

Result<void> check_factors(std::string_view where,
                           const AttentionShape& shape) {
  if (shape.scale && !std::isfinite(*shape.scale)) {
    return invalid(where, "numbers must be finite, found {} for scale",
                   *shape.scale);
  }
  if (!std::isfinite(shape.softcap) || shape.softcap < 0) {
    return invalid(where,
                   "numbers must be finite and 0 or more, found {} for softcap",
                   shape.softcap);
  }
  // A larger factor could make scores 0 or infinite in single precision.
  if (shape.scale && std::abs(*shape.scale) > kMaxFactor) {
    return invalid(where, "a scale must be at most {} in size, found {}",
                   kMaxFactor, *shape.scale);
  }
  if (shape.softcap == 0) return {};
  if (shape.softcap < kMinCap || shape.softcap > kMaxFactor) {
    return invalid(where, "a softcap must be 0 or {} to {}, found {}", kMinCap,
                   kMaxFactor, shape.softcap);
  }
  const double scale = shape.scale.value_or(1);
  if (std::abs(scale) / shape.softcap > kMaxFactor) {
    return invalid(where,
                   "scale / softcap must be at most {} in size, found {} "
                   "for scale and {} for softcap",
                   kMaxFactor, scale, shape.softcap);
  }
  return {};
}

Result<void> check_heads(std::string_view where, const AttentionShape& s,
                         int64_t plan_heads) {
  for (const auto& [name, n] :
       {std::pair{"heads", s.heads}, std::pair{"kv_heads", s.kv_heads}}) {
    if (n < 1 || n > kMaxHeads) {
      return invalid(where, "{} must be from 1 to {}, found {}", name,
                     kMaxHeads, n);
    }
  }
  if (s.heads % s.kv_heads != 0) {
    return invalid(where,
                   "kv_heads must divide heads, found {} kv_heads for {} heads",
                   s.kv_heads, s.heads);
  }
  if (s.heads % plan_heads != 0) {
    return invalid(where,
                   "plan heads must divide heads, found {} plan heads for {} "
                   "heads",
                   plan_heads, s.heads);
  }
  return {};
}

Result<void> check_call(std::string_view where, const PlanSizes& plan,
                        const AttentionCall& call) {
  if (!is_float_dtype(call.dtype)) {
    return invalid(where,
                   "arrays must be F32, BF16 or F16, found {} for a call",
                   to_string(call.dtype));
  }
  Check check(where, plan, call.shape);
  check.shape();
  return check.done();
}

Result<void> check_array(std::string_view where, const PlanSizes& plan,
                         const AttentionCall& call, std::string_view name,
                         const TensorView& array, bool output) {
  if (array.dtype != call.dtype) {
    return invalid(where,
                   "arrays must be as the call was prepared, {}, found "
                   "{} for {}",
                   to_string(call.dtype), to_string(array.dtype), name);
  }
  Check check(where, plan, call.shape);
  check.tensor(name, array, output);
  return check.done();
}

Result<void> check_forward(std::string_view where, const PlanSizes& plan,
                           const AttentionShape& shape,
                           const ForwardTensors& tensors) {
  Check check(where, plan, shape);
  check.shape();
  check.input("q", tensors.q);
  check.input("k", tensors.k);
  check.input("v", tensors.v);
  check.output("out", tensors.out);
  check.sinks(tensors.sink_logits, nullptr);
  check.output("lse", tensors.lse, true);
  return check.done();
}

Result<void> check_backward(std::string_view where, const PlanSizes& plan,
                            const AttentionShape& shape,
                            const ForwardTensors& tensors,
                            const Gradients& gradients) {
  Check check(where, plan, shape);
  check.shape();
  check.input("q", tensors.q);
  check.input("k", tensors.k);
  check.input("v", tensors.v);
  check.input("out", as_input(tensors.out));
  check.input("dout", gradients.dout);
  check.output("dq", gradients.dq);
  check.output("dk", gradients.dk);
  check.output("dv", gradients.dv);
  check.input("lse", tensors.lse, false);
  check.input("dlse", gradients.dlse, true);
  check.sinks(tensors.sink_logits, &gradients.dsink_logits);
  return check.done();
}

PassArrays arrays_of(const AttentionCall& call) {
  return {call.dtype, call.sink_logits, call.dlse};
}

Result<void> check_pass(std::string_view where, const PassArrays& due,
                        const PassArrays& found) {
  if (found.dtype == due.dtype && found.sink_logits == due.sink_logits &&
      found.dlse == due.dlse) {
    return {};
  }
  const auto words = [](const PassArrays& a) {
    return fmt::format("{}{}{}", to_string(a.dtype),
                       a.sink_logits ? ", sink logits" : "",
                       a.dlse ? ", dlse" : "");
  };
  return invalid(where,
                 "arrays must be those of the call that was prepared, found {} "
                 "for {}",
                 words(found), words(due));
}

}  // namespace tessera::lanes
