// tessera/train.h: trains a language model on packed rows. A step is one
// program, which is compiled once; the state stays on the device.
//
//   auto trainer = Trainer::open(options);
//   auto report = trainer->step(rows, {.learning_rate = 3e-4});  //
//   report->loss auto bytes = trainer->checkpoint();  // a .safetensors file
//   trainer->restore(*bytes);
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/attention.h"
#include "tessera/data.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"
#include "tessera/route.h"
#include "tessera/shard.h"

namespace tessera {

// A decoder as data: its sizes (ModelConfig), and for a lane the factory that
// makes each of its slots (LayerSpec). The model stays the same if the kernels
// change.
//
//   auto spec = find_layer_spec("xla");       // or fill a LayerSpec
//   ModelConfig model;                        // sizes and settings
//   auto parameters = model_parameters(model, *spec);

// The parts of a decoder block.
enum class Slot : uint8_t {
  norm,
  linear_qkv,
  linear_proj,
  linear_fc1,
  linear_fc2,
  attention,
  layernorm_mlp,  // norm, fc1 and fc2 fused; keeps only its input for backward
};
inline constexpr size_t kSlots = 7;
std::string_view to_string(Slot slot);  // "linear_qkv"

// The factory names of a lane, by slot; "": the slot has no factory.
struct LayerSpec {
  std::string name;
  std::array<std::string, kSlots> factories;

  const std::string& of(Slot slot) const {
    return factories[static_cast<size_t>(slot)];
  }
  std::string& of(Slot slot) { return factories[static_cast<size_t>(slot)]; }
};

// "reference": plain StableHLO with attention over all pairs. "xla": attention
// over the plan's worklist. "tpu": attention by the kernels of mosaic.h, which
// run on TPUs only. "cpu": attention by this library's CPU kernels, which the
// program calls; not every CPU plugin supports such calls.
Result<LayerSpec> find_layer_spec(std::string_view name);
std::vector<std::string> layer_spec_names();
// The default plugin for programs of the spec. The default for a CPU reuses the
// memory of a step's state for the next step, and gives the same results on
// every run over several devices (docs/train.md).
std::string default_plugin(const LayerSpec& spec);

enum class NormKind : uint8_t { rms, layer };
enum class MlpKind : uint8_t {
  swiglu,  // silu(gate) * up
  geglu,   // gelu(gate) * up
  gelu,    // gelu(up)
};
std::string_view to_string(NormKind kind);
std::string_view to_string(MlpKind kind);

// The router of a layer with clustered attention, in which each query attends
// to its own block of keys and the blocks that score best. The router is part
// of the program; no gradient flows through it.
struct LayerRoute {
  int64_t top = 0;    // blocks that a query picks; 0: not clustered
  int64_t block = 0;  // keys of a block, pooled to one key
  RouteRule rule = RouteRule::kv_head;  // or query_head

  bool operator==(const LayerRoute&) const = default;
};
// The settings that give the same picks with the router of tessera/route.h.
RouteSettings settings_of(const LayerRoute& route);
std::string to_string(const LayerRoute& route);  // "routed(4, 64) by kv-head"

struct ModelConfig {
  int64_t vocab = 256;
  int64_t layers = 2;
  int64_t width = 64;  // width of the residual stream
  int64_t heads = 4, kv_heads = 2, head_dim = 16;
  int64_t mlp_width = 192;
  NormKind norm = NormKind::rms;
  MlpKind mlp = MlpKind::swiglu;
  bool fused_mlp = true;    // layernorm_mlp; false: norm, fc1 and fc2
  bool tied_head = true;    // the head has the weights of the embedding
  bool post_norms = false;  // norms after attention and after the MLP too
  double embedding_scale = 1;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  // Scaled RoPE of Llama 3, if rope_factor is above 1. A frequency with a
  // period of more than rope_tokens / rope_low tokens is divided by the factor,
  // one with a period below rope_tokens / rope_high is unchanged, and between
  // both limits it is interpolated.
  double rope_factor = 1, rope_low = 1, rope_high = 4, rope_tokens = 8192;
  double softcap = 0;        // cap of scores; 0: off
  double final_softcap = 0;  // cap of logits; 0: off
  double score_scale = 0;    // 0: 1 / sqrt(head_dim)
  // For each layer the number of keys before itself that a query sees; 0: all
  // keys of its document. The list repeats if there are more layers. Empty: 0.
  std::vector<int64_t> windows;
  // The router of each layer; the list repeats in the same way. Empty: no layer
  // is clustered.
  std::vector<LayerRoute> routes;
  // Columns of a row's structure (tessera/data.h) by name, with their number of
  // ids. Each column has an embedding that is added to the token's embedding;
  // id 0 adds nothing.
  std::map<std::string, int64_t> columns;

  bool operator==(const ModelConfig&) const = default;
};

// Parses a JSON object with the names of the fields of ModelConfig. A missing
// field has its default.
Result<ModelConfig> parse_model_config(std::string_view json);
std::string to_json(const ModelConfig& config);
// Checks that sizes are in range, divide each other as they must, and are not
// too large together.
Result<void> check_model(const ModelConfig& config);

// The types that a model is computed in, the same for all specs. Only the type
// of matrix products can be chosen.
struct Precision {
  Dtype products = Dtype::f32;  // type of the operands: f32 or bf16
};
// The type of each part of the computation: "products" and "attention" have the
// chosen type; "softmax", "norms", "residual", "loss", "gradients",
// "parameters" and "moments" are float32.
std::vector<std::pair<std::string, Dtype>> precision_plan(const Precision& p);

// A learned array, float32.
struct ModelParameter {
  std::string name;  // "layers.0.linear_qkv.weight"
  std::vector<int64_t> shape;
  // The initial value: `fill` plus a normal draw of this standard deviation.
  double fill = 0;
  double deviation = 0;
  // For each dimension the mesh axis that splits it, or "". A vocabulary that
  // an axis does not divide is not split.
  std::vector<std::string> axes;
  // Sizes of the sections of the split dimension, each of which is split on its
  // own: q, k and v of linear_qkv. Empty: the dimension is one section.
  std::vector<int64_t> sections = {};

  int64_t size() const;
};

// All parameters of a model, in the order of its programs. An error if the spec
// has an empty slot or an unknown factory.
Result<std::vector<ModelParameter>> model_parameters(const ModelConfig& config,
                                                     const LayerSpec& spec);

// The inputs and outputs of a slot, the same in every spec: the sizes of each
// array, 0 for a size that the batch determines. All arrays are float32. A slot
// rounds the operands of its products (attention: q, k and v) to
// Precision::products.
struct SlotArrays {
  std::vector<std::vector<int64_t>> inputs, outputs;
};
SlotArrays slot_arrays(Slot slot, const ModelConfig& config);

// Bytes of a slot's arrays. Its forward pass reads inputs and parameters, and
// writes outputs and the arrays kept for the backward pass, which may be
// inputs. Its backward pass reads gradients of outputs, parameters and the kept
// arrays (read_back), and writes gradients of inputs and parameters
// (written_back).
struct SlotBytes {
  int64_t inputs = 0;  // of attention including the integers of its plan
  int64_t parameters = 0, outputs = 0, kept = 0;
  int64_t read_back = 0, written_back = 0;

  bool operator==(const SlotBytes&) const = default;
};

// The work of a slot on each device in one step, over all layers, forward and
// backward. The second forward pass of recomputed blocks is not counted.
struct SlotWork {
  std::string slot;  // also "activation", of an MLP that is not fused
  // FLOPs of products; a multiply and an add count 2. Absent if they depend on
  // the batch: see StepReport::attention_flops.
  std::optional<double> flops, flops_back;
  SlotBytes bytes;
};

// AdamW. Weight decay applies to matrices, not to norms.
struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// How devices along "seq", which share rows, exchange keys and values without
// gathering all of them: each device has the tokens that `balance` gives it,
// and receives the tiles that its queries need (tessera/shard.h).
struct TrainShards {
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  TileWork work;
  Evenness evenness;
  // One for each mask of the model, in the order in which its windows first
  // occur, or one for all masks. A ceiling of 0 has room for every batch, so no
  // step is refused; rounds then send as much as gathering would, and with
  // `tasks` q and out too. Trainer::ceilings finds smaller ceilings.
  std::vector<ShardCeilings> ceilings;
};
// Absent for the exchange "gather". Ceilings of several masks are separated by
// ';'.
Result<std::optional<TrainShards>> parse_train_shards(const ShardWords& words);
std::string to_string(const std::vector<ShardCeilings>& of_masks);

struct TrainOptions {
  ModelConfig model;
  LayerSpec spec;
  Precision precision;
  OptimizerSettings optimizer;
  int64_t rows = 1;    // rows of a step, over all devices
  int64_t tokens = 0;  // tokens of a row
  // Rows are divided along the axis "data", their tokens along "seq". Along
  // "head" are divided the heads, the MLP's width and, if it is a multiple of
  // the axis, the vocabulary, with their parameters and moments. Each device
  // holds the other parameters whole. No axis: one device.
  Mesh mesh;
  // Absent: along "seq" each device has one contiguous part of a row and
  // gathers all keys and values.
  std::optional<TrainShards> shards;
  Tile tile = {};
  bool recompute = false;  // blocks keep only their input for backward
  uint64_t seed = 0;       // of the initial parameters
  // Plugin and compile cache. An empty plugin: that of default_plugin().
  XlaOptions xla;
};

// The work of each slot, in the order of a block, on one device of the mesh.
Result<std::vector<SlotWork>> model_work(const TrainOptions& options);

struct StepRates {
  double learning_rate = 0;
  double max_norm = 1;  // gradients of a larger norm are scaled to this norm
};

struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean per counted token, before the update
  double gradient_norm = 0;
  int64_t tokens = 0;  // tokens that counted in the loss
  // Score tiles of all layers: for one head, in clustered layers for each head
  // that picks. tiles_run is counted by the program; the program of a dense
  // spec counts none. tiles_planned is from the plans, which do not know picks.
  int64_t tiles_run = 0, tiles_planned = 0;
  // FLOPs of attention's products on all devices; a multiply and an add
  // count 2. Each pair of a planned tile takes 4 * head_dim forward, 10 *
  // head_dim backward, and 4 * head_dim more if blocks are recomputed. With a
  // dense spec all pairs count.
  double attention_flops = 0;
  // Planned tiles of the busiest device over the mean, summed over the layers;
  // each layer has its own busiest device.
  double tiles_max_over_mean = 1;
  // Bytes that attention sent along "seq", forward and backward, and the bytes
  // that gathering all keys and values would send.
  int64_t sent = 0, all_gather = 0;
  double plan_ms = 0, transfer_ms = 0, run_ms = 0;
};

struct TrainCounters : CompileCounts {
  double compile_ms = 0;
  std::vector<std::string> warnings;  // of the cache on disk
  // Warnings about what the plugin's programs compute.
  std::vector<std::string> plugin_warnings;
};

// Only one thread at a time may call a Trainer.
class Trainer {
 public:
  // Compiles the step and draws the initial parameters.
  static Result<Trainer> open(const TrainOptions& options);
  // Continues from a checkpoint, which is read before anything is compiled.
  // Here and below `name` is the checkpoint's name in errors: that of its file.
  static Result<Trainer> open(const TrainOptions& options,
                              std::string_view checkpoint,
                              std::string_view name = {});
  // Only compiles, for example to fill the cache or before restore(). There are
  // no parameters yet.
  static Result<Trainer> compile(const TrainOptions& options);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Runs one step. Rows must have the shape of the options, and ids in the
  // model's ranges. After an error of the device the state is unchanged or,
  // if the program had consumed it, lost until restore().
  Result<StepReport> step(const Rows& rows, const StepRates& rates);

  // The logits of each token, [rows, tokens, vocab], all held in memory at
  // once. The first call compiles their program.
  Result<std::vector<float>> logits(const Rows& rows);

  int64_t steps() const;  // steps done so far
  const std::vector<ModelParameter>& parameters() const;
  TrainCounters counters() const;
  const PluginPlace& place() const;

  // Parameters, both moments of each and the number of steps, as .safetensors.
  Result<std::string> checkpoint() const;
  // Whether a step would accept these rows. Errors number the rows from
  // `first`.
  static Result<void> check(const TrainOptions& options, const Rows& rows,
                            int64_t first = 0);
  // The smallest ceilings, in buckets, that all of these batches fit: one for
  // each mask, whatever ceilings the options have. Only useful if the options
  // have `shards`. `next` returns one batch after the other, then no rows.
  static Result<std::vector<ShardCeilings>> ceilings(
      const TrainOptions& options, const std::function<Result<Rows>()>& next);
  static Result<std::vector<ShardCeilings>> ceilings(
      const TrainOptions& options, const Rows& rows);

  // Restores a checkpoint of the same model. One without moments starts a new
  // run.
  Result<void> restore(std::string_view checkpoint, std::string_view name = {});

  // The StableHLO of the step that open() compiles.
  static Result<std::string> program_text(const TrainOptions& options);
  // Changes when the program changes.
  const std::string& program_key() const;
  // The fingerprint of the array specs on the mesh; "" on one device.
  const std::string& program_specs() const;
  // The lowering of the score tile; absent if no TPU's matrix unit computes it.
  const std::optional<Lowering>& lowering() const;

  struct State;

 private:
  explicit Trainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A Llama or Gemma 2 model, as the Hugging Face library stores it in a folder.
struct HuggingFaceModel {
  std::string config;                   // content of config.json
  std::vector<std::string> weights;     // content of each .safetensors file
  std::vector<std::string> names = {};  // names of `weights` in errors
  std::string config_name = {};         // name of `config` in errors
};
// Reads config.json and model.safetensors, or all files that
// model.safetensors.index.json names.
Result<HuggingFaceModel> read_hugging_face(const std::string& folder);
// Writes the model to a folder that is new or empty.
Result<void> write_hugging_face(const HuggingFaceModel& theirs,
                                const std::string& folder);

// Converts the model to a checkpoint without moments, which Trainer::restore()
// accepts as the start of a run. Arrays may be F32, BF16 or F16. An error names
// an array that is missing, unknown or of another shape, or a setting that
// Tessera does not have and that would change what the model computes.
Result<std::string> import_hugging_face(const HuggingFaceModel& model);
// Converts any checkpoint. If the model is neither a Llama nor a Gemma 2, the
// error names the setting that differs.
Result<HuggingFaceModel> export_hugging_face(std::string_view checkpoint,
                                             std::string_view name = {});

// The model that a checkpoint records.
Result<ModelConfig> checkpoint_model(std::string_view checkpoint,
                                     std::string_view name = {});

}  // namespace tessera
