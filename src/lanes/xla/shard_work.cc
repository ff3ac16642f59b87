// lanes/xla/shard_work.cc: adds a batch's programs and integers, and runs them.
#include "lanes/xla/shard_work.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/program_arrays.h"
#include "lanes/stop.h"

namespace tessera::xla {
namespace {

using lanes::PassRun;

// The shard of each device. Devices that differ only along "copy" share one.
std::vector<size_t> shards_of_devices(const Mesh& mesh) {
  std::vector<size_t> out;
  for (int64_t device = 0; device < mesh.devices(); ++device) {
    std::map<std::string_view, int64_t> at;
    int64_t rest = device;
    for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) {
      at[axis->does()] = rest % axis->size;
      rest /= axis->size;
    }
    out.push_back(static_cast<size_t>(
        (at["data"] * mesh.size("head") + at["head"]) * mesh.size("seq") +
        at["seq"]));
  }
  return out;
}

}  // namespace

ShardWork::ShardWork(LaneName name, std::shared_ptr<const OpenMesh> open,
                     Batch batch, AttentionShape shape, Shards shards)
    : name_(name),
      open_(std::move(open)),
      batch_(std::move(batch)),
      call_shape_(shape),
      shards_(std::move(shards)),
      shard_of_(shards_of_devices(shards_.mesh)) {
  const ShardOptions& o = open_->options.shards;
  facts_.shards = {shards_.mesh,  o.balance, shards_.exchange,
                   o.ceilings,    o.work,    o.evenness,
                   o.uneven,      {},        shards_.contract_key,
                   shards_.report};
}
ShardWork::~ShardWork() = default;

Result<const ShardPass*> ShardWork::pass_of(bool backward) const {
  const auto& pass = passes_[backward ? 1 : 0];
  if (pass) return &*pass;
  return lanes::no_backward(name_.text);
}

Result<std::string> ShardWork::program_text(bool backward) const {
  auto pass = pass_of(backward);
  if (!pass) return pass.error();
  return (*pass)->text();
}

Result<std::shared_ptr<const SentIntegers>> ShardWork::send(
    const std::vector<ShardArray>& arguments, const IntegersOf& integers_of,
    std::shared_ptr<const void> host) {
  auto out = std::make_shared<SentIntegers>();
  out->host = std::move(host);
  auto ok = timed(facts_.transfer_ms, [&]() -> Result<void> {
    for (size_t d = 0; d < open_->devices.size(); ++d) {
      auto& of_device = out->of_device.emplace_back();
      for (const ShardArray& a : arguments) {
        if (!a.is_own) continue;
        auto buffer = pjrt::to_device(*open_->client, open_->devices[d],
                                      array_type(a.part.type),
                                      integers_of(shard_of_[d], a.part.name));
        if (!buffer) return buffer.error();
        of_device.emplace(a.part.name, std::move(*buffer));
      }
    }
    return {};
  });
  if (!ok) return ok.error();
  return std::shared_ptr<const SentIntegers>(std::move(out));
}

Result<void> ShardWork::add(ShardPass pass, const KernelContract& contract) {
  auto cached = timed(facts_.compile_ms, [&] {
    return open_->cache.get(
        *open_->client, open_->devices, {contract.key, contract.text},
        [&]() -> Result<std::string> { return pass.text(); });
  });
  if (!cached) return cached.error();
  pass.program = std::move(cached->program);
  const bool backward = pass.call.backward;
  const std::string direction = backward ? "backward" : "forward";
  facts_.add_compiles(pjrt::counts_of(cached->found));
  facts_.kernels[direction] = contract.key;
  facts_.shards->specs[direction] = pass.specs;
  facts_.warnings.insert(facts_.warnings.end(), cached->warnings.begin(),
                         cached->warnings.end());
  facts_.lowering = pass.lowering;
  if (!pass.setting.empty()) facts_.settings[direction] = pass.setting;
  passes_[backward ? 1 : 0] = std::move(pass);
  return {};
}

Part ShardWork::stage_sinks(size_t shard, int64_t heads,
                            std::span<const float> sinks) const {
  const Shard& s = shards_.shards[shard];
  Part out(static_cast<size_t>(heads) * sizeof(float), 0);
  std::memcpy(out.data(), sinks.data() + s.first_head,
              static_cast<size_t>(s.heads) * sizeof(float));
  return out;
}

Result<ShardWork::Buffers> ShardWork::execute(const ShardPass& pass,
                                              const Arrays& arrays,
                                              PassRun& out) const {
  const size_t n = open_->devices.size();
  std::vector<Part> parts;
  std::vector<pjrt::Buffer> sent;
  const std::vector<ShardArray>& arguments = pass.arrays.arguments;
  parts.reserve(n * arguments.size());
  sent.reserve(n * arguments.size());
  std::vector<pjrt::Inputs> inputs(n);
  auto ok = timed(out.transfer_ms, [&]() -> Result<void> {
    for (size_t d = 0; d < n; ++d) {
      for (const ShardArray& a : arguments) {
        const std::string& name = a.part.name;
        if (a.is_own) {
          inputs[d].push_back(&pass.integers->of_device[d].at(name));
          continue;
        }
        if (const auto at = arrays.there.find(name); at != arrays.there.end()) {
          inputs[d].push_back(&at->second->parts[d]);
          continue;
        }
        const size_t shard = shard_of_[d];
        parts.push_back(
            name == "sink_logits"
                ? stage_sinks(shard, a.part.type.dims[0], *arrays.sinks)
                : stage(pass.frame, shards_.shards[shard], a.part.type,
                        arrays.from.at(name)));
        auto buffer =
            pjrt::to_device(*open_->client, open_->devices[d],
                            array_type(a.part.type), parts.back().data());
        if (!buffer) return buffer.error();
        sent.push_back(std::move(*buffer));
        inputs[d].push_back(&sent.back());
      }
    }
    return {};
  });
  if (!ok) return ok.error();
  return timed(out.run_ms,
               [&] { return pjrt::execute_on_all(*pass.program, inputs); });
}

Result<std::vector<std::vector<Part>>> ShardWork::read(
    const Buffers& buffers, const std::vector<ShardArray>& results,
    const Arrays& arrays) const {
  std::vector<std::vector<Part>> here(shards_.shards.size());
  for (size_t d = 0; d < buffers.size(); ++d) {
    std::vector<Part>& parts = here[shard_of_[d]];
    if (!parts.empty()) continue;  // read from another device
    parts.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string& name = results[i].part.name;
      const bool summed = name == "tiles" || name == "dsink_logits";
      if (!summed && !arrays.to.contains(name)) continue;
      const pjrt::Buffer& b = buffers[d][i];
      auto bytes = pjrt::byte_size(b.type());
      if (!bytes) return bytes.error();
      parts[i].resize(static_cast<size_t>(*bytes));
      if (auto e = pjrt::to_host(b, parts[i].data(), *bytes); !e) {
        return e.error();
      }
    }
  }
  return here;
}

// Writes the results that go to the host, and sums tiles and dsink_logits.
void ShardWork::write(const ShardPass& pass, const Arrays& arrays,
                      const std::vector<std::vector<Part>>& parts,
                      PassRun& out) const {
  std::fill(arrays.dsinks.begin(), arrays.dsinks.end(), 0.0F);
  for (size_t s = 0; s < parts.size(); ++s) {
    const Shard& shard = shards_.shards[s];
    for (size_t i = 0; i < parts[s].size(); ++i) {
      const std::string& name = pass.arrays.results[i].part.name;
      const Part& from = parts[s][i];
      if (name == "tiles") {
        int32_t tiles = 0;
        std::memcpy(&tiles, from.data(), sizeof tiles);
        out.tiles_run += tiles * std::min(pass.heads_of_tile, shard.heads);
      } else if (name == "dsink_logits") {
        const auto* const more = reinterpret_cast<const float*>(from.data());
        for (int64_t h = 0; h < shard.heads; ++h) {
          arrays.dsinks[static_cast<size_t>(shard.first_head + h)] += more[h];
        }
      } else if (const auto at = arrays.to.find(name); at != arrays.to.end()) {
        unstage(pass.frame, shard, from, at->second);
      }
    }
  }
}

Result<PassRun> ShardWork::run(const ShardPass& pass, const Arrays& arrays,
                               const StopFlag* stop) const {
  const std::vector<ShardArray>& results = pass.arrays.results;
  std::vector<pjrt::ArrayType> types;
  types.reserve(results.size());
  for (const ShardArray& r : results) types.push_back(array_type(r.part.type));
  if (auto e = lanes::check_outputs(name_.text, *pass.program, types); !e) {
    return e.error();
  }
  if (auto e = lanes::check_stop(stop, name_.text, "before it ran"); !e) {
    return e.error();
  }
  PassRun out;
  auto buffers = execute(pass, arrays, out);
  if (!buffers) return buffers.error();
  if (auto e = lanes::check_stop(stop, name_.text, "after it ran"); !e) {
    return e.error();
  }
  auto here =
      timed(out.transfer_ms, [&] { return read(*buffers, results, arrays); });
  if (!here) return here.error();
  out.tiles_run = pass.tiles_run;
  out.pairs_run = pass.pairs_run;
  write(pass, arrays, *here, out);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto at = arrays.stay.find(results[i].part.name);
    if (at == arrays.stay.end()) continue;
    for (std::vector<pjrt::Buffer>& of_device : *buffers) {
      at->second->parts.push_back(std::move(of_device[i]));
    }
  }
  const Plan& plan = batch_.plan();
  out.tiles_skipped = plan.batch * call_shape_.heads * plan.forward.rows *
                          plan.forward.columns -
                      out.tiles_run;
  return out;
}

}  // namespace tessera::xla
