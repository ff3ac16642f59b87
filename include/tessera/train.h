// tessera/train.h: trains a language model on packed rows. Each step is one
// program, compiled once; the state stays on the device.
//
//   auto trainer = Trainer::open(options);
//   auto told = trainer->step(rows, {.learning_rate = 3e-4});  // told->loss
//   auto bytes = trainer->checkpoint();  // a .safetensors file
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

// A decoder as data: its sizes, and which factory makes each of its slots on a
// lane. One model stays the same while kernels change.
//
//   auto spec = find_layer_spec("xla");       // or fill a LayerSpec
//   ModelConfig model;                        // sizes and settings
//   auto parameters = model_parameters(model, *spec);

// What a decoder block is made of.
enum class Slot : uint8_t {
  norm,
  linear_qkv,
  linear_proj,
  linear_fc1,
  linear_fc2,
  attention,
  layernorm_mlp,  // norm, fc1, fc2 in one, which keeps its input alone
};
inline constexpr size_t kSlots = 7;
std::string_view to_string(Slot slot);  // "linear_qkv"

// The names of the factories of a lane; "" is a slot without one.
struct LayerSpec {
  std::string name;
  std::array<std::string, kSlots> factories;

  const std::string& of(Slot slot) const {
    return factories[static_cast<size_t>(slot)];
  }
  std::string& of(Slot slot) { return factories[static_cast<size_t>(slot)]; }
};

// "reference": plain StableHLO, its attention over every pair. "xla": attention
// over the plan's worklist. "tpu": attention by the kernels of mosaic.h, which
// run on a TPU alone. "cpu": attention by this library's own CPU kernels, which
// the program calls: not every plugin for the CPU can.
Result<LayerSpec> find_layer_spec(std::string_view name);
std::vector<std::string> layer_spec_names();
// The plugin for programs of the spec if none is named. Of a CPU it is one that
// takes the memory of a step's state for the next, and gives the same results
// each time on several devices (docs/train.md).
std::string default_plugin(const LayerSpec& spec);

enum class NormKind : uint8_t { rms, layer };
enum class MlpKind : uint8_t {
  swiglu,  // silu(gate) * up
  geglu,   // gelu(gate) * up
  gelu,    // gelu(up)
};
std::string_view to_string(NormKind kind);
std::string_view to_string(MlpKind kind);

// How a layer picks, if its attention is clustered: each query attends to some
// blocks of keys, its own and those that score best. The router is part of the
// program, and no gradient goes through it.
struct LayerRoute {
  int64_t top = 0;  // blocks that a query picks; 0: the layer is not clustered
  int64_t block = 0;                    // keys of each, which are pooled to one
  RouteRule rule = RouteRule::kv_head;  // or query_head

  bool operator==(const LayerRoute&) const = default;
};
// The settings with which the host's router picks the same.
RouteSettings settings_of(const LayerRoute& route);
std::string to_string(const LayerRoute& route);  // "routed(4, 64) by kv-head"

struct ModelConfig {
  int64_t vocab = 256;
  int64_t layers = 2;
  int64_t width = 64;  // of the residual stream
  int64_t heads = 4, kv_heads = 2, head_dim = 16;
  int64_t mlp_width = 192;
  NormKind norm = NormKind::rms;
  MlpKind mlp = MlpKind::swiglu;
  bool fused_mlp = true;    // layernorm_mlp, else norm, fc1 and fc2
  bool tied_head = true;    // the head is the embedding
  bool post_norms = false;  // a norm behind attention and behind the MLP too
  double embedding_scale = 1;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  // If the factor is above 1, turns of RoPE that take more than rope_tokens /
  // rope_low tokens are slower by the factor, those that take fewer than
  // rope_tokens / rope_high do not change, and those between are blended.
  double rope_factor = 1, rope_low = 1, rope_high = 4, rope_tokens = 8192;
  double softcap = 0;        // of scores; 0 is off
  double final_softcap = 0;  // of logits
  double score_scale = 0;    // 0: 1 / sqrt(head_dim)
  // How many keys before itself a query sees, one number a layer, repeated from
  // the first where there are more layers; 0: all of its document. Empty: all.
  std::vector<int64_t> windows;
  // Which layers are clustered, repeated in the same way. Empty: no layer.
  std::vector<LayerRoute> routes;
  // Columns of a row's structure (tessera/data.h) by name, and how many ids
  // each has. Each has an embedding, which is added to the token's. Id 0 is
  // none.
  std::map<std::string, int64_t> columns;

  bool operator==(const ModelConfig&) const = default;
};

// A JSON object of these names; one that is missing keeps its default.
Result<ModelConfig> parse_model_config(std::string_view json);
std::string to_json(const ModelConfig& config);
// Whether sizes divide, are in range, and together fit.
Result<void> check_model(const ModelConfig& config);

// The types that a model is computed in, the same for all specs. Only the type
// of products can be chosen.
struct Precision {
  Dtype products = Dtype::f32;  // operands of matrix products; or bf16
};
// The type of each: "products", and "attention", whose arrays have that type;
// then "softmax", "norms", "residual", "loss", "gradients", "parameters" and
// "moments", which are float32.
std::vector<std::pair<std::string, Dtype>> precision_plan(const Precision& p);

// A learned array, float32.
struct ModelParameter {
  std::string name;  // "layers.0.linear_qkv.weight"
  std::vector<int64_t> shape;
  double fill = 0;       // before training: this number
  double deviation = 0;  // plus a normal draw of this deviation
  // Mesh axes that split each dimension, or ""; a vocabulary that does not
  // divide stays whole.
  std::vector<std::string> axes;
  // Sizes of the sections of the split dimension that are split one by one: q,
  // k and v of linear_qkv. Empty: the dimension is one section.
  std::vector<int64_t> sections = {};

  int64_t size() const;
};

// All parameters of a model, in the order of its programs. A spec with an empty
// slot, or with an unknown factory, is an error here.
Result<std::vector<ModelParameter>> model_parameters(const ModelConfig& config,
                                                     const LayerSpec& spec);

// What a slot takes and gives in every spec: the sizes of each array, 0 where
// the batch decides. All are float32. A slot rounds what it multiplies as the
// precision says, attention its q, k and v.
struct SlotArrays {
  std::vector<std::vector<int64_t>> inputs, outputs;
};
SlotArrays slot_arrays(Slot slot, const ModelConfig& config);

// Bytes of a slot's arrays, as its program has them. Forward a slot reads
// inputs and parameters, and writes outputs and what it keeps, which may be an
// input. Backward it reads gradients of outputs, parameters and what it kept,
// and writes gradients of inputs and parameters.
struct SlotBytes {
  int64_t inputs = 0;  // of attention with the integers of its plan
  int64_t parameters = 0, outputs = 0, kept = 0;
  int64_t read_back = 0, written_back = 0;

  bool operator==(const SlotBytes&) const = default;
};

// What a slot takes of each device in a step, over all layers, forward and
// backward. The second forward of recomputed blocks is not counted.
struct SlotWork {
  std::string slot;  // or "activation", of an MLP that is not fused
  // Of products, multiply and add. Absent where they depend on the batch: a
  // step tells those (StepReport::attention_flops).
  std::optional<double> flops, flops_back;
  SlotBytes bytes;
};

// AdamW; matrices decay, norms do not.
struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

// How devices that share rows, along "seq", exchange keys and values without
// gathering all of them: each device has the tokens that the balance gives it,
// and the tiles that its queries need travel (tessera/shard.h).
struct TrainShards {
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  TileWork work;
  Evenness evenness;
  // One for each mask of the model, in the order in which its windows first
  // occur, or one for all masks. An open ceiling has room for every batch: no
  // step is refused, and rounds send as much as gathering would, with `tasks`
  // also q and out. Trainer::ceilings finds closer ones.
  std::vector<ShardCeilings> ceilings;
};
// Nothing for the exchange "gather". Ceilings of several masks have ';' between
// them.
Result<std::optional<TrainShards>> parse_train_shards(const ShardWords& words);
std::string to_string(const std::vector<ShardCeilings>& of_masks);

struct TrainOptions {
  ModelConfig model;
  LayerSpec spec;
  Precision precision;
  OptimizerSettings optimizer;
  int64_t rows = 1;    // of every step, on all devices
  int64_t tokens = 0;  // of a row
  // Rows are divided along the axis "data", their tokens along "seq"; heads,
  // the MLP's width and, where it divides, the vocabulary along "head", with
  // their parameters and moments. Other parameters are whole on each device. No
  // axis: one device.
  Mesh mesh;
  // Absent: along "seq" each device has the next part of a row, and gathers all
  // keys and values.
  std::optional<TrainShards> shards;
  Tile tile = {};
  bool recompute = false;  // blocks keep their input alone
  uint64_t seed = 0;       // of the parameters before the first step
  // The plugin, and where programs are kept. No plugin: default_plugin's.
  XlaOptions xla;
};

// Slots in the order of a block, that of the model's options on its mesh.
Result<std::vector<SlotWork>> model_work(const TrainOptions& options);

struct StepRates {
  double learning_rate = 0;
  double max_norm = 1;  // gradients longer than this are scaled down to it
};

struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // a token, before the step
  double gradient_norm = 0;
  int64_t tokens = 0;  // that counted
  // Score tiles of all layers: for one head, in clustered layers for each head
  // that picks. What the program counted, and what the plans have, which know
  // no picks. The program of a dense spec counts none.
  int64_t tiles_run = 0, tiles_planned = 0;
  // Of attention's products on all devices, multiply and add: for each pair of
  // tokens in a planned tile 4 head dims forward, 10 backward, and 4 more where
  // blocks are computed again. The program of a dense spec takes every pair.
  double attention_flops = 0;
  // Planned tiles of the busiest device over the mean, over all layers, each
  // with its own busiest device.
  double tiles_max_over_mean = 1;
  // Bytes that attention sent along "seq", there and back, and what gathering
  // all keys and values would send.
  int64_t sent = 0, all_gather = 0;
  double plan_ms = 0, transfer_ms = 0, run_ms = 0;
};

struct TrainCounters : CompileCounts {
  double compile_ms = 0;
  std::vector<std::string> warnings;         // of the cache on disk
  std::vector<std::string> plugin_warnings;  // of what its programs compute
};

// One thread at a time may call it.
class Trainer {
 public:
  // Compiles the step, and draws the parameters.
  static Result<Trainer> open(const TrainOptions& options);
  // Goes on from a checkpoint; it is read before anything is compiled. Here and
  // below `name` is how errors call a checkpoint: its file's.
  static Result<Trainer> open(const TrainOptions& options,
                              std::string_view checkpoint,
                              std::string_view name = {});
  // Only compiles; draws and sends nothing. For the cache, or before restore().
  static Result<Trainer> compile(const TrainOptions& options);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Rows must have the shape of the options, and ids that the model has. After
  // an error of the device the state is what it was or, if the program had
  // taken it, lost until restore().
  Result<StepReport> step(const Rows& rows, const StepRates& rates);

  // Of each token, [rows, tokens, vocab]. All of them are there at once, and
  // the first call compiles their program.
  Result<std::vector<float>> logits(const Rows& rows);

  int64_t steps() const;  // so far
  const std::vector<ModelParameter>& parameters() const;
  TrainCounters counters() const;
  const PluginPlace& place() const;

  // Parameters, both moments of each and the number of steps, as .safetensors.
  Result<std::string> checkpoint() const;
  // Whether a step would take these rows; `first` is the number that an error
  // gives the first of them.
  static Result<void> check(const TrainOptions& options, const Rows& rows,
                            int64_t first = 0);
  // The ceilings that all of these batches fit, in buckets, one for each mask,
  // whatever ceilings the options have. Of use only where the options have
  // `shards`. `next` gives one batch after the other, and no rows after the
  // last.
  static Result<std::vector<ShardCeilings>> ceilings(
      const TrainOptions& options, const std::function<Result<Rows>()>& next);
  static Result<std::vector<ShardCeilings>> ceilings(
      const TrainOptions& options, const Rows& rows);

  // Of the same model. Without moments it is the start of a new run.
  Result<void> restore(std::string_view checkpoint, std::string_view name = {});

  // What open() compiles, for any compiler.
  static Result<std::string> program_text(const TrainOptions& options);
  // Changes when the program changes.
  const std::string& program_key() const;
  // The fingerprint of how its arrays lie on the mesh; "" on one device.
  const std::string& program_specs() const;
  // The tile of scores where a TPU's matrix unit takes it.
  const std::optional<Lowering>& lowering() const;

  struct State;

 private:
  explicit Trainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A Llama or a Gemma 2 as Hugging Face's library keeps it in a folder.
struct HuggingFaceModel {
  std::string config;                   // config.json
  std::vector<std::string> weights;     // each file of .safetensors, whole
  std::vector<std::string> names = {};  // how errors call these
  std::string config_name = {};         // and the config
};
// model.safetensors, or all files that model.safetensors.index.json names.
Result<HuggingFaceModel> read_hugging_face(const std::string& folder);
// Into a folder that is new or empty.
Result<void> write_hugging_face(const HuggingFaceModel& theirs,
                                const std::string& folder);

// The start of a run, which Trainer::restore() takes: parameters alone, and the
// model. Arrays may be F32, BF16 or F16; one that is missing, that has another
// shape or that the model has no place for is refused by its name, and so is a
// setting that would change what the model computes.
Result<std::string> import_hugging_face(const HuggingFaceModel& model);
// From any checkpoint. A model that is neither a Llama nor a Gemma 2 is refused
// by the setting that tells.
Result<HuggingFaceModel> export_hugging_face(std::string_view checkpoint,
                                             std::string_view name = {});

// The model that a checkpoint says it is of.
Result<ModelConfig> checkpoint_model(std::string_view checkpoint,
                                     std::string_view name = {});

}  // namespace tessera
