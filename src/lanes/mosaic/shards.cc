// lanes/mosaic/shards.cc: the exchange of the xla lane around the kernel.
#include "lanes/mosaic/shards.h"

#include <string>
#include <utility>

#include "base/fail.h"
#include "lanes/xla/planned.h"

namespace tessera {
namespace mosaic {
namespace {

using xla::ShardArray;
using Values = xla::Writer::Values;

// Lines of queries are [batch, heads, 1, queries] to a kernel alone.
bool is_line(const std::string& name) {
  return name == "lse" || name == "dlse";
}

xla::Argument around_kernel(const Argument& a) {
  xla::Type type = type_of(a);
  if (is_line(a.name)) type.dims.erase(type.dims.begin() + 2);
  return {a.name, std::move(type)};
}

// What the kernel takes and gives, between what the exchange does.
Values attend(xla::Writer& w, const PlannedKernel& kernel,
              const KernelCall& call) {
  const CallArrays arrays = arrays_of(kernel);
  Values inputs;
  for (const Argument& a : arrays.inputs) {
    inputs.push_back(w.reshape(w.argument(a.name), a.type.shape));
  }
  Values made = call(w, kernel, name_of(kernel), inputs);
  for (size_t i = 0; i < made.size(); ++i) {
    const Argument& a = arrays.results[i];
    // Of a sink's gradient all lanes are the same.
    if (a.name == "dsink_logits") made[i] = w.part(made[i], 2, 0, 1);
    if (is_line(a.name))
      made[i] = w.reshape(made[i], around_kernel(a).type.dims);
  }
  return made;
}

}  // namespace

Result<ShardKernel> plan_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const MosaicOptions& options) {
  if (shards.mesh.size("head") > 1 && batch.plan().heads > 1) {
    return unavailable("mosaic",
                       "heads over devices must have one mask for all of them, "
                       "found {} plan heads for {}",
                       batch.plan().heads, to_string(shards.mesh));
  }
  auto planned = plan_shard_kernel(batch, shards, call, target, options);
  if (!planned) return planned.error();
  ShardKernel out = {std::move(*planned), xla::frame_of(shards)};
  const std::string sharding = spec_fingerprint(
      shards.mesh, xla::frame_specs(out.frame, arrays_of(out)));
  out.planned.kernel.contract = contract_of(out.planned, target, sharding);
  return out;
}

xla::ShardArrays arrays_of(const ShardKernel& kernel) {
  const CallArrays arrays = arrays_of(kernel.planned);
  const xla::ShardFrame& frame = kernel.frame;
  const int64_t heads = kernel.planned.shape.heads;
  xla::ShardArrays out;
  out.arguments = xla::exchange_arrays(frame);
  // Integers first.
  std::vector<ShardArray> others;
  for (const Argument& a : arrays.inputs) {
    xla::Argument own = around_kernel(a);
    if (own.type.element == xla::Element::i32) {
      out.arguments.push_back(
          own_integers(frame, std::move(own.name), std::move(own.type.dims)));
    } else if (own.name == "sink_logits") {
      others.push_back(of_heads(frame, std::move(own.name), heads, false));
    } else {
      others.push_back(own_part(frame, std::move(own)));
    }
  }
  out.arguments.insert(out.arguments.end(), others.begin(), others.end());
  for (const Argument& a : arrays.results) {
    if (a.name == "dsink_logits") {
      out.results.push_back(of_heads(frame, a.name, heads, true));
      continue;
    }
    xla::Argument own = around_kernel(a);
    // Sums of what several devices gave are rounded at home.
    if (own.name == "dk" || own.name == "dv") {
      own.type.element = xla::element_of(kernel.planned.shape.dtype);
    }
    out.results.push_back(own_part(frame, std::move(own)));
  }
  return out;
}

std::string program_of(const ShardKernel& kernel, const KernelCall& call) {
  const bool backward = kernel.planned.kernel.call.backward;
  return xla::frame_program(
      backward ? "tessera_sharded_backward" : "tessera_sharded_forward",
      kernel.frame, arrays_of(kernel),
      [&](xla::Writer& w) { return attend(w, kernel.planned, call); });
}

}  // namespace mosaic

Result<MosaicKernel> make_mosaic_shards(const Batch& batch,
                                        const Shards& shards,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options) {
  auto planned = mosaic::plan_shards(batch, shards, call, target, options);
  if (!planned) return planned.error();
  MosaicKernel out = planned->planned.kernel;
  out.text = mosaic::text_of(planned->planned);
  out.program = mosaic::program_of(*planned);
  return out;
}

}  // namespace tessera
