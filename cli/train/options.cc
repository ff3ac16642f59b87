// cli/train/options.cc: reads and checks the trainer's options.
#include "cli/train/options.h"

#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/lowering.h"
#include "cli/numbers.h"
#include "model/layer.h"
#include "model/mesh.h"
#include "model/spread.h"
#include "model/step_plan.h"
#include "request/make_request.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxModelBytes = int64_t{1} << 20;

// The model of --model, else that of the checkpoint, else a small default.
Result<ModelConfig> read_model(const TrainFlags& f,
                               const std::optional<std::string>& resumed) {
  if (!f.model && !resumed) return ModelConfig{};
  if (!f.model) return checkpoint_model(*resumed, f.resume.value_or(""));
  auto text = read_file(*f.model, kMaxModelBytes);
  if (!text) return text.error();
  return in_file(parse_model_config(*text), *f.model);
}

}  // namespace

Result<void> read_train_options(const TrainFlags& f,
                                const std::optional<std::string>& resumed,
                                TrainOptions& out) {
  auto model = read_model(f, resumed);
  if (!model) return model.error();
  out.model = std::move(*model);
  auto spec = find_layer_spec(f.spec.value_or("xla"));
  if (!spec) return spec.error();
  out.spec = std::move(*spec);
  if (f.rows) {
    auto rows = request::parse_int(*f.rows, "--rows", 1, kMaxSteps);
    if (!rows) return rows.error();
    out.rows = *rows;
  }
  if (f.mesh) {
    auto mesh = parse_mesh(*f.mesh);
    if (!mesh) return mesh.error();
    out.mesh = std::move(*mesh);
  }
  // Each device along the axis data then has a row.
  if (!f.rows) out.rows = out.mesh.size(model::kDataAxis);
  if (auto e = model::check_mesh(out); !e) return e.error();
  ShardWords open;
  open.balance = open.exchange = "";
  auto shards = parse_train_shards(f.words(open));
  if (!shards) return shards.error();
  out.shards = std::move(*shards);
  if (auto e = model::check_spread(out); !e) return e.error();
  if (f.seed) {
    auto seed = parse_seed(*f.seed);
    if (!seed) return seed.error();
    out.seed = *seed;
  }
  if (f.dtype && *f.dtype != "f32" && *f.dtype != "bf16") {
    return invalid("cli", "--dtype must be f32 or bf16, found {}",
                   in_quotes(*f.dtype));
  }
  if (f.dtype == "bf16") out.precision.products = Dtype::bf16;
  out.tile = model::default_tile(out.spec);
  if (f.tile) {
    auto tile = request::parse_tile(*f.tile, "--tile");
    if (!tile) return tile.error();
    out.tile = *tile;
  }
  if (auto e = check_reason_flag(f.lowering_reason); !e) return e;
  out.xla.lowering_reason = f.lowering_reason;
  auto compiles = request::parse_int(f.max_compiles.value_or("0"),
                                     "--max-compiles", 0, kMaxCompiles);
  if (!compiles) return compiles.error();
  out.xla.max_compiles = *compiles;
  if (f.weight_decay) {
    auto decay = request::parse_from_zero(*f.weight_decay, "--weight-decay");
    if (!decay) return decay.error();
    out.optimizer.weight_decay = *decay;
  }
  out.recompute = f.recompute;
  out.xla.plugin =
      f.compile_only ? model::kTpuPlugin : default_plugin(out.spec);
  return read_plugin_flags(f, out.xla);
}

}  // namespace tessera::cli
