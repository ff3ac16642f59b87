// cli/train/command.cc: `tessera train`: trains a model on packed rows.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/files.h"
#include "base/text.h"
#include "cli/receipt/output.h"
#include "cli/train/compile_only.h"
#include "cli/train/report.h"
#include "cli/train/run.h"
#include "cli/train/settings.h"

namespace tessera::cli {
namespace {

Result<int> run(const TrainFlags& f) {
  auto asked = read_train_flags(f);
  if (!asked) return asked.error();
  if (auto e = check_device(*asked, f); !e) return e.error();
  auto rows = model::read_training_rows(*asked);
  if (!rows) return rows.error();
  if (f.program) {
    auto text = Trainer::program_text(asked->options);
    if (!text) return text.error();
    if (auto e = rewrite_file(*f.program, *text); !e) return e.error();
  }
  if (f.compile_only) return run_compile_only(*asked, f, rows->files);
  if (f.warm) return run_warm(asked->options, f);
  auto receipt = run_training(std::move(*asked), f, *rows);
  if (!receipt) return receipt.error();
  if (f.receipt) {
    auto e = rewrite_file(*f.receipt, receipt_file(*receipt));
    if (!e) return e.error();
  }
  if (f.json) {
    fmt::print("{}\n", receipt::receipt_json(*receipt));
    return kOk;
  }
  fmt::print("{}", end_text(*receipt));
  for (const auto& [word, file] :
       {std::pair("checkpoint", f.checkpoint), std::pair("program", f.program),
        std::pair("picture", f.picture), std::pair("receipt", f.receipt)}) {
    if (file) fmt::print("{:<10} {}\n", word, on_a_line(*file));
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera pack documents.jsonl --tokens 512 -o rows\n"
    "  tessera train --data rows --steps 200 --rate 1e-3 \\\n"
    "      --checkpoint model.safetensors --every 50 --picture loss.svg\n"
    "  tessera train --data rows --warm\n"
    "  tessera train --data rows --steps 400 \\\n"
    "      --resume model.safetensors --checkpoint model.safetensors\n"
    "  tessera train --data rows --rows 4 --mesh data=2,head=2,seq=2\n"
    "  tessera train --data rows --mesh seq=4 --balance rows\n"
    "  tessera train --data rows --model model.json --spec tpu --dtype bf16 "
    "\\\n"
    "      --compile-only --target v6e:1x1 --save-program step.mlir\n"
    "\n"
    "A model is a JSON object: vocab, layers, width, heads, kv_heads,\n"
    "head_dim, mlp_width, norm (rms, layer), mlp (swiglu, geglu, gelu),\n"
    "fused_mlp, tied_head, post_norms, embedding_scale, norm_eps, rope_theta,\n"
    "rope_factor, rope_low, rope_high, rope_tokens, softcap, final_softcap,\n"
    "score_scale, windows, routes, columns. What is missing keeps its "
    "default.\n"
    "\n"
    "The JSON of a run is its receipt (docs/receipt_fields.md), as --receipt\n"
    "writes it; tessera receipt shows it, or runs it again to verify it. With\n"
    "--compile-only or --warm it has these fields instead, and nothing of\n"
    "steps. With --warm the exit code is 1 where the cache had trouble.";

}  // namespace

Command train_command() {
  auto f = std::make_shared<TrainFlags>();
  Command command{"train", "Train a language model on packed rows"};
  add_train_flags(command, *f);
  command.footer = kFooter;
  command.json_fields = ahead_json_fields();
  command.work = [f] { return run(*f); };
  return command;
}

}  // namespace tessera::cli
