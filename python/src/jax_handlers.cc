// jax_handlers.cc: our CPU kernels as typed handlers of XLA's foreign function
// interface. XLA calls them on a thread of its own, without the GIL; they use
// our pool beside it, and where another call has that, this thread alone.
#include "frameworks.h"

#if defined(TESSERA_XLA_FFI)

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "lanes/cpu/cpu.h"
#include "plain_call.h"
#include "xla/ffi/api/ffi.h"

namespace tessera::python {
namespace {

namespace ffi = xla::ffi;
namespace nb = nanobind;

// The static part of a call.
struct Terms {
  std::string_view batch;  // of static_text
  bool has_scale = false;
  double scale = 0;
  double softcap = 0;
  bool bshd = false;
  bool sinks = false;
};

std::optional<Dtype> dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return Dtype::f32;
    case ffi::DataType::BF16:
      return Dtype::bf16;
    case ffi::DataType::F16:
      return Dtype::f16;
    case ffi::DataType::F64:
      return Dtype::f64;
    default:
      return {};
  }
}

Result<MutableTensorView> tensor(const char* name, const ffi::AnyBuffer& buffer,
                                 bool bshd) {
  const auto dtype = dtype_of(buffer.element_type());
  const auto d = buffer.dimensions();
  if (!dtype || d.size() != 4) {
    return invalid("jax",
                   "{} must be a floating array of 4 dimensions, found another "
                   "type or {} dimensions",
                   name, d.size());
  }
  void* const data = buffer.untyped_data();
  return bshd ? MutableTensorView::bshd(data, *dtype, d[0], d[2], d[1], d[3])
              : MutableTensorView::bhsd(data, *dtype, d[0], d[1], d[2], d[3]);
}

template <class T>
Result<std::span<T>> numbers(const char* name, const ffi::AnyBuffer& buffer,
                             ffi::DataType type) {
  if (buffer.element_type() != type) {
    return invalid("jax", "{} must be of another type, found type {}", name,
                   static_cast<int>(buffer.element_type()));
  }
  return std::span<T>(static_cast<T*>(buffer.untyped_data()),
                      buffer.element_count());
}

// Arguments in their order; the first thing that is wrong is kept.
class Reader {
 public:
  Reader(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
         const Terms& terms)
      : args_(args), rets_(rets), terms_(terms) {}

  const std::optional<Error>& error() const { return error_; }
  size_t left() const { return at_ < args_.size() ? args_.size() - at_ : 0; }

  MutableTensorView next_tensor(const char* name) {
    return keep(tensor(name, next(name), terms_.bshd));
  }
  std::span<float> next_floats(const char* name) {
    return keep(numbers<float>(name, next(name), ffi::DataType::F32));
  }
  std::span<const int32_t> next_ints(const char* name) {
    return keep(numbers<int32_t>(name, next(name), ffi::DataType::S32));
  }
  std::span<const uint32_t> next_words(const char* name) {
    return keep(numbers<uint32_t>(name, next(name), ffi::DataType::U32));
  }
  PlainArray next_array(const char* name) {
    PlainArray out;
    const ffi::AnyBuffer buffer = next(name);
    if (error_) return out;
    const auto d = buffer.dimensions();
    out.shape.assign(d.begin(), d.end());
    out.values = keep(numbers<int32_t>(name, buffer, ffi::DataType::S32));
    return out;
  }
  MutableTensorView result_tensor(const char* name) {
    return keep(tensor(name, next_result(name), terms_.bshd));
  }
  std::span<float> result_floats(const char* name) {
    return keep(numbers<float>(name, next_result(name), ffi::DataType::F32));
  }

 private:
  // Stands for one that is not there: it is not looked at after the error.
  static ffi::AnyBuffer none() {
    static const XLA_FFI_Buffer nothing{};
    return ffi::AnyBuffer(&nothing);
  }
  ffi::AnyBuffer next(const char* name) {
    auto buffer = args_.get<ffi::AnyBuffer>(at_++);
    if (buffer.has_value()) return *buffer;
    lacks(name);
    return none();
  }
  ffi::AnyBuffer next_result(const char* name) {
    auto buffer = rets_.get<ffi::AnyBuffer>(result_++);
    if (buffer.has_value()) return **buffer;
    lacks(name);
    return none();
  }
  void lacks(const char* name) {
    if (!error_) {
      error_ = invalid("jax", "a call must have {}, found none", name);
    }
  }
  template <class T>
  T keep(Result<T> found) {
    if (found) return std::move(*found);
    if (!error_) error_ = found.error();
    return {};
  }

  const ffi::RemainingArgs& args_;
  const ffi::RemainingRets& rets_;
  const Terms& terms_;
  size_t at_ = 0, result_ = 0;
  std::optional<Error> error_;
};

// The arrays of a batch, last among the arguments.
Result<std::shared_ptr<const cpu::CpuWork>> read_work(Reader& read,
                                                      const Terms& terms,
                                                      const TensorView& q,
                                                      const TensorView& k) {
  PlainBatch plain;
  plain.text = terms.batch;
  plain.batch = q.batch;
  plain.q_len = q.tokens;
  plain.kv_len = k.tokens;
  plain.window_bounds = read.next_ints("window_bounds");
  plain.forward.row_start = read.next_ints("forward row_start");
  plain.forward.entries = read.next_words("forward entries");
  plain.transposed.row_start = read.next_ints("transposed row_start");
  plain.transposed.entries = read.next_words("transposed entries");
  while (read.left() > 0) plain.facts.push_back(read.next_array("a fact"));
  if (read.error()) return *read.error();
  return ready_work(plain);
}

AttentionShape shape_of(const Terms& terms, const TensorView& q,
                        const TensorView& k, const TensorView& v) {
  AttentionShape shape;
  shape.heads = q.heads;
  shape.kv_heads = k.heads;
  shape.head_dim = q.dim;
  shape.v_head_dim = v.dim;
  if (terms.has_scale) shape.scale = terms.scale;
  shape.softcap = terms.softcap;
  return shape;
}

Result<void> forward(const Terms& terms, const ffi::RemainingArgs& args,
                     const ffi::RemainingRets& rets) {
  Reader read(args, rets, terms);
  ForwardTensors t;
  t.q = as_input(read.next_tensor("q"));
  t.k = as_input(read.next_tensor("k"));
  t.v = as_input(read.next_tensor("v"));
  if (terms.sinks) t.sink_logits = read.next_floats("sink_logits");
  t.out = read.result_tensor("out");
  t.lse = read.result_floats("lse");
  auto work = read_work(read, terms, t.q, t.k);
  if (!work) return work.error();
  auto ran = cpu::cpu_forward(**work, shape_of(terms, t.q, t.k, t.v), t);
  if (!ran) return ran.error();
  return {};
}

Result<void> backward(const Terms& terms, const ffi::RemainingArgs& args,
                      const ffi::RemainingRets& rets) {
  Reader read(args, rets, terms);
  lanes::BackwardTensors t;
  t.q = as_input(read.next_tensor("q"));
  t.k = as_input(read.next_tensor("k"));
  t.v = as_input(read.next_tensor("v"));
  if (terms.sinks) t.sink_logits = read.next_floats("sink_logits");
  t.out = as_input(read.next_tensor("out"));
  t.lse = read.next_floats("lse");
  t.dout = as_input(read.next_tensor("dout"));
  t.dlse = read.next_floats("dlse");
  t.dq = read.result_tensor("dq");
  t.dk = read.result_tensor("dk");
  t.dv = read.result_tensor("dv");
  if (terms.sinks) t.dsink_logits = read.result_floats("dsink_logits");
  auto work = read_work(read, terms, t.q, t.k);
  if (!work) return work.error();
  auto ran = cpu::cpu_backward(**work, shape_of(terms, t.q, t.k, t.v), t);
  if (!ran) return ran.error();
  return {};
}

template <class Run>
ffi::Error run(Run run, std::string_view batch, bool has_scale, double scale,
               double softcap, bool bshd, bool sinks,
               const ffi::RemainingArgs& args, const ffi::RemainingRets& rets) {
  // Nothing may be thrown through XLA.
  try {
    const auto done =
        run({batch, has_scale, scale, softcap, bshd, sinks}, args, rets);
    if (done) return ffi::Error::Success();
    return ffi::Error::InvalidArgument(done.error().message);
  } catch (const std::exception& e) {
    return ffi::Error::Internal(std::string("[jax] ") + e.what());
  }
}

ffi::Error run_forward(std::string_view batch, bool has_scale, double scale,
                       double softcap, bool bshd, bool sinks,
                       ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return run(&forward, batch, has_scale, scale, softcap, bshd, sinks, args,
             rets);
}

ffi::Error run_backward(std::string_view batch, bool has_scale, double scale,
                        double softcap, bool bshd, bool sinks,
                        ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return run(&backward, batch, has_scale, scale, softcap, bshd, sinks, args,
             rets);
}

auto binding() {
  return ffi::Ffi::Bind()
      .Attr<std::string_view>("batch")
      .Attr<bool>("has_scale")
      .Attr<double>("scale")
      .Attr<double>("softcap")
      .Attr<bool>("bshd")
      .Attr<bool>("sinks")
      .RemainingArgs()
      .RemainingRets();
}

XLA_FFI_DEFINE_HANDLER(forward_handler, run_forward, binding());
XLA_FFI_DEFINE_HANDLER(backward_handler, run_backward, binding());

template <class Handler>
nb::capsule capsule_of(Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler));
}

}  // namespace

void bind_jax(nb::module_& m) {
  m.def("_jax_handlers", [] {
    nb::dict out;
    out["tessera_forward"] = capsule_of(forward_handler);
    out["tessera_backward"] = capsule_of(backward_handler);
    return out;
  });
}

}  // namespace tessera::python

#else

#include "failure.h"

namespace tessera::python {

void bind_jax(nb::module_& m) {
  m.def("_jax_handlers", []() -> nb::dict {
    throw Failure({ErrorKind::unavailable,
                   "[jax] this build must have had jaxlib's headers to have "
                   "handlers, found none",
                   0});
  });
}

}  // namespace tessera::python

#endif
