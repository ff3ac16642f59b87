// cli/route/command.cc: `tessera route`: the router, stage by stage.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "cli/json_line.h"
#include "cli/request/file_checks.h"
#include "cli/route/job.h"
#include "cli/route/pictures.h"
#include "cli/route/report.h"
#include "cli/route/stages.h"
#include "cli/trace_flag.h"
#include "cli/warnings.h"

namespace tessera::cli {
namespace {

Result<void> check(const RouteCommandFlags& o) {
  if (o.recall && !o.route.hierarchical) {
    return invalid("cli",
                   "--recall is of --hierarchical routing, found it alone");
  }
  std::vector<std::string> read = request_files(o.run.request);
  if (o.run.inputs) read.push_back(*o.run.inputs);
  return check_files(std::move(read),
                     given_files({&o.run.outputs, &o.run.trace}));
}

Result<int> run(const RouteCommandFlags& o) {
  auto prepared = make_route_job(o);
  if (!prepared) return prepared.error();
  RouteJob& job = *prepared;
  if (o.run.outputs && job.report.until < RouteStage::legality) {
    return invalid("cli", "--outputs holds legal picks, found --stage {}",
                   *o.stage);
  }
  if (auto e = route_timed(job); !e) return e.error();
  print_warnings(job.report.result.warnings);
  if (o.recall) {
    if (auto e = find_recall(job); !e) return e.error();
  }
  std::string picture;
  if (!job.until) {
    auto batch = plan_timed(job);
    if (!batch) return batch.error();
    print_warnings(make_warnings(*batch));
    if (!o.run.json && !o.no_picture) {
      auto drawn = route_pictures(o, job, *batch);
      if (!drawn) return drawn.error();
      picture = std::move(*drawn);
    }
  }
  if (o.run.outputs) {
    auto e =
        write_picks(*o.run.outputs, job.resolved.request, job.report.result);
    if (!e) return e.error();
  }
  if (o.run.json) {
    fmt::print("{}\n", json_line(route_json(job.report)));
    return kOk;
  }
  fmt::print("{}", route_text(job.report));
  if (o.run.outputs)
    fmt::print("{:<11} {}\n", "outputs", on_a_line(*o.run.outputs));
  fmt::print("{}", picture);
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera route --q-len 8192 --heads 8 --kv-heads 2 --head-dim 64\n"
    "  tessera route --mask 'causal & documents & routed(top=4, block=128)' "
    "\\\n"
    "      --q-len 8192 --docs lognormal --rule moba\n"
    "  tessera route --q-len 8192 --stage score --json\n"
    "  tessera route --inputs qk.safetensors --outputs picks.safetensors\n"
    "  tessera route --q-len 4096 --picks picks.safetensors --meaning union\n"
    "\n"
    "Stages, in order: pool, window, coarse (with --hierarchical), score, "
    "top_n,\nlegality, union, expand, plan. --picks FILE holds I32 or I64 "
    "tensors: "
    "picks [batch,\nheads, q_len, k], tile_picks [batch, heads, query tiles, "
    "k] or metas [batch,\nheads, q_len, k], -1 unused. docs/routing.md "
    "explains "
    "the stages.";

}  // namespace

Command route_command() {
  auto o = std::make_shared<RouteCommandFlags>();
  Command command{
      "route", "Clustered sparse attention: picks, unions, tiles, by stages"};
  add_request_flags(command, o->run.request);
  add_flags(
      command,
      {
          {"--heads", &o->run.heads, "N", "Query heads [8]"},
          {"--kv-heads", &o->run.kv_heads, "N", "Key heads [heads]"},
          {"--head-dim", &o->run.head_dim, "N",
           "Dimension of queries and keys [128]"},
          {"--dtype", &o->run.dtype, "NAME", "f32, bf16 or f16 [f32]"},
          {"--layout", &o->run.layout, "NAME",
           "Order of axes: bhsd, [batch, heads, tokens, dim], or bshd [bhsd]"},
          {"--inputs", &o->run.inputs, "FILE",
           ".safetensors with q and k; what else it holds is not read "
           "[clustered inputs from the seed]"},
          {"--seed", &o->run.seed, "N", "Seed of clustered inputs [0]"},
          {"--spread", &o->spread, "X",
           "Noise of clustered inputs around their centroids, above 0 [0.1]"},
      });
  add_route_flags(command, o->route);
  add_flags(
      command,
      {
          {"--recall", &o->recall, "",
           "With --hierarchical: compare with exhaustive routing"},
          {"--stage", &o->stage, "NAME", "Stop after this stage [plan]"},
          {"--threads", &o->run.threads, "N", "Threads [every core]"},
          {"--isa", &o->run.isa, "NAME",
           "portable, avx2, avx512, avx512bf16 or amx; picks do not depend on "
           "it [TESSERA_ISA, or the best]"},
          {"--outputs", &o->run.outputs, "FILE",
           "Write picks, slots and unions to a .safetensors file"},
          {"--trace", &o->run.trace, "FILE", kTraceHelp},
          {"--batch-row", &o->batch_row, "B", "Batch row of the pictures [0]"},
          {"--head", &o->head, "H", "Head of the pictures, one that picks [0]"},
          {"--width", &o->width, "N",
           "Columns of the pictures [the terminal's]"},
          {"--ascii", &o->ascii, "", "Draw pictures without Unicode blocks"},
          {"--no-picture", &o->no_picture, "", "Print the stages alone"},
          {"--json", &o->run.json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.json_fields = route_json_fields();
  command.work = [o]() -> Result<int> {
    if (auto e = check(*o); !e) return e.error();
    return traced(o->run.trace, !o->run.json, [&] { return run(*o); });
  };
  return command;
}

}  // namespace tessera::cli
