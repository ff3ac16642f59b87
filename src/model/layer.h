// model/layer.h: what a slot of a decoder block does: it writes itself into a
// program, forward and backward.
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

// Where a slot writes. `products` is what operands of matrix products are
// rounded to; all else is wide.
struct Site {
  Writer& w;
  Element products = Element::f32;

  // a [n, k] by weights [m, k]: [n, m].
  Value times(const Value& a, const Value& weights) const;
};

// What a forward pass gives, and what it keeps for the way back.
struct Passed {
  Values out;
  Values saved;
};
// Gradients of inputs and of parameters, in their order.
struct Returned {
  Values inputs;
  Values parameters;
};

// Of products, multiply and add.
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
  // What forward() keeps, where nobody asks for what it gives.
  virtual Values kept(const Site& at, const Values& parameters,
                      const Values& inputs) const {
    return forward(at, parameters, inputs).saved;
  }
  // Of the gradients of its outputs.
  virtual Returned backward(const Site& at, const Values& parameters,
                            const Values& saved,
                            const Values& gradients) const = 0;
  // Of one pass over so many rows, each way; none where they depend on the
  // batch.
  virtual std::optional<Flops> flops(int64_t rows) const = 0;
};
using LayerPtr = std::unique_ptr<Layer>;

// One mask's kernels of both directions.
template <class Kernel>
struct Kernels {
  Kernel forward, backward;
  // Tests put float64, and what a kernel computes, in place of these.
  Element element = Element::bf16;  // of q, k and v
  mosaic::KernelCall call = mosaic::call_kernel;

  const Kernel& of(bool is_backward) const {
    return is_backward ? backward : forward;
  }
};
using KernelPair = Kernels<mosaic::PlannedKernel>;
using ShardKernelPair = Kernels<mosaic::ShardKernel>;  // of one frame

// A call of the CPU kernels, whose arrays are arguments of the step.
struct CpuCall {
  std::string text;  // what of a batch is static (lanes/cpu/batch_arrays.h)
  AttentionShape shape;
  Element element = Element::f32;  // of q, k and v
  // That each list has room for. None: it plans what the step's router picked.
  std::optional<int64_t> steps;
  std::vector<xla::Argument> integers;  // in the order of the call
};
// The one of them that the router writes.
inline constexpr std::string_view kPicksName = "picks";

// Where attention finds its plan: the integers of its batch are arguments of
// the program, each under its own name behind the prefix. Layers of one mask
// share them.
struct AttentionPlace {
  xla::Shape shape;  // of a call of the CPU: what its router reads, if any
  std::string prefix;
  std::optional<KernelPair> kernels;  // of the spec that has them
  std::optional<CpuCall> cpu;         // of the spec that calls it
  int64_t keys = 0;  // of a row; 0: as many as it has queries here
  LayerRoute route;  // the plan has what its picks are taken from
  // Devices that share rows, each with a part of the queries; none: no others.
  Writer::Groups sharers;
  // Of tokens that lie over devices as a balance says: how tiles of them
  // travel. Shape or kernels are then of what a device has and what comes.
  std::optional<xla::ShardFrame> frame = {};
  std::optional<ShardKernelPair> shard_kernels = {};
};
std::vector<xla::Argument> integers_of(const AttentionPlace& place);
// What a program of this shape takes of the plan and the facts.
std::vector<xla::Argument> integers_of(const xla::Shape& shape);
// Of its kernels, each direction under a prefix of its own.
std::vector<xla::Argument> kernel_integers(const AttentionPlace& place);
std::string kernel_prefix(const AttentionPlace& place, bool backward);
std::string kernel_label(const AttentionPlace& place, bool backward);

// What a factory is told.
struct Needs {
  const ModelConfig& model;  // on a mesh a device's part of it
  AttentionPlace attention = {};
  // Devices that have the same rows and other heads; none: no others.
  Writer::Groups partners = {};
};

// A slot of the spec, or an error that names it.
Result<LayerPtr> make_layer(const LayerSpec& spec, Slot slot,
                            const Needs& needs);

Result<void> check_spec(const LayerSpec& spec);
// Whether its attention is by TPU kernels, which no other device runs.
bool has_kernels(const LayerSpec& spec);
// That its attention is planned in where none is asked for.
Tile default_tile(const LayerSpec& spec);
// Whether it takes every pair of tokens, whatever the batch is.
bool is_dense(const LayerSpec& spec);
// Whether it is by our CPU kernels, which programs of some plugins can call.
bool calls_cpu(const LayerSpec& spec);

// The slots' own makers, which make_layer() finds by name.
LayerPtr make_norm(const Needs& needs);
LayerPtr make_linear(int64_t from, int64_t to, double deviation,
                     std::vector<std::string> axes,
                     std::vector<int64_t> sections = {});
// Of one whose outputs or inputs are divided among partners.
LayerPtr make_shared_linear(const Writer::Groups& partners, LayerPtr own);
// Its inputs are q, k and v [batch, heads, tokens, head_dim]; its outputs the
// like of q, and how many tiles it visited.
LayerPtr make_attention(const AttentionPlace& place, XlaMethod method);
LayerPtr make_routed_attention(const AttentionPlace& place, XlaMethod method);
LayerPtr make_kernel_attention(const AttentionPlace& place);
LayerPtr make_cpu_attention(const AttentionPlace& place);
LayerPtr make_routed_cpu_attention(const AttentionPlace& place);
// Of one whose keys and values are those of all devices that share a row.
LayerPtr make_shared_attention(const AttentionPlace& place, LayerPtr own);
// Of one to which tiles travel that its queries need.
LayerPtr make_exchanged_attention(const AttentionPlace& place);
LayerPtr make_exchanged_kernels(const AttentionPlace& place);
// Integers of the exchange, as a device has them, without the dimensions that
// tell devices apart; and with those of the shape, or of the kernels.
std::vector<xla::Argument> exchange_integers(const xla::ShardFrame& frame);
std::vector<xla::Argument> exchanged_integers(const AttentionPlace& place);
std::vector<xla::Argument> exchanged_kernel_integers(
    const AttentionPlace& place);
// Of fc1's output [n, ..] the MLP's hidden values [n, mlp_width].
Passed activate(const Site& at, const ModelConfig& model, const Value& x);
Value activate_backward(const Site& at, const ModelConfig& model,
                        const Values& saved, const Value& gradient);
LayerPtr make_layernorm_mlp(const Needs& needs, LayerPtr norm, LayerPtr fc1,
                            LayerPtr fc2);

}  // namespace tessera::model
