// lanes/cpu/ffi_handlers.cc: reads the arrays of a call, and runs the kernels.
#include "lanes/cpu/ffi_handlers.h"

#include "base/fail.h"

#if defined(TESSERA_XLA_FFI)

#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "lanes/cpu/batch_arrays.h"
#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {
namespace {

namespace ffi = xla::ffi;

// The static part of a call.
struct Terms {
  std::string_view batch;  // from static_text()
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

std::string_view word_of(ffi::DataType type) {
  using enum ffi::DataType;
  static constexpr std::pair<ffi::DataType, std::string_view> kWords[] = {
      {F32, "float32"}, {BF16, "bfloat16"}, {F16, "float16"},
      {F64, "float64"}, {S32, "int32"},     {U32, "uint32"},
      {S64, "int64"},   {U64, "uint64"},    {S16, "int16"},
      {U16, "uint16"},  {S8, "int8"},       {U8, "uint8"},
      {PRED, "bool"},   {C64, "complex64"}, {C128, "complex128"}};
  for (const auto& [known, word] : kWords) {
    if (known == type) return word;
  }
  return "another type";
}

Result<MutableTensorView> tensor(const char* name, const ffi::AnyBuffer& buffer,
                                 bool bshd) {
  const auto dtype = dtype_of(buffer.element_type());
  const auto d = buffer.dimensions();
  if (!dtype) {
    return invalid("cpu",
                   "{} must be of float32, bfloat16 or float16, found {}", name,
                   word_of(buffer.element_type()));
  }
  if (d.size() != 4) {
    return invalid("cpu", "{} must have 4 dimensions, found {}", name,
                   d.size());
  }
  void* const data = buffer.untyped_data();
  return bshd ? MutableTensorView::bshd(data, *dtype, d[0], d[2], d[1], d[3])
              : MutableTensorView::bhsd(data, *dtype, d[0], d[1], d[2], d[3]);
}

template <class T>
Result<std::span<T>> numbers(const char* name, const ffi::AnyBuffer& buffer,
                             ffi::DataType type) {
  if (buffer.element_type() != type) {
    return invalid("cpu", "{} must be of {}, found {}", name, word_of(type),
                   word_of(buffer.element_type()));
  }
  return std::span<T>(static_cast<T*>(buffer.untyped_data()),
                      buffer.element_count());
}

// Reads arguments and results in order. The first error is kept.
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
  // A program may pass the words as signed numbers of the same bits.
  std::span<const uint32_t> next_words(const char* name) {
    const ffi::AnyBuffer buffer = next(name);
    const bool has_sign = buffer.element_type() == ffi::DataType::S32;
    return keep(numbers<uint32_t>(
        name, buffer, has_sign ? ffi::DataType::S32 : ffi::DataType::U32));
  }
  FactArray next_array(const char* name) {
    FactArray out;
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
  // Empty if the call has no more results.
  std::span<int32_t> result_ints_if_any(const char* name) {
    if (result_ >= rets_.size()) return {};
    return keep(numbers<int32_t>(name, next_result(name), ffi::DataType::S32));
  }

 private:
  // Placeholder for a missing argument; not read, since there is an error.
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
      error_ = invalid("cpu", "a call must have {}, found none", name);
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

// Reads the arrays of the batch, which are the last arguments.
Result<std::shared_ptr<const CpuWork>> read_work(Reader& read,
                                                 const Terms& terms,
                                                 const TensorView& q,
                                                 const TensorView& k) {
  BatchArrays given;
  given.text = terms.batch;
  given.batch = q.batch;
  given.q_len = q.tokens;
  given.kv_len = k.tokens;
  given.window_bounds = read.next_ints("window_bounds");
  given.forward.row_start = read.next_ints("forward row_start");
  given.forward.entries = read.next_words("forward entries");
  given.transposed.row_start = read.next_ints("transposed row_start");
  given.transposed.entries = read.next_words("transposed entries");
  while (read.left() > 0) given.facts.push_back(read.next_array("a fact"));
  if (read.error()) return *read.error();
  return ready_work(given);
}

// Reads the arguments that both directions begin with.
ForwardTensors read_inputs(Reader& read, const Terms& terms) {
  ForwardTensors t;
  t.q = as_input(read.next_tensor("q"));
  t.k = as_input(read.next_tensor("k"));
  t.v = as_input(read.next_tensor("v"));
  if (terms.sinks) t.sink_logits = read.next_floats("sink_logits");
  return t;
}

// One thread for each core, counted at the first call: XLA also sizes its pool
// only once, and asking the system takes a fiftieth of a small call.
const CpuOptions& options_of_calls() {
  static const CpuOptions options = [] {
    CpuOptions out;
    out.threads = std::min(machine_threads(), kMaxThreads);
    return out;
  }();
  return options;
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
  ForwardTensors t = read_inputs(read, terms);
  t.out = read.result_tensor("out");
  t.lse = read.result_floats("lse");
  const std::span<int32_t> tiles = read.result_ints_if_any("tiles");
  auto work = read_work(read, terms, t.q, t.k);
  if (!work) return work.error();
  auto ran = cpu_forward(**work, shape_of(terms, t.q, t.k, t.v), t,
                         options_of_calls());
  if (!ran) return ran.error();
  if (!tiles.empty()) {
    const int64_t sharing = t.q.heads / (*work)->state().sizes.heads;
    tiles[0] = static_cast<int32_t>(ran->tiles_run / sharing);  // of all lists
  }
  return {};
}

Result<void> backward(const Terms& terms, const ffi::RemainingArgs& args,
                      const ffi::RemainingRets& rets) {
  Reader read(args, rets, terms);
  ForwardTensors t = read_inputs(read, terms);
  t.out = read.next_tensor("out");
  t.lse = read.next_floats("lse");
  Gradients g;
  g.dout = as_input(read.next_tensor("dout"));
  g.dlse = read.next_floats("dlse");
  g.dq = read.result_tensor("dq");
  g.dk = read.result_tensor("dk");
  g.dv = read.result_tensor("dv");
  if (terms.sinks) g.dsink_logits = read.result_floats("dsink_logits");
  auto work = read_work(read, terms, t.q, t.k);
  if (!work) return work.error();
  auto ran = cpu_backward(**work, shape_of(terms, t.q, t.k, t.v), t, g,
                          options_of_calls());
  if (!ran) return ran.error();
  return {};
}

template <Result<void> (*pass)(const Terms&, const ffi::RemainingArgs&,
                               const ffi::RemainingRets&)>
ffi::Error run(std::string_view batch, bool has_scale, double scale,
               double softcap, bool bshd, bool sinks, ffi::RemainingArgs args,
               ffi::RemainingRets rets) {
  // No exception may pass through XLA.
  try {
    const auto done =
        pass({batch, has_scale, scale, softcap, bshd, sinks}, args, rets);
    if (done) return ffi::Error::Success();
    return ffi::Error::InvalidArgument(done.error().message);
  } catch (const std::exception& e) {
    return ffi::Error::Internal(std::string("[cpu] ") + e.what());
  }
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

XLA_FFI_DEFINE_HANDLER(forward_handler, run<forward>, binding());
XLA_FFI_DEFINE_HANDLER(backward_handler, run<backward>, binding());

// Run to find out whether a plugin calls handlers. It returns probe_answer() of
// its number, which no other code would.
ffi::Error run_probe(ffi::Buffer<ffi::S32> number,
                     ffi::ResultBuffer<ffi::S32> out) {
  if (number.element_count() != 1 || out->element_count() != 1) {
    return ffi::Error::InvalidArgument("[cpu] a probe must be one number");
  }
  out->typed_data()[0] = probe_answer(number.typed_data()[0]);
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER(
    probe_handler, run_probe,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::S32>>().Ret<ffi::Buffer<ffi::S32>>());

}  // namespace

Result<std::vector<FfiHandler>> ffi_handlers() {
  return std::vector<FfiHandler>{
      {kForwardTarget, reinterpret_cast<void*>(forward_handler)},
      {kBackwardTarget, reinterpret_cast<void*>(backward_handler)},
      {kProbeTarget, reinterpret_cast<void*>(probe_handler)}};
}

}  // namespace tessera::cpu

#else

namespace tessera::cpu {

Result<std::vector<FfiHandler>> ffi_handlers() {
  return unavailable(
      "cpu",
      "this build must have XLA's header xla/ffi/api/ffi.h, so that programs "
      "can call our kernels (tessera.jax, the spec cpu), found none for it "
      "(`make tpu` brings it with jaxlib; or give CMake its folder as "
      "TESSERA_XLA_FFI, and build again)");
}

}  // namespace tessera::cpu

#endif
