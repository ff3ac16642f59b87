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
#include "cli/numbers.h"
#include "cli/plan/timing.h"
#include "cli/request/file_checks.h"
#include "cli/request/flags.h"
#include "cli/shard/report.h"
#include "lanes/mosaic/settings.h"
#include "picture/shards.h"
#include "tessera/mosaic.h"

namespace tessera::cli {
namespace {

struct Options {
  RequestFlags request;
  std::optional<std::string> mesh, balance, heads, kv_heads, head_dim,
      v_head_dim, dtype, lane, emit, picture;
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

// `target` is of the kernel.
Result<std::string> program_of(const Options& o, const Batch& batch,
                               const Shards& shards, const AttentionCall& call,
                               const std::string& target) {
  if (!o.lane || *o.lane == "xla") {
    return shard_program(batch, shards, call, o.backward);
  }
  auto kernel = make_mosaic_shards(
      batch, shards, call, target,
      mosaic::choose_passes(batch.request(), call, keys_per_query(batch))
          .setting.options);
  if (!kernel) return kernel.error();
  return std::move(kernel->program);
}

Result<void> write_program(const Options& o, const Planned& planned,
                           const Shards& shards, const ShardOptions& options) {
  AttentionCall call;
  call.shape = options.shape;
  call.dtype = options.dtype;
  call.backward = o.backward;
  auto text = program_of(o, planned.batch, shards, call,
                         planned.target ? planned.target->name : "v6e");
  if (!text) return text.error();
  return write_file(*o.emit, *text);
}

Result<int> run(const Options& o) {
  if (!o.mesh) return invalid("cli", "--mesh must be given, found none");
  if (o.backward && !o.emit) {
    return invalid("cli", "--backward goes with --emit, found no --emit");
  }
  if (o.lane && *o.lane != "xla" && *o.lane != "mosaic") {
    return invalid("cli", "--lane must be xla or mosaic, found {}",
                   in_quotes(*o.lane));
  }
  if (o.lane && !o.emit) {
    return invalid("cli", "--lane goes with --emit, found no --emit");
  }
  if (o.picture && !o.picture->ends_with(".svg")) {
    return invalid("cli", "--picture must end in .svg, found {}",
                   in_quotes(*o.picture));
  }
  if (auto e = check_files(request_files(o.request),
                           given_files({&o.emit, &o.picture}));
      !e) {
    return e.error();
  }
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
  if (o.emit) {
    if (auto e = write_program(o, *planned, *shards, *options); !e) {
      return e.error();
    }
  }
  if (o.picture) {
    const std::string title =
        fmt::format("{}: {}", fmt::join(planned->written, ", "),
                    to_string(options->balance));
    auto e = write_file(*o.picture,
                        picture::draw_shards(*shards, batch.plan(), title));
    if (!e) return e.error();
  }
  const ShardRun out{std::move(*shards), options->balance,
                     *plan_ns + *shard_ns};
  if (o.json) {
    fmt::print("{}\n", shard_json(out).dump());
  } else {
    fmt::print("{}", shard_text(out));
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
    "{data, head, seq, rows, columns, steps, steps_transposed, work}.";

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
           "rows; along other axes all devices hold the same"},
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
           "With --emit: what attends on each device, xla or mosaic, our TPU "
           "kernel [xla]"},
          {"--backward", &o->backward, "",
           "With --emit: the program of the backward pass"},
          {"--picture", &o->picture, "FILE.svg",
           "Draw who holds and computes what, and what travels"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
