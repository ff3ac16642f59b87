// torch_calls.cc: the calls of PyTorch's operators. torch.compile passes an
// operator only tensors and numbers, so a batch is a tensor of one number
// there, whose memory keeps the batch alive. The number is a key of a table,
// not a pointer, and valid as long as that memory lives. It is random, so a
// number from another process is not found.
#include <nanobind/stl/optional.h>

#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "frameworks.h"
#include "interrupts.h"
#include "lanes/cpu/cpu.h"

namespace tessera::python {
// A batch with the CPU lane's work, which is made at the first call.
class Ready {
 public:
  explicit Ready(OwnedBatch batch) : batch_(std::move(batch)) {}

  Result<std::shared_ptr<const cpu::CpuWork>> work() {
    const std::lock_guard lock(mutex_);
    if (!work_) {
      auto made = cpu::cpu_prepare(batch_);
      if (!made) return made.error();
      work_ = std::make_shared<const cpu::CpuWork>(std::move(*made));
    }
    return work_;
  }

 private:
  OwnedBatch batch_;
  std::mutex mutex_;
  std::shared_ptr<const cpu::CpuWork> work_;
};

namespace {

// The batches whose tensors are alive, by number.
class Numbers {
 public:
  static Numbers& all() {
    static auto* const numbers = new Numbers;
    return *numbers;
  }

  int64_t add(std::shared_ptr<Ready> one) {
    const std::lock_guard lock(mutex_);
    int64_t number = draw();
    while (live_.contains(number)) number = draw();
    live_.emplace(number, std::move(one));
    return number;
  }
  void remove(int64_t number) {
    std::shared_ptr<Ready> last;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    const auto at = live_.find(number);
    if (at == live_.end()) return;
    last = std::move(at->second);
    live_.erase(at);
  }
  std::shared_ptr<Ready> find(int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto at = live_.find(number);
    return at == live_.end() ? nullptr : at->second;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }

 private:
  // 62 random bits of the system, which do not repeat after a fork. Bit 62 is
  // set, so a tensor of small numbers is never taken for a batch.
  int64_t draw() {
    const uint64_t high = entropy_(), low = entropy_();
    return static_cast<int64_t>((high << 32 | low) >> 2 | uint64_t{1} << 62);
  }

  std::mutex mutex_;
  std::random_device entropy_;
  std::unordered_map<int64_t, std::shared_ptr<Ready>> live_;
};

// The number as a NumPy array int64 [1]. A second copy is kept for the
// destructor, since the array is writable.
nb::object number_of(PyBatch& batch) {
  struct Kept {
    int64_t shown, number;
  };
  if (!batch.ready) batch.ready = std::make_shared<Ready>(batch.batch);
  const int64_t number = Numbers::all().add(batch.ready);
  auto* const kept = new Kept{number, number};
  nb::capsule owner(kept, [](void* p) noexcept {
    const std::unique_ptr<Kept> last(static_cast<Kept*>(p));
    Numbers::all().remove(last->number);
  });
  return nb::cast(
      nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>(&kept->shown, {1}, owner));
}

std::shared_ptr<Ready> ready_of(nb::handle batch) {
  const Array array = read_array("batch", batch);
  std::shared_ptr<Ready> found;
  if (array.dtype == Dtype::i64 && array.view.size() == 1) {
    found = Numbers::all().find(*static_cast<const int64_t*>(array.data()));
  }
  if (!found) {
    refuse(
        "a batch's tensor must be the one that tessera.torch made, and its "
        "batch must live, found another tensor or a copy that outlived it");
  }
  return found;
}

struct Call {
  std::shared_ptr<Ready> ready;
  Array q, k, v;
  std::optional<Array> sink_logits;
  Layout layout = Layout::bhsd;
  AttentionShape shape;
  CpuOptions options;
};

Call read_call(nb::handle q, nb::handle k, nb::handle v, nb::handle sink_logits,
               nb::handle batch, std::optional<double> scale, double softcap,
               bool bshd, int threads) {
  Call call;
  call.ready = ready_of(batch);
  call.q = read_array("q", q);
  call.k = read_array("k", k);
  call.v = read_array("v", v);
  call.layout = bshd ? Layout::bshd : Layout::bhsd;
  const TensorView tq = input_of(call.q, call.layout);
  call.shape.heads = tq.heads;
  call.shape.head_dim = tq.dim;
  call.shape.kv_heads = input_of(call.k, call.layout).heads;
  call.shape.v_head_dim = input_of(call.v, call.layout).dim;
  call.shape.scale = scale;
  call.shape.softcap = softcap;
  if (!sink_logits.is_none()) {
    call.sink_logits = read_array("sink_logits", sink_logits);
  }
  call.options.threads = threads;
  return call;
}

// Runs one of the lane's two passes on `tensors`, without the GIL.
template <class Pass, class... Tensors>
void run(const Call& call, Pass pass, const Tensors&... tensors) {
  take(without_gil([&](const StopFlag* stop) -> Result<void> {
    auto work = call.ready->work();
    if (!work) return work.error();
    auto ran = pass(**work, call.shape, tensors..., call.options, stop);
    if (!ran) return ran.error();
    return {};
  }));
}

void forward(nb::handle q, nb::handle k, nb::handle v, nb::handle sink_logits,
             nb::handle batch, std::optional<double> scale, double softcap,
             bool bshd, int threads, nb::handle out, nb::handle lse) {
  const Call call =
      read_call(q, k, v, sink_logits, batch, scale, softcap, bshd, threads);
  ForwardTensors t;
  t.q = input_of(call.q, call.layout);
  t.k = input_of(call.k, call.layout);
  t.v = input_of(call.v, call.layout);
  const int64_t heads[] = {t.q.heads};
  if (call.sink_logits) t.sink_logits = floats_of(*call.sink_logits, heads);
  const Array result = read_array("out", out, true);
  const Array sums = read_array("lse", lse, true);
  t.out = tensor_of(result, call.layout);
  t.lse = floats_of(sums, lse_shape(t.q));
  run(call, &cpu::cpu_forward, t);
}

void backward(nb::handle q, nb::handle k, nb::handle v, nb::handle sink_logits,
              nb::handle batch, std::optional<double> scale, double softcap,
              bool bshd, int threads, nb::handle out, nb::handle lse,
              nb::handle dout, nb::handle dlse, nb::handle dq, nb::handle dk,
              nb::handle dv, nb::handle dsink_logits) {
  const Call call =
      read_call(q, k, v, sink_logits, batch, scale, softcap, bshd, threads);
  ForwardTensors t;
  t.q = input_of(call.q, call.layout);
  t.k = input_of(call.k, call.layout);
  t.v = input_of(call.v, call.layout);
  const int64_t heads[] = {t.q.heads};
  if (call.sink_logits) t.sink_logits = floats_of(*call.sink_logits, heads);
  const Array result = read_array("out", out);
  const Array sums = read_array("lse", lse);
  const Array given = read_array("dout", dout);
  t.out = tensor_of(result, call.layout);
  t.lse = floats_of(sums, lse_shape(t.q));
  Gradients g;
  g.dout = input_of(given, call.layout);
  std::optional<Array> more;
  if (!dlse.is_none()) {
    more = read_array("dlse", dlse);
    g.dlse = floats_of(*more, lse_shape(t.q));
  }
  const Array rq = read_array("dq", dq, true);
  const Array rk = read_array("dk", dk, true);
  const Array rv = read_array("dv", dv, true);
  const Array rs = read_array("dsink_logits", dsink_logits, true);
  g.dq = tensor_of(rq, call.layout);
  g.dk = tensor_of(rk, call.layout);
  g.dv = tensor_of(rv, call.layout);
  if (call.sink_logits) g.dsink_logits = floats_of(rs, heads);
  run(call, &cpu::cpu_backward, t, g);
}

}  // namespace

void bind_torch(nb::module_& m) {
  m.def("_torch_number", &number_of);
  m.def("_torch_numbers", [] { return Numbers::all().size(); });
  m.def("_torch_forward", &forward, nb::arg("q"), nb::arg("k"), nb::arg("v"),
        nb::arg("sink_logits").none(), nb::arg("batch"),
        nb::arg("scale").none(), nb::arg("softcap"), nb::arg("bshd"),
        nb::arg("threads"), nb::arg("out"), nb::arg("lse"));
  m.def("_torch_backward", &backward, nb::arg("q"), nb::arg("k"), nb::arg("v"),
        nb::arg("sink_logits").none(), nb::arg("batch"),
        nb::arg("scale").none(), nb::arg("softcap"), nb::arg("bshd"),
        nb::arg("threads"), nb::arg("out"), nb::arg("lse"), nb::arg("dout"),
        nb::arg("dlse").none(), nb::arg("dq"), nb::arg("dk"), nb::arg("dv"),
        nb::arg("dsink_logits"));
}

}  // namespace tessera::python
