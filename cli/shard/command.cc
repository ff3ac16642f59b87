// cli/shard/command.cc: `tessera shard`.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/timed.h"
#include "cli/compile/kernel_flags.h"
#include "cli/json_line.h"
#include "cli/route/planned.h"
#include "cli/shard/flags.h"
#include "cli/shard/report.h"
#include "picture/shards.h"
#include "tessera/fit.h"

namespace tessera::cli {
namespace {

struct Options {
  ShardFlags shard;
  bool json = false;
};

MeshFitCall asked_of(const ShardFlags& f, const request::Planned& planned,
                     const Mesh& mesh, const ShardOptions& options) {
  MeshFitCall out;
  out.batch = &planned.batch;
  out.mesh = mesh;
  out.options = options;
  out.call.shape = options.shape;
  out.call.dtype = options.dtype;
  out.call.backward = f.backward;
  out.call.sink_logits = f.sink_logits;
  out.call.dlse = f.dlse;
  if (f.lane == "mosaic") out.lane = LaneId::mosaic;
  out.lowering_reason = f.lowering_reason;
  if (planned.target) out.chip = planned.target->name;
  if (f.fit) out.chip = *f.fit;
  if (f.compile) out.chip = *f.compile;
  return out;
}

// Writes the program and the picture, if flags ask for them.
Result<void> write_files(const ShardFlags& f, const MeshFitCall& asked,
                         const request::Planned& planned,
                         const Shards& shards) {
  if (f.emit) {
    auto text = program_text(asked, f.backward);
    if (!text) return text.error();
    if (auto e = write_file(*f.emit, *text); !e) return e;
  }
  if (!f.picture) return {};
  const std::string title =
      fmt::format("{}: {}", fmt::join(planned.written, ", "),
                  to_string(asked.options.balance));
  return write_file(*f.picture,
                    picture::draw_shards(planned.batch, shards, title));
}

Result<int> run(const Options& o) {
  const ShardFlags& f = o.shard;
  if (auto e = check_flags(f); !e) return e.error();
  auto numbers = read_numbers(f.numbers);
  if (!numbers) return numbers.error();
  auto row_sum = read_row_sum(f.row_sum);
  if (!row_sum) return row_sum.error();
  if (*row_sum == RowSum::rounded && f.backward) {
    return invalid("cli",
                   "--row-sum rounded goes without --backward, found both");
  }
  KernelSizes typed;
  typed.query_chunk = f.query_chunk;
  MosaicOptions sizes;
  if (auto e = read_kernel_sizes(typed, sizes); !e) return e.error();
  auto mesh = parse_mesh(*f.mesh);
  if (!mesh) return mesh.error();
  auto options = shard_options(f);
  if (!options) return options.error();
  auto planned = load_planned(f.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  options->for_tpu =
      f.fit || f.compile || f.lane == "mosaic" || planned->target;
  double ms = batch.plan_ms();
  auto shards = timed(ms, [&] { return make_shards(batch, *mesh, *options); });
  if (!shards) return shards.error();
  MeshFitCall asked = asked_of(f, *planned, *mesh, *options);
  asked.numbers = *numbers;
  asked.row_sum = *row_sum;
  asked.query_chunk = sizes.query_chunk;
  if (auto e = write_files(f, asked, *planned, *shards); !e) return e.error();
  std::optional<fit::MeshArrays> arrays;
  if (o.json) {
    auto of_pass = fit::mesh_arrays(asked, *shards, f.backward);
    if (of_pass) arrays = std::move(*of_pass);
  }
  ShardRun out{std::move(*shards),         *options, std::llround(ms * 1e6),
               f.request.plan.has_value(), {},       std::move(arrays)};
  if (f.fit || f.compile) {
    auto program = report_program(asked, f.compile.has_value());
    if (!program) return program.error();
    out.program = std::move(*program);
  }
  if (o.json) {
    fmt::print("{}\n", json_line(shard_json(out)));
  } else {
    fmt::print("{}", shard_text(out));
  }
  if (!out.program) return kOk;
  return fit_code(out.program->fit);
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
    "What does not fit exits with 1.";

}  // namespace

Command shard_command() {
  auto o = std::make_shared<Options>();
  Command command{"shard", "Spread a batch over a mesh of devices"};
  add_shard_flags(command, o->shard);
  add_flags(command, {{"--json", &o->json, "", "One JSON object on stdout"}});
  command.footer = kFooter;
  command.json_fields = shard_json_fields();
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
