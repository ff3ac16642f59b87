// cli/compile/kernel_flags.cc: the flags of a kernel.
#include "cli/compile/kernel_flags.h"

#include "cli/given_flags.h"
#include "cli/lowering.h"

namespace tessera::cli {
namespace {

constexpr const char* kKernelGroup = "The kernel";

}  // namespace

void add_kernel_flags(Command& command, KernelFlags& f) {
  add_shape_flags(command, f.run, "bf16 or f32 [bf16]",
                  "The devices to compile for, as v6e:1x1");
  add_flags(
      command, kKernelGroup,
      {
          {"--tiles-per-pass", &f.tiles_per_pass, "N",
           "Tiles that the kernel takes at a time, 1 to 8: more suit "
           "long rows [the table's for the tile; else 4, backward 1]"},
          {"--keys-per-query", &f.keys_per_query, "N",
           "Keys that a query sees on average, roughly: picks tile and tiles a "
           "pass where both are open"},
          {"--fetch-ahead", &f.fetch_ahead, "N",
           "Passes (backward: key tiles) between a copy's start and its use, 1 "
           "to 14 [4; backward 1]"},
          {"--page-steps", &f.page_steps, "N",
           "Steps that scalar memory holds at a time, up to 65536: the "
           "others wait in HBM [all, where they fit]"},
          {"--query-chunk", &f.query_chunk, "N",
           "Backward: queries whose dQ vector memory holds at a time, "
           "whole tiles; or all [what lets most heads go together]"},
          {"--row-sum", &f.run.row_sum, "SUM", kRowSumHelp},
          {"--numbers", &f.run.numbers, "WHICH", kNumbersHelp},
          {"--dlse", &f.dlse, "", "Take the gradient of the log-sum-exp too"},
          {"--lowering-reason", &f.run.lowering_reason, "TEXT",
           kLoweringReasonHelp},
      });
  for (Flag& flag : command.flags) {
    if (flag.names == std::string_view("--backward")) {
      flag.about = "Make the kernel of the gradients";
      flag.group = kKernelGroup;
    }
    if (flag.names == std::string_view("--sink-logits")) {
      flag.about = "Take one more logit for each head";
      flag.group = kKernelGroup;
    }
  }
}

Result<Numbers> read_numbers(const std::optional<std::string>& text) {
  return parse_numbers(text.value_or("finite"), "--numbers");
}

std::string first_given_of(KernelFlags f) {
  Command kernel;
  add_kernel_flags(kernel, f);
  const std::string found = first_given_of(kernel);
  return found.empty() && f.sink_telemetry ? "--sink-telemetry" : found;
}

bool asks_for_kernel(const KernelFlags& f) {
  const request::RequestFlags& r = f.run.request;
  return !r.masks.empty() || r.spec || r.plan;
}

}  // namespace tessera::cli
