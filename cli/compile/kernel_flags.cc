// cli/compile/kernel_flags.cc: the flags of a kernel.
#include "cli/compile/kernel_flags.h"

#include "cli/lowering.h"
#include "request/numbers.h"

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

Result<void> read_kernel_sizes(const KernelSizes& f, MosaicOptions& options) {
  struct Number {
    const std::optional<std::string>& text;
    std::string_view what;
    int64_t most;
    int64_t& out;
  };
  for (const Number& n :
       {Number{f.tiles_per_pass, "--tiles-per-pass", kMosaicMaxTilesPerPass,
               options.tiles_per_pass},
        Number{f.fetch_ahead, "--fetch-ahead", kMosaicMaxFetchAhead,
               options.fetch_ahead},
        Number{f.page_steps, "--page-steps", kMosaicMaxPageSteps,
               options.page_steps},
        Number{f.query_chunk, "--query-chunk", kMaxTokens,
               options.query_chunk}}) {
    if (!n.text) continue;
    auto value = request::parse_int(*n.text, n.what, 1, n.most);
    if (!value) return value.error();
    n.out = *value;
  }
  return {};
}

Result<Numbers> read_numbers(const std::optional<std::string>& text) {
  return parse_numbers(text.value_or("finite"), "--numbers");
}

bool asks_for_kernel(const KernelFlags& f) {
  const request::RequestFlags& r = f.run.request;
  return !r.masks.empty() || r.spec || r.plan;
}

}  // namespace tessera::cli
