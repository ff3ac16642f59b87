// receipt/fields.h: every field of a receipt, listed once: its path, its
// member, what it may hold, which receipts have it, whether verify compares it,
// and what it means. The writer, the reader, the schema and the table in docs/
// all visit this list; a new field is a member of Receipt and its row here.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

#include "receipt/receipt.h"

namespace tessera::receipt {

// Which receipts have the field: sums of values of Kind.
enum class FieldOf : uint8_t {
  plan = 1,
  operation = 2,
  run = 3,  // plan or operation: a lane ran
  training = 4,
  planned = 5,
  unplanned = 6,
  all = 7
};

// Whether a second run must give the same value. if_compiled_only is for
// fields that depend on the history of a run, such as cache hits, but are fixed
// for a kernel that was only compiled.
enum class Repeats : uint8_t { always, if_compiled_only, never };

using TextList = std::span<const std::string_view>;

// What a value may be, beyond its C++ type.
struct FieldRule {
  std::string_view def = {};  // a definition of the schema: "digest"
  TextList one_of = {};       // one of these; of a bool: false, true
  TextList keys = {};         // allowed keys of a map
  size_t most = 0;            // items of a list; 0: any number
  bool constant = false;      // the only value is a default Receipt's
  bool or_null = false;       // an empty text is written as null
  bool json = false;          // the text is itself JSON: an object
  bool present = true;        // false: the writer leaves the field out
  bool optional = false;      // may be left out
  FieldOf of = FieldOf::all;
  Repeats repeats = Repeats::always;
};

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

namespace allowed {
using Texts = const std::string_view[];
inline constexpr Texts kLanes = {"cpu",    "xla",  "mosaic",   "jax_bridge",
                                 "splash", "cuda", "reference"};
inline constexpr Texts kRequested = {"auto",   "cpu",        "xla",
                                     "mosaic", "jax_bridge", "splash",
                                     "cuda",   "reference"};
inline constexpr Texts kRunning = {"cpu",        "xla",    "mosaic",
                                   "jax_bridge", "splash", "reference"};
inline constexpr Texts kFallback = {"cpu", "xla", "mosaic", "reference"};
inline constexpr Texts kWithKernels = {"cpu", "mosaic", "splash", "cuda"};
inline constexpr Texts kSources = {"flag", "caller", "default", "command"};
inline constexpr Texts kFamilies = {"native",  "reference",  "tpu/mosaic",
                                    "tpu/jax", "tpu/splash", "tpu/xla",
                                    "cuda",    "xla"};
inline constexpr Texts kModes = {"executed", "compiled only"};
inline constexpr Texts kIsas = {"portable", "avx2", "avx512", "avx512bf16",
                                "amx"};
inline constexpr Texts kMethods = {"worklist", "chunked", "dense"};
inline constexpr Texts kNumbers = {"finite", "any"};
inline constexpr Texts kRowSums = {"exact", "rounded"};
inline constexpr Texts kBalances = {"contiguous", "headtail", "rows", "tasks"};
inline constexpr Texts kExchanges = {"rounds", "ragged", "gather"};
inline constexpr Texts kTrainExchanges = {"gather", "rounds", "ragged"};
inline constexpr Texts kSettings = {"tile", "forward", "backward"};
inline constexpr Texts kDirections = {"forward", "forward+backward"};
inline constexpr Texts kGradients = {"stop_gradient", "differentiable"};
inline constexpr Texts kDtypes = {"f32", "bf16", "f16"};
inline constexpr Texts kLayouts = {"bhsd", "bshd", "strided"};
inline constexpr Texts kChecks = {"none", "sampled", "full"};
inline constexpr Texts kClasses = {"sparse blocks", "custom", "plain causal",
                                   "other"};
// The verdicts of rows that decide a choice or keep a lane out.
inline constexpr Texts kVerdicts = {"promote", "experimental", "delete",
                                    "wrong", "out of the hot loop"};
inline constexpr Texts kJudgements = {"passed", "wrong", "unjudged"};
inline constexpr Texts kBases = {"measured", "predicted"};
inline constexpr Texts kRules = {"kv-head", "query-head", "query-tile"};
inline constexpr Texts kUnions = {"bitmap", "sort"};
inline constexpr Texts kMeanings = {"exact", "union"};
inline constexpr Texts kSlots = {"norm",         "linear_qkv", "linear_proj",
                                 "linear_fc1",   "linear_fc2", "attention",
                                 "layernorm_mlp"};
inline constexpr Texts kParts = {"norm",          "linear_qkv", "linear_proj",
                                 "linear_fc1",    "linear_fc2", "attention",
                                 "layernorm_mlp", "activation"};
inline constexpr Texts kPrecise = {"BF16", "F32"};
}  // namespace allowed

// A visitor is called with (path, member, rule, meaning) of each field.

void visit_fields(Is<Receipt::Plugin> auto& p, auto&& field) {
  field("file", p.file, {}, "The plugin's file");
  field("api", p.api, {}, "Its version of the PJRT API");
  field("platform", p.platform, {}, "In the plugin's own words");
  field("platform_version", p.platform_version, {}, "");
  field("device", p.device, {}, "");
  field("number", p.number, {}, "The device's number among the plugin's");
}

void visit_fields(Is<Receipt::Moved> auto& m, auto&& field) {
  field("needed", m.needed, {}, "That had to travel");
  field("sent", m.sent, {}, "That did, padding of static sizes included");
  field("capacity", m.capacity, {}, "That the program had room for");
  field("busiest", m.busiest, {},
        "Of those needed, that left or reached one shard, at most");
  field("all_gather", m.all_gather, {},
        "That an all-gather of K and V would send; backward with a "
        "reduce-scatter of their gradients");
}

void visit_fields(Is<Receipt::Shards> auto& s, auto&& field) {
  using namespace allowed;
  field("mesh", s.mesh, {}, "The axes of the mesh, the last the fastest");
  field("balance", s.balance, {.one_of = kBalances},
        "How rows or tasks were spread, and whether shards were padded");
  field("uneven", s.uneven, {}, "");
  field("exchange", s.exchange, {.one_of = kExchanges},
        "How tiles travelled: in rounds of static size, in one exchange of "
        "sizes told at run time, or by an all-gather of K and V");
  field("ceilings", s.ceilings,
        {.present = !s.ceilings.empty(), .optional = true},
        "What a shard could hold at most, where that was told");
  field("work", s.work, {.present = !s.work.empty(), .optional = true},
        "What a tile of each class counted, where not 1");
  field("evenness", s.evenness,
        {.present = !s.evenness.empty(), .optional = true},
        "The most that a shard was to have over the mean, where that was told");
  field("specs", s.specs, {.def = "digest"},
        "For each direction the fingerprint of its program: of the mesh, and "
        "of name, dtype, shape and sharding of every argument and result");
  field("contract", s.contract, {.def = "digest"},
        "The key of the shards' contract");
  field("work_max_over_mean", s.work_max_over_mean, {.def = "number0"},
        "The steps of the busiest shard, by their work, over the mean");
  field("tokens_max_over_mean", s.tokens_max_over_mean, {.def = "number0"},
        "The queries of the shard that has most over their mean");
  field("forward", s.forward, {}, "Bytes between the devices, forward");
  field("backward", s.backward, {},
        "The same of a backward pass; null where there was none");
}

void visit_fields(Is<Receipt::Lowering> auto& l, auto&& field) {
  field("chip", l.chip, {}, "The TPU, as v6e");
  field("granule", l.granule, {}, "A side of its matrix unit");
  field("tile", l.tile, {},
        "The queries and keys of a tile; of xla's chunked program all queries "
        "by a tile's keys");
  field("reason", l.reason, {},
        "Why a tile or a logical block below the granule was lowered; null of "
        "others");
  field("factor", l.factor, {.def = "number0"},
        "The pairs of the whole granules around a tile over its own");
  field("paid_pairs", l.paid_pairs, {},
        "Those of all tiles whose pairs are pairs.run; of a training run of "
        "tiles_run");
}

void visit_fields(Is<Receipt::Machine::Plugin> auto& p, auto&& field) {
  field("name", p.name, {}, "The plugin, in its own words");
  field("platform", p.platform, {}, "");
  field("devices", p.devices, {}, "How many devices it has");
  field("generation", p.generation, {.or_null = true},
        "Of its TPUs, as targets name it: v6e; null where it is not known");
}

void visit_fields(Is<Receipt::Array> auto& a, auto&& field) {
  field("name", a.name, {}, "An array of the file of shapes");
  field("dtype", a.dtype, {}, "");
  field("shape", a.shape, {}, "");
}

void visit_fields(Is<Receipt::Artifact> auto& a, auto&& field) {
  constexpr auto kOf = FieldOf::operation;
  field("file", a.file, {.or_null = true},
        "The files it was in; null where the caller had it in memory");
  field("shapes_file", a.shapes_file, {.or_null = true}, "");
  field("bytes", a.bytes, {.of = kOf}, "The program's size");
  field("digest", a.digest, {.def = "digest"},
        "The digest of the program and its shapes");
  field("jax", a.jax, {.of = kOf}, "The version of JAX that exported it");
  field("calling_convention_version", a.calling_convention_version, {.of = kOf},
        "The calling convention of jax.export");
  field("platforms", a.platforms, {.of = kOf},
        "The platforms it was exported for");
}

void visit_fields(Is<GateRow> auto& r, auto&& field) {
  using namespace allowed;
  field("kernel", r.kernel, {}, "The kernel");
  field("lane", r.lane, {.one_of = kWithKernels}, "");
  field("basis", r.basis, {.one_of = kBases},
        "Whether times were measured on the machine, or cycles predicted from "
        "the vendor's schedule for every machine whose TPUs are of the "
        "generation; the other of both is null");
  field("machine", r.machine, {.or_null = true}, "");
  field("generation", r.generation, {.or_null = true}, "");
  field("class", r.request_class, {.one_of = kClasses}, "The request");
  field("mask", r.mask, {}, "");
  field("direction", r.backward, {.one_of = kDirections}, "");
  field("dtype", r.dtype, {.one_of = kDtypes}, "");
  field("q_len", r.q_len, {}, "");
  field("kv_len", r.kv_len, {}, "");
  field("heads", r.shape.heads, {}, "");
  field("kv_heads", r.shape.kv_heads, {}, "");
  field("head_dim", r.shape.head_dim, {}, "");
  field("v_head_dim", r.shape.v_head_dim, {}, "");
  field("softcap", r.shape.softcap, {.def = "number0"}, "");
  field("density", r.density, {.def = "number0"}, "");
  field("tile", r.tile, {.present = r.tile.has_value(), .optional = true},
        "The queries and keys of the kernel's tile, where it is known");
  field("kernel_ms", r.kernel_ms, {.def = "number0"},
        "How long our kernel took, and how long plain XLA took; null where "
        "nothing was timed");
  field("plain_ms", r.plain_ms, {.def = "number0"}, "");
  field("kernel_cycles", r.kernel_cycles, {.def = "number0"},
        "How many cycles are predicted of both; null where none are");
  field("plain_cycles", r.plain_cycles, {.def = "number0"}, "");
  field("error_bar", r.error_bar, {.def = "number0"},
        "Of cycles: two predictions that differ by less are a tie");
  field("plain", r.plain, {.one_of = kMethods},
        "The fastest program of plain XLA");
  field("factor", r.factor, {.def = "number0"},
        "Plain XLA's time or cycles over the kernel's; null without them");
  field("judgement", r.judgement, {.one_of = kJudgements},
        "Whether the output was within the bounds of the fp64 judge");
  field("error", r.error, {.def = "number0"},
        "The worst error, as a share of its bound; null: not judged");
  field("shape_per_step", r.shape_per_step, {},
        "Whether the kernel needs a choice of shape each step");
  field("verdict", r.verdict, {.one_of = kVerdicts},
        "The verdict over all rows of the kernel; and why this row has no "
        "figures or no judgement, or how it was judged");
  field("why", r.why, {}, "");
}

void visit_fields(Is<RouteSettings> auto& s, auto&& field) {
  using namespace allowed;
  field("rule", s.rule, {.one_of = kRules}, "Who picks");
  field("top", s.top, {}, "Blocks that a query picks");
  field("block", s.block, {}, "Keys of a block");
  field("compression", s.compression, {}, "Keys that are pooled to one");
  field("stride", s.stride, {}, "From one pooled key to the next");
  field("query_tile", s.query_tile, {}, "Queries that share a union");
  field("kv_tile", s.kv_tile, {}, "Keys of a routing tile");
  field("sink_blocks", s.sink_blocks, {}, "First blocks that are forced");
  field("hierarchical", s.hierarchical, {},
        "Whether groups of blocks are scored first");
  field("meta_ratio", s.meta_ratio, {}, "Blocks of a group");
  field("top_metas", s.top_metas, {}, "Groups that a query keeps");
  field("union_by", s.union_method, {.one_of = kUnions},
        "How unions are found");
  field("meaning", s.meaning, {.one_of = kMeanings},
        "Whether a query sees its own picks or its tile's union");
  field("strict", s.strict, {}, "Whether an illegal pick is an error");
}

void visit_fields(Is<Receipt::Phase> auto& p, auto&& field) {
  using namespace allowed;
  field("name", p.name, {}, "A phase and its stages");
  field("stages", p.stages, {}, "");
  field("gradient", p.differentiable, {.one_of = kGradients},
        "Whether a gradient flows through it");
}

void visit_fields(Is<Receipt::Routing> auto& r, auto&& field) {
  field("given", r.given, {},
        "Whether the picks were given and not made by this run");
  field("settings", r.settings, {},
        "The router's settings; of given picks only slots, block, tile and "
        "meaning are known");
  field("heads", r.heads, {}, "How many heads pick");
  field("picks", r.picks, {}, "Picks that legality left");
  field("removed", r.removed, {}, "Picks that were not legal");
  field("union_blocks", r.union_blocks, {},
        "The blocks of all unions, and of how many tile rows these are");
  field("tile_rows", r.tile_rows, {}, "");
  field("widest_union", r.widest_union, {},
        "The blocks of the widest union, and how many the contract allows");
  field("union_capacity", r.union_capacity, {}, "");
  field("needed_keys", r.needed_keys, {},
        "Keys that some query of a tile row may see, and keys of its tiles, "
        "over all tile rows of the plan");
  field("read_keys", r.read_keys, {}, "");
  field("extra_bytes", r.extra_bytes, {},
        "Bytes of K and V that the forward pass of a layer reads because tile "
        "rows share tiles: those of read_keys less needed_keys, for every K/V "
        "head; beside all of K and V");
  field("cache_bytes", r.cache_bytes, {}, "");
  field("phases", r.phases, {}, "The phases in order");
}

void visit_fields(Is<Receipt::SinkTelemetry::Document> auto& d, auto&& field) {
  field("batch_row", d.batch_row, {}, "");
  field("document", d.document, {},
        "Its id, or the segment's number; null where no mask names documents "
        "or segments: then it is the batch row");
  field("queries", d.queries, {},
        "By query head: its queries that have a legal key, and the means over "
        "them; null where one is not finite");
  field("mass", d.mass, {.def = "number0"}, "");
  field("entropy", d.entropy, {.def = "number0"}, "");
}

void visit_fields(Is<Receipt::SinkTelemetry> auto& s, auto&& field) {
  field("first_keys", s.first_keys, {},
        "The mass is that of so many first keys of each document");
  field("mass_digest", s.mass_digest, {.def = "digest"},
        "The digests of mass and entropy of every query of every head");
  field("entropy_digest", s.entropy_digest, {.def = "digest"}, "");
  field("documents", s.documents, {}, "As their first queries come");
}

void visit_fields(Is<Receipt::Training::Work> auto& w, auto&& field) {
  field("slot", w.slot, {.one_of = allowed::kParts},
        "In the order of a block; activation is that of an MLP whose slots are "
        "apart");
  field("flops", w.flops, {.def = "number0"},
        "Of its products, multiply and add, forward and on the way back; null "
        "where they are the batch's");
  field("flops_back", w.flops_back, {.def = "number0"}, "");
  field("bytes.inputs", w.inputs, {},
        "Bytes of its arrays by their types in the program: what it reads, of "
        "attention with the integers of its plan, what it writes, and what "
        "waits for the way back, which may be an input");
  field("bytes.parameters", w.parameters, {}, "");
  field("bytes.outputs", w.outputs, {}, "");
  field("bytes.kept", w.kept, {}, "");
  field("bytes.read_back", w.read_back, {},
        "What the way back reads, gradients of outputs, parameters and what "
        "was kept, and what it writes, gradients of inputs and parameters");
  field("bytes.written_back", w.written_back, {}, "");
}

void visit_fields(Is<Receipt::Training::Exchange> auto& e, auto&& field) {
  using namespace allowed;
  field("kind", e.kind, {.one_of = kTrainExchanges},
        "gather: each device had all keys and values of its rows; else tiles "
        "travelled as `shards.exchange` has it");
  field("balance", e.balance, {.one_of = kBalances},
        "Where tokens lay, or whose attention was done elsewhere");
  field("ceilings", e.ceilings,
        {.present = !e.ceilings.empty(), .optional = true},
        "What a shard could hold at most, of each mask");
  field("work", e.work, {.present = !e.work.empty(), .optional = true},
        "What a tile of each class counted, where not 1");
  field(
      "evenness", e.evenness,
      {.present = !e.evenness.empty(), .optional = true},
      "The most that a device was to have over the mean, where that was told");
  field("sent", e.sent, {},
        "Bytes that attention of all steps sent along seq, there and back, and "
        "what gathering would send");
  field("all_gather", e.all_gather, {}, "");
  field("tiles_max_over_mean", e.tiles_max_over_mean, {.def = "number0"},
        "Of all layers, each with its busiest device: planned tiles beside the "
        "mean; the mean of all steps");
}

// The fields of a training run, at the top level of its receipt.
void visit_training(Is<Receipt::Training> auto& t, auto&& field) {
  using namespace allowed;
  field("spec", t.spec, {}, "The layer spec");
  field("slots", t.slots, {.keys = kSlots}, "The factory of each slot");
  field("model", t.model, {.json = true},
        "Sizes and settings: what `--model` reads");
  field("parameters", t.parameters, {}, "Numbers that are learned");
  field("work", t.work, {},
        "What each slot takes of a device in a step, over all layers, without "
        "what recompute does again");
  field("mesh", t.mesh, {.or_null = true},
        "The axes of the mesh, or null on one device");
  field("specs", t.specs, {.def = "digest", .or_null = true},
        "The fingerprint of how the program's arrays lie on the mesh, or null");
  field("exchange", t.exchange, {},
        "How attention met keys of other devices, where the mesh divides the "
        "tokens of rows; else null");
  field("precision", t.precision, {.one_of = kPrecise},
        "What is computed in which type");
  field("program", t.program, {.def = "digest"}, "The digest of its StableHLO");
  field("rows", t.rows, {}, "Rows of each step, and tokens of each row");
  field("tokens", t.tokens, {}, "");
  field("tile", t.tile, {}, "The tile of scores");
  field("recompute", t.recompute, {}, "Whether blocks kept their input alone");
  field("rate", t.rate, {.def = "number0"},
        "The highest learning rate, the steps up to it, the longest gradient, "
        "the decay of matrices");
  field("warmup", t.warmup, {}, "");
  field("max_norm", t.max_norm, {.def = "number0"}, "");
  field("weight_decay", t.weight_decay, {.def = "number0"}, "");
  field("start", t.start, {.or_null = true},
        "The checkpoint that the run went on from, or null");
  field("first_step", t.first_step, {}, "The first step of this run");
  field("steps", t.steps, {}, "Steps in all, with those of the checkpoint");
  field("losses", t.losses, {}, "Of each step of this run, a token");
  field("tokens_that_count", t.counted, {}, "Tokens that the losses are of");
  field("tiles_run", t.tiles_run, {},
        "Score tiles of all layers and steps as the program counted them, of "
        "one head, of clustered layers of each head that picks; and those that "
        "the plans have");
  field("tiles_planned", t.tiles_planned, {}, "");
  field("attention_flops", t.attention_flops, {.def = "number0"},
        "Of the products of attention in all steps, multiply and add: 4 head "
        "dims a pair of tokens in a planned tile forward, 4 more where blocks "
        "are computed again, and 10 back; of a dense spec every pair");
  field("seconds", t.seconds, {.def = "number0", .repeats = Repeats::never},
        "All steps of this run, with reading their rows");
}

void visit_fields(Is<Receipt> auto& r, auto&& field) {
  using namespace allowed;
  constexpr auto kPlan = FieldOf::plan;
  constexpr auto kOperation = FieldOf::operation;
  constexpr auto kRun = FieldOf::run;
  constexpr auto kHistory = Repeats::if_compiled_only;
  constexpr auto kNever = Repeats::never;
  const bool checked = r.check.kind != "none";

  field("schema", r.schema, {.constant = true}, "The version of this format");
  field("tessera", r.version, {.repeats = kNever},
        "The version of the library");
  field("lane.requested", r.lane.requested,
        {.one_of = kRequested, .of = kRun, .repeats = kHistory},
        "The lane that was asked for; auto where the rules choose");
  field("lane.source", r.lane.source,
        {.one_of = kSources, .of = kRun, .repeats = kHistory},
        "Who asked for it: a flag, the caller of the library, nobody "
        "(default), or `tessera bridge` (command)");
  field("lane.chosen", r.lane.chosen, {.one_of = kLanes, .of = kRun},
        "The lane that was asked for, or the rules' choice");
  field("lane.executed", r.lane.executed,
        {.one_of = kRunning, .or_null = true, .of = kRun},
        "The lane that ran; null where nothing did");
  field("lane.family", r.lane.family, {.one_of = kFamilies, .of = kRun},
        "Whose code it was: native, our own kernels; reference; tpu/mosaic, "
        "our own kernels of a TPU; tpu/jax of the bridge and tpu/splash of "
        "Splash, on any device; or of a compiler, by the plugin's platform: "
        "tpu/xla for tpu, cuda for cuda, "
        "xla for any other, a CPU among them");
  field("lane.runtime_mode", r.lane.runtime_mode,
        {.one_of = kModes, .of = kRun, .repeats = kHistory},
        "executed: the lane ran, in this process; compiled only: nothing ran");
  field("lane.fallback_allowed", r.lane.fallback_allowed,
        {.one_of = kFallback, .of = kRun, .repeats = kHistory},
        "Lanes that may step in, in this order");
  field(
      "operation", r.operation, {.of = FieldOf::unplanned},
      "What the file of shapes calls it: attention, rms_norm, any word; train "
      "of a training run");
  field("name", r.name, {.of = kOperation}, "The name in that file");
  field("choice.class", r.choice.request_class,
        {.one_of = kClasses, .of = kPlan}, "The class of the request");
  field("choice.reason", r.choice.reason, {.of = kPlan}, "Why this lane");
  field("choice.rejected", r.choice.rejected, {.keys = kLanes, .of = kPlan},
        "Every other lane, with the reason against it");
  field("choice.gate", r.choice.gate, {.most = std::size(kLanes), .of = kPlan},
        "The rows of the gate's table that the choice went by, in the order in "
        "which they were asked: the one that spoke for the request, and one of "
        "each lane that was kept out");
  field("choice.rule", r.choice.rule, {.or_null = true, .of = kPlan},
        "The row of the table of thresholds that decided, or null");
  visit_training(r.training, [&](std::string_view path, auto& member,
                                 FieldRule rule, std::string_view meaning) {
    rule.of = FieldOf::training;
    field(path, member, rule, meaning);
  });
  constexpr FieldRule kMachine = {.of = kPlan, .repeats = kNever};
  field("machine.cpu", r.machine.cpu, kMachine,
        "What the choice knew of the machine");
  field("machine.system", r.machine.system, kMachine, "");
  field("machine.threads", r.machine.threads,
        {.def = "threads", .of = kPlan, .repeats = kNever}, "");
  field("machine.isas", r.machine.isas,
        {.one_of = kIsas, .of = kPlan, .repeats = kNever}, "");
  field("machine.loads_plugins", r.machine.loads_plugins, kMachine,
        "Whether the build can, and whether all known ones were looked for");
  field("machine.asked_plugins", r.machine.asked_plugins, kMachine, "");
  field("machine.plugins", r.machine.plugins, kMachine,
        "The known plugins that were found");
  field("isa", r.isa, {.one_of = kIsas, .of = kPlan},
        "The ISA of the kernels that ran; null where a plugin decides");
  field("threads", r.threads, {.def = "threads", .of = kPlan},
        "How many threads were allowed to work; null where a plugin decides");
  field("device", r.device, {.of = kPlan},
        "The CPU's own name, or the plugin's name for another device");
  field("plugin", r.plugin, {},
        "The PJRT plugin that compiled and ran it, or null");
  field("shards", r.shards, {.of = kPlan},
        "Where a mesh of the plugin's devices ran it: how it was spread and "
        "what travelled; else null");
  field("lowering", r.lowering, {.of = FieldOf::planned},
        "What a TPU's matrix unit pays for the tiles, by arithmetic, where it "
        "took them; else null");
  field("method", r.method, {.one_of = kMethods, .or_null = true, .of = kPlan},
        "The program of the xla lane, else null");
  field("numbers", r.numbers,
        {.one_of = kNumbers, .or_null = true, .of = kPlan},
        "Which numbers the mosaic lane's kernels may read: any, or finite "
        "alone, which the caller promised; else null");
  field("row_sum", r.row_sum,
        {.one_of = kRowSums, .or_null = true, .of = kPlan},
        "What the mosaic lane's forward kernel divides probabilities by: exact "
        "sums, or rounded ones; else null");
  field("artifact", r.artifact, {.of = kRun},
        "What JAX exported and the bridge or splash ran, else null");
  field("parameters", r.parameters, {.of = kPlan},
        "tiles_per_pass, fetch_ahead, any_numbers, row_sum_rounded or dlse, "
        "page_steps where it was said, and query_chunk where there is one, of "
        "a kernel that was only compiled");
  field("settings", r.settings,
        {.keys = kSettings, .of = kPlan, .repeats = kNever},
        "Of our TPU kernels: who chose the tile, and by direction tiles a "
        "pass, and queries a chunk where they come in chunks, with who chose "
        "them: the request, a row of the table, or the default");
  field("direction", r.backward, {.one_of = kDirections, .of = kPlan},
        "Whether gradients were computed");
  field("request", r.request, {.of = kPlan},
        "A spec that plans the same again");
  field("plan_file", r.plan_file, {.or_null = true, .of = kPlan},
        "The saved plan that was used in place of the request, or null");
  field("facts_digest", r.facts_digest, {.def = "digest", .of = kPlan},
        "The digest of all ids, counts, offsets, prefixes and picks");
  field("shape.heads", r.shape.attention.heads, {.of = kPlan},
        "The sizes of the arrays, their dtype and their layout");
  field("shape.kv_heads", r.shape.attention.kv_heads, {.of = kPlan}, "");
  field("shape.head_dim", r.shape.attention.head_dim, {.of = kPlan}, "");
  field("shape.v_head_dim", r.shape.attention.v_head_dim, {.of = kPlan}, "");
  field("shape.dtype", r.shape.dtype, {.one_of = kDtypes, .of = kPlan}, "");
  field("shape.layout", r.shape.layout, {.one_of = kLayouts, .of = kPlan}, "");
  field("shape.scale", r.shape.scale, {.of = kPlan},
        "The scale as it was used");
  field("shape.softcap", r.shape.attention.softcap,
        {.def = "number0", .of = kPlan}, "The softcap; 0 is off");
  field("shape.sink_logits", r.shape.sink_logits, {.of = kPlan},
        "Whether there are sink logits");
  field(
      "inputs.seed", r.inputs.seed, {},
      "The seed of drawn arrays and of a sampled check; of a training run that "
      "of its first parameters, 0 where they are a checkpoint's");
  field("inputs.file", r.inputs.file, {.or_null = true},
        "The file that the other arrays came from, or null; of a training run "
        "its "
        "rows");
  field("inputs.drawn", r.inputs.drawn, {.of = kRun},
        "The arrays that were drawn");
  field("inputs.arrays", r.inputs.arrays, {.of = kOperation},
        "The inputs in the order of the program");
  field("inputs.digests", r.inputs.digests, {.def = "digest"},
        "The digest of each array that the lane was given; of a training run "
        "those "
        "of its rows and of the checkpoint that it went on from (start)");
  field("outputs", r.outputs, {.of = kOperation},
        "The outputs in the order of the program");
  field("key.digest", r.key.digest, {.def = "digest", .of = kOperation},
        "The key of the program");
  field("key.wider", r.key.wider, {.constant = true, .of = kOperation},
        "That the key is wider than a kernel contract, and why");
  field("key.of", r.key.of, {.of = kOperation}, "");
  field("key.terms", r.key.terms, {.json = true, .of = kOperation},
        "Everything that the key is made of");
  field("contract", r.contract, {.def = "digest", .of = kPlan},
        "The key of the plan contract");
  field("kernels", r.kernels, {.def = "digest", .of = kPlan},
        "The keys of kernel contracts by direction, of lanes that compile");
  field("plan.digest", r.plan_digest,
        {.def = "digest", .or_null = true, .of = kPlan},
        "The digest of both worklists; null where there is no plan");
  field("tiles.run", r.tiles_run, {.of = kPlan},
        "Tiles of the plan over all heads, counted by the forward pass; of "
        "xla's chunked and dense programs, which ask no worklist, all; 0 of "
        "the reference, which has none, and of the bridge, whose program "
        "nobody here can count");
  field("tiles.skipped", r.tiles_skipped, {.of = kPlan}, "");
  field("pairs.legal", r.pairs_legal, {.of = kPlan},
        "Query-key pairs over all heads, by the plan");
  field("pairs.run", r.pairs_run, {.of = kPlan},
        "Scores that the forward pass computed; of xla's worklist program all "
        "that its tiles hold");
  field("routing", r.routing, {.of = kPlan},
        "What was routed, where a mask names picks; else null");
  field("compiles", r.compiles, {.repeats = kHistory},
        "How often the compiler really ran, for all programs of the run");
  field("cache_hits.memory", r.cache_hits.memory, {.repeats = kHistory},
        "Programs that came from memory or disk instead");
  field("cache_hits.disk", r.cache_hits.disk, {.repeats = kHistory}, "");
  field("fallback", r.fallback, {.of = kRun, .repeats = kHistory},
        "Why lane.executed is not lane.chosen, else null");
  constexpr FieldRule kMs = {.def = "number0", .repeats = kNever};
  constexpr FieldRule kPlanMs = {
      .def = "number0", .of = kPlan, .repeats = kNever};
  field("ms.route", r.route_ms, kPlanMs,
        "Routing, q and k in memory to picks, or judging given ones; else 0");
  field("ms.plan", r.plan_ms,
        {.def = "number0", .of = FieldOf::planned, .repeats = kNever},
        "Facts in memory to both lists; 0 for a saved plan; of a training run "
        "those of all steps");
  field("ms.prepare", r.prepare_ms, kPlanMs,
        "Making the lane ready for the plan");
  field("ms.compile", r.compile_ms, kMs,
        "Compiling, or loading what was compiled");
  field(
      "ms.transfer", r.transfer_ms, kMs,
      "Arrays to the device and back; both directions together; of a training "
      "run those of all steps");
  field("ms.run", r.run_ms,
        {.def = "number0", .of = FieldOf::unplanned, .repeats = kNever},
        "One run; of a training run all steps");
  field("ms.forward", r.forward_ms, kPlanMs,
        "One run each, the first; with its arrays on the device");
  field("ms.backward", r.backward_ms, kPlanMs, "");
  field("ms.total", r.total_ms, kPlanMs, "The sum of the others");
  field("gflops.useful", r.useful_gflops, kPlanMs,
        "4 D operations a legal pair forward, 14 D with backward, D the mean "
        "of the two head dims, over ms.forward and ms.backward");
  field("warnings", r.warnings, {.repeats = kHistory},
        "Warnings of the lane and of the cache on disk; of a training run of "
        "the plugin too");
  field("check.kind", r.check.kind, {.one_of = kChecks, .of = kRun},
        "Whether outputs were compared with fp64");
  field("check.rows", r.check.rows, {.of = kRun},
        "How many rows were compared");
  const FieldRule result = {
      .def = "number0", .present = checked, .optional = true, .of = kRun};
  field("check.max_error", r.check.max_error, result, "The largest difference");
  field("check.max_bound_ratio", r.check.max_bound_ratio, result,
        "The largest share of its bound that an element used");
  field("check.passed", r.check.passed,
        {.present = checked, .optional = true, .of = kRun},
        "Whether no element went beyond its bound");
  field("check.worst", r.check.worst,
        {.present = checked, .optional = true, .of = kRun},
        "The element that used most");
  field(
      "sink_telemetry", r.sink_telemetry,
      {.present = r.sink_telemetry.has_value(), .optional = true, .of = kPlan},
      "The mass on the first keys, and the entropy in nats, where they were "
      "asked for");
  field("output.digest", r.output_digest, {.def = "digest", .or_null = true},
        "XXH3, 128 bits, of all outputs: out, lse, dq, dk, dv, dsink_logits, "
        "their rows in the order [batch, heads, tokens]; of an operation its "
        "outputs in their order; of a training run the checkpoint behind its "
        "last "
        "step. Null where nothing ran");
  field("receipt_digest", r.digest, {.def = "digest", .repeats = kNever},
        "XXH3, 128 bits, of all other fields as JSON with sorted keys and no "
        "spaces");
}

}  // namespace tessera::receipt
