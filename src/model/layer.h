// model/layer.h: a slot of a decoder block, which writes its forward and its
// backward pass into a program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/call.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/shards.h"
#include "lanes/xla/shape.h"
#include "lanes/xla/shard_frame.h"
#include "lanes/xla/writer.h"
#include "tessera/train.h"

namespace tessera::model {

using xla::Dims;
using xla::Element;
using xla::Value;
using xla::Writer;
using Values = Writer::Values;

inline void append(Values& all, const Values& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Where a slot writes. Operands of matrix products are rounded to `products`;
// all other values are wide.
struct Site {
  Writer& w;
  Element products = Element::f32;

  // a [n, k] by weights [m, k]: [n, m].
  Value times(const Value& a, const Value& weights) const;
};

// What a forward pass returns, and what it saves for the backward pass.
struct Passed {
  Values out;
  Values saved;
};
// Gradients of the inputs and of the parameters, in their order.
struct Returned {
  Values inputs;
  Values parameters;
};

// Flops of matrix products; a multiply and an add count 2.
struct Flops {
  double forward = 0, back = 0;
};

class Layer {
 public:
  virtual ~Layer() = default;
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // Names are within the slot: "weight".
  virtual std::vector<ModelParameter> parameters() const = 0;
  virtual Passed forward(const Site& at, const Values& parameters,
                         const Values& inputs) const = 0;
  // What forward() saves, for callers that do not read its output.
  virtual Values kept(const Site& at, const Values& parameters,
                      const Values& inputs) const {
    return forward(at, parameters, inputs).saved;
  }
  // `gradients` are those of the outputs of forward().
  virtual Returned backward(const Site& at, const Values& parameters,
                            const Values& saved,
                            const Values& gradients) const = 0;
  // Flops of one pass over `rows` rows; nothing if they depend on the batch.
  virtual std::optional<Flops> flops(int64_t rows) const = 0;
};
using LayerPtr = std::unique_ptr<Layer>;

// The kernels of one mask, for both directions.
template <class Kernel>
struct Kernels {
  Kernel forward, backward;
  // Tests set float64 here, and a `call` that computes what a kernel does.
  Element element = Element::bf16;  // of q, k and v
  mosaic::KernelCall call = mosaic::call_kernel;

  const Kernel& of(bool is_backward) const {
    return is_backward ? backward : forward;
  }
};
using KernelPair = Kernels<mosaic::PlannedKernel>;
using ShardKernelPair = Kernels<mosaic::ShardKernel>;  // of one shard frame

// A call of the CPU kernels, whose arrays are arguments of the step.
struct CpuCall {
  std::string text;  // the static part of a batch (lanes/cpu/batch_arrays.h)
  AttentionShape shape;
  Element element = Element::f32;  // of q, k and v
  // Steps that each list has room for. None: the call makes the plan itself
  // from what the step's router picked.
  std::optional<int64_t> steps;
  std::vector<xla::Argument> integers;  // in the order of the call
};
// The integer argument of a CPU call that the router writes.
inline constexpr std::string_view kPicksName = "picks";

// Where attention finds its plan: the integers of its batch are arguments of
// the program, named with the prefix. Layers of one mask share a place.
struct AttentionPlace {
  xla::Shape shape;  // with `cpu`: what the call's router reads, if any
  std::string prefix;
  std::optional<KernelPair> kernels;  // if the spec has TPU kernels
  std::optional<CpuCall> cpu;         // if the spec calls CPU kernels
  int64_t keys = 0;                   // of a row; 0: as many as queries here
  LayerRoute route;  // picks are taken from the tiles of the plan
  // Groups of devices that share rows, each with a part of the queries; empty:
  // no device shares its rows.
  Writer::Groups sharers;
  // Set where tokens lie over devices as a balance says: how tiles travel. The
  // shape or the kernels then cover own tiles and received tiles.
  std::optional<xla::ShardFrame> frame = {};
  std::optional<ShardKernelPair> shard_kernels = {};
};
std::vector<xla::Argument> integers_of(const AttentionPlace& place);
// The integer arguments of a program of this shape.
std::vector<xla::Argument> integers_of(const xla::Shape& shape);
// Integers of the place's kernels; each direction has its own prefix.
std::vector<xla::Argument> kernel_integers(const AttentionPlace& place);
std::string kernel_prefix(const AttentionPlace& place, bool backward);
std::string kernel_label(const AttentionPlace& place, bool backward);

// What a factory gets.
struct Needs {
  const ModelConfig& model;  // on a mesh a device's part of it
  AttentionPlace attention = {};
  // Groups of devices with the same rows and other heads; empty: none.
  Writer::Groups partners = {};
};

// A slot of the spec, or an error that names it.
Result<LayerPtr> make_layer(const LayerSpec& spec, Slot slot,
                            const Needs& needs);

Result<void> check_spec(const LayerSpec& spec);
// Whether attention is by TPU kernels, which run on no other device.
bool has_kernels(const LayerSpec& spec);
// The tile that attention is planned in if the options give none.
Tile default_tile(const LayerSpec& spec);
// Whether attention visits every pair of tokens in any batch.
bool is_dense(const LayerSpec& spec);
// Whether attention is by our CPU kernels, which only some plugins can call.
bool calls_cpu(const LayerSpec& spec);

// The factories of the slots, which make_layer() finds by name.
LayerPtr make_norm(const Needs& needs);
LayerPtr make_linear(int64_t from, int64_t to, double deviation,
                     std::vector<std::string> axes,
                     std::vector<int64_t> sections = {});
// `own` is a linear slot whose outputs or inputs are divided among partners.
LayerPtr make_shared_linear(const Writer::Groups& partners, LayerPtr own);
// Attention takes q, k and v [batch, heads, tokens, head_dim], and returns an
// output shaped like q and the number of tiles that it visited.
LayerPtr make_attention(const AttentionPlace& place, XlaMethod method);
LayerPtr make_routed_attention(const AttentionPlace& place, XlaMethod method);
LayerPtr make_kernel_attention(const AttentionPlace& place);
LayerPtr make_cpu_attention(const AttentionPlace& place);
LayerPtr make_routed_cpu_attention(const AttentionPlace& place);
// Gathers the keys and values of all devices that share a row for `own`.
LayerPtr make_shared_attention(const AttentionPlace& place, LayerPtr own);
// Each device receives the tiles that its queries need.
LayerPtr make_exchanged_attention(const AttentionPlace& place);
LayerPtr make_exchanged_kernels(const AttentionPlace& place);
// exchange_integers() returns the integers of the exchange as one device has
// them, without the dimensions that tell devices apart. The other two add the
// integers of the shape, or of the kernels.
std::vector<xla::Argument> exchange_integers(const xla::ShardFrame& frame);
std::vector<xla::Argument> exchanged_integers(const AttentionPlace& place);
std::vector<xla::Argument> exchanged_kernel_integers(
    const AttentionPlace& place);
// From fc1's output [n, ..] to the MLP's hidden values [n, mlp_width].
Passed activate(const Site& at, const ModelConfig& model, const Value& x);
Value activate_backward(const Site& at, const ModelConfig& model,
                        const Values& saved, const Value& gradient);
LayerPtr make_layernorm_mlp(const Needs& needs, LayerPtr norm, LayerPtr fc1,
                            LayerPtr fc2);

}  // namespace tessera::model
