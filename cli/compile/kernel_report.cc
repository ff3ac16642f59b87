// cli/compile/kernel_report.cc: a TPU kernel as JSON and text.
#include "cli/compile/kernel_report.h"

#include <fmt/format.h>

#include "base/dtype_word.h"
#include "cli/lowering.h"
#include "fit/budget_json.h"

namespace tessera::cli {

nlohmann::json kernel_json(const AskedKernel& asked) {
  const MosaicKernel& kernel = asked.kernel;
  return {{"lane", "mosaic"},
          {"contract", kernel.contract.key},
          {"contract_terms", nlohmann::json::parse(kernel.contract.text)},
          {"plan_contract", kernel.plan.key},
          {"plan_contract_terms", nlohmann::json::parse(kernel.plan.text)},
          {"window_bounds", kernel.plan.window_bounds},
          {"batch", kernel.batch},
          {"q_len", kernel.q_len},
          {"kv_len", kernel.kv_len},
          {"steps", kernel.steps},
          {"page", kernel.page},
          {"query_chunk", kernel.query_chunk},
          {"tile", {kernel.tile.q, kernel.tile.kv}},
          {"tiles_per_pass", kernel.options.tiles_per_pass},
          {"heads_per_pass", kernel.heads_per_pass},
          {"chosen_by", asked.chosen_by()},
          {"fetch_ahead", kernel.options.fetch_ahead},
          {"row_sum", to_string(kernel.options.row_sum)},
          {"numbers", to_string(kernel.options.numbers)},
          {"lowering", lowering_json(kernel.lowering)},
          {"vector_memory", fit::vector_memory_json(vector_memory(kernel))},
          {"scalar_bytes", 4 * kernel.scalar_words}};
}

namespace {

std::string_view direction_text(const AttentionCall& call) {
  if (call.sink_telemetry) return "sink telemetry";
  return call.backward ? "backward" : "forward";
}

}  // namespace

std::string kernel_text(const AskedKernel& asked) {
  const MosaicKernel& k = asked.kernel;
  return fmt::format(
      "{:<11} {}, {}, tile {}x{}, {} tiles of {} heads a pass\n"
      "{:<11} {}\n"
      "{:<11} {}\n"
      "{:<11} batch {}, {} queries{}, {} keys, {} steps{}\n"
      "{:<11} {:>12} bytes of scratch, of {}\n"
      "{:<11} {:>12} bytes of arrays\n"
      "{:<11} {}\n",
      "kernel", direction_text(k.call), dtype_word(k.call.dtype), k.tile.q,
      k.tile.kv, k.options.tiles_per_pass, k.heads_per_pass, "chosen by",
      asked.chosen_by(), "lowering", lowering_text(k.lowering), "room for",
      k.batch, k.q_len,
      k.query_chunk == 0 ? "" : fmt::format(" in chunks of {}", k.query_chunk),
      k.kv_len, k.steps,
      k.page == 0 ? "" : fmt::format(" in pages of {}", k.page), "vector",
      k.vector_bytes, vector_memory(k).room, "scalar", 4 * k.scalar_words,
      "contract", k.contract.key);
}

}  // namespace tessera::cli
