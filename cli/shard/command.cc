// cli/shard/command.cc: `tessera shard`.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/lowering.h"
#include "cli/numbers.h"
#include "cli/plan/timing.h"
#include "cli/request/file_checks.h"
#include "cli/request/flags.h"
#include "cli/shard/report.h"
#include "picture/shards.h"
#include "tessera/fit.h"

namespace tessera::cli {
namespace {

struct Options {
  RequestFlags request;
  std::optional<std::string> mesh, balance, heads, kv_heads, head_dim,
      v_head_dim, dtype, lane, emit, fit, compile, picture, lowering_reason;
  bool uneven = false;
  bool backward = false;
  bool json = false;
};

Result<Dtype> dtype_of(const std::string& word) {
  for (const auto& [name, dtype] :
       {std::pair{"f32", Dtype::f32}, std::pair{"bf16", Dtype::bf16},
        std::pair{"f16", Dtype::f16}}) {
    if (word == name) return dtype;
  }
  return invalid("cli", "--dtype must be f32, bf16 or f16, found {}",
                 in_quotes(word));
}

Result<ShardOptions> options_of(const Options& o) {
  ShardOptions out;
  auto balance = parse_balance(o.balance.value_or("rows"));
  if (!balance) return balance.error();
  out.balance = *balance;
  auto dtype = dtype_of(o.dtype.value_or("bf16"));
  if (!dtype) return dtype.error();
  out.dtype = *dtype;
  out.uneven = o.uneven;
  AttentionShape& s = out.shape;
  auto heads = parse_int(o.heads.value_or("8"), "--heads", 1, kMaxHeads);
  if (!heads) return heads.error();
  s.heads = *heads;
  s.kv_heads = *heads % 4 == 0 ? *heads / 4 : *heads;
  if (o.kv_heads) {
    auto n = parse_int(*o.kv_heads, "--kv-heads", 1, kMaxHeads);
    if (!n) return n.error();
    s.kv_heads = *n;
  }
  auto dim =
      parse_int(o.head_dim.value_or("128"), "--head-dim", 1, kMaxHeadDim);
  if (!dim) return dim.error();
  s.head_dim = s.v_head_dim = *dim;
  if (o.v_head_dim) {
    auto n = parse_int(*o.v_head_dim, "--v-head-dim", 1, kMaxHeadDim);
    if (!n) return n.error();
    s.v_head_dim = *n;
  }
  return out;
}

MeshFitCall asked_of(const Options& o, const Planned& planned, const Mesh& mesh,
                     const ShardOptions& options) {
  MeshFitCall out;
  out.batch = &planned.batch;
  out.mesh = mesh;
  out.options = options;
  out.call.shape = options.shape;
  out.call.dtype = options.dtype;
  out.call.backward = o.backward;
  if (o.lane == "mosaic") out.lane = LaneId::mosaic;
  out.lowering_reason = o.lowering_reason;
  if (planned.target) out.chip = planned.target->name;
  if (o.fit) out.chip = *o.fit;
  if (o.compile) out.chip = *o.compile;
  return out;
}

// Of the program, where one is asked for.
Result<void> check_flags(const Options& o) {
  if (o.lane && *o.lane != "xla" && *o.lane != "mosaic") {
    return invalid("cli", "--lane must be xla or mosaic, found {}",
                   in_quotes(*o.lane));
  }
  for (const auto& [flag, given] :
       {std::pair("--backward", o.backward), {"--lane", o.lane.has_value()}}) {
    if (!given || o.emit || o.fit || o.compile) continue;
    return invalid("cli", "{} goes with --emit, --fit or --compile, found none",
                   flag);
  }
  // A program of lane xla alone is for any compiler.
  if (o.lowering_reason && o.lane != "mosaic" && !o.fit && !o.compile) {
    return invalid("cli",
                   "--lowering-reason goes with --lane mosaic, --fit or "
                   "--compile, found none");
  }
  if (auto e = check_reason_flag(o.lowering_reason); !e) return e;
  if (o.fit && o.compile) {
    return invalid("cli",
                   "--compile says what fits too, found --fit beside it");
  }
  if (o.picture && !o.picture->ends_with(".svg")) {
    return invalid("cli", "--picture must end in .svg, found {}",
                   in_quotes(*o.picture));
  }
  return check_files(request_files(o.request),
                     given_files({&o.emit, &o.picture}));
}

Result<int> run(const Options& o) {
  if (!o.mesh) return invalid("cli", "--mesh must be given, found none");
  if (auto e = check_flags(o); !e) return e.error();
  auto mesh = parse_mesh(*o.mesh);
  if (!mesh) return mesh.error();
  auto options = options_of(o);
  if (!options) return options.error();
  auto planned = load_planned(o.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  auto shards = make_shards(batch, *mesh, *options);
  if (!shards) return shards.error();
  auto plan_ns = best_plan_ns(batch.request(), batch.facts());
  if (!plan_ns) return plan_ns.error();
  auto shard_ns = least_ns([&]() -> Result<void> {
    auto made = make_shards(batch, *mesh, *options);
    return made ? Result<void>() : made.error();
  });
  if (!shard_ns) return shard_ns.error();
  const MeshFitCall asked = asked_of(o, *planned, *mesh, *options);
  if (o.emit) {
    auto text = fit_program(asked, o.backward);
    if (!text) return text.error();
    if (auto e = write_file(*o.emit, *text); !e) return e.error();
  }
  if (o.picture) {
    const std::string title =
        fmt::format("{}: {}", fmt::join(planned->written, ", "),
                    to_string(options->balance));
    auto e = write_file(*o.picture,
                        picture::draw_shards(*shards, batch.plan(), title));
    if (!e) return e.error();
  }
  ShardRun out{std::move(*shards), options->balance, *plan_ns + *shard_ns, {}};
  if (o.fit || o.compile) {
    auto program = report_program(asked, o.compile.has_value());
    if (!program) return program.error();
    out.program = std::move(*program);
  }
  if (o.json) {
    fmt::print("{}\n", shard_json(out).dump());
  } else {
    fmt::print("{}", shard_text(out));
  }
  if (!out.program) return kOk;
  if (auto e = check_fits(asked, out.program->fit.budget); !e) {
    print_error(fmt::format("tessera: {}\n", e.error().message));
    return kFailed;
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera shard --mask 'causal & documents' --q-len 131072 \\\n"
    "      --docs lognormal:mean=1536,seed=0 --mesh seq=8\n"
    "  tessera shard --mask causal --q-len 32768 --batch 4 \\\n"
    "      --mesh data=2,head=2,seq=4 --balance tasks --json\n"
    "  tessera shard --mask causal --q-len 32768 --mesh seq=4 \\\n"
    "      --emit sharded.mlir\n"
    "  tessera compile sharded.mlir --target v6e:2x2\n"
    "  tessera shard --mask causal --q-len 32768 --mesh seq=4 --lane mosaic "
    "\\\n"
    "      --compile v6e:2x2\n"
    "  tessera shard --mask 'causal & documents' --q-len 32768 --docs \\\n"
    "      lengths:20000,12768 --mesh seq=4 --lane mosaic --emit sharded.mlir\n"
    "\n"
    "JSON fields: work_max_over_mean, tokens_max_over_mean,\n"
    "needed_beside_all_gather, sent_beside_all_gather (forward; padding of\n"
    "static sizes is sent too), plan_ns (from ids in memory to all shards, "
    "the\n"
    "least of several runs), forward and backward.{needed,sent,busiest,\n"
    "all_gather}_bytes, kv_tiles[from][to], kv_rounds and q_rounds {shift,\n"
    "tiles}, shapes, specs, fingerprint, contract, and for each of shards\n"
    "{data, head, seq, rows, columns, steps, steps_transposed, work}. With "
    "--fit\nor --compile program.{pass, target, calibrated, fit (as `tessera "
    "fit`),\ncollectives[].{name, op, bytes, asynchronous, ops_between, "
    "cycles_between,\nlongest}}: bytes of a device; between a start and its "
    "end, where loops count one pass.\nWhat does not fit exits with 1.";

}  // namespace

Command shard_command() {
  auto o = std::make_shared<Options>();
  Command command{"shard", "Spread a batch over a mesh of devices"};
  add_request_flags(command, o->request);
  add_flags(
      command,
      {
          {"--mesh", &o->mesh, "AXES",
           "name=size,...: data spreads batch rows, head heads, seq query "
           "rows; along copy all devices hold the same"},
          {"--balance", &o->balance, "NAME",
           "contiguous, headtail, rows (they lie where work is even), tasks "
           "(rows stay, attention moves) [rows]"},
          {"--heads", &o->heads, "N", "Query heads [8]"},
          {"--kv-heads", &o->kv_heads, "N",
           "Key and value heads [a quarter of heads, or heads]"},
          {"--head-dim", &o->head_dim, "N", "Of queries and keys [128]"},
          {"--v-head-dim", &o->v_head_dim, "N", "Of values [head-dim]"},
          {"--dtype", &o->dtype, "NAME", "f32, bf16 or f16 [bf16]"},
          {"--uneven", &o->uneven, "",
           "Pad batch rows and KV heads that an axis does not divide"},
          {"--emit", &o->emit, "FILE",
           "Write the program of all shards, StableHLO, for `tessera compile` "
           "and any compiler with Shardy"},
          {"--lane", &o->lane, "NAME",
           "Of the program: what attends on each device, xla or mosaic, our "
           "TPU kernel [xla]"},
          {"--lowering-reason", &o->lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--backward", &o->backward, "",
           "Of the program: that of the backward pass"},
          {"--fit", &o->fit, "CHIP",
           "Say what the program takes of the memory of a chip, v6e and the "
           "like, before launch"},
          {"--compile", &o->compile, "TARGET",
           "The same, and compile it for a target of as many chips, v6e:2x2 "
           "and the like, with no device: what libtpu says of its memory, and "
           "what runs beside its collectives"},
          {"--picture", &o->picture, "FILE.svg",
           "Draw who holds and computes what, and what travels"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
