// cli/tessera.cc: the help of `tessera`, and its commands.
#include "cli/tessera.h"

namespace tessera::cli {
namespace {

constexpr const char* kAbout =
    "Tessera plans and runs block-sparse attention: a mask and the facts of a\n"
    "batch become exact worklists of score tiles, in microseconds, without a\n"
    "dense mask.";

constexpr const char* kExamples =
    "Examples:\n"
    "  tessera plan --mask 'causal & documents' --q-len 32768 \\\n"
    "      --docs lognormal:mean=2048,seed=0 -o batch.plan\n"
    "  tessera show batch.plan -o batch.html\n"
    "  tessera explain --plan batch.plan --query 5000 --key 4000\n"
    "  tessera check --mask 'causal & window(127, 0)' --q-len 1000 --tile 64\n"
    "  tessera run --plan batch.plan --check --receipt run.json\n"
    "\n"
    "Exit codes: 0 done, 1 the answer is no (a check failed), 2 bad input.\n"
    "Every command takes --json: stdout is then one JSON object.";

}  // namespace

Program tessera_program() {
  return {"tessera",
          kAbout,
          kExamples,
          {plan_command(),     show_command(),   explain_command(),
           export_command(),   check_command(),  route_command(),
           pack_command(),     tree_command(),   run_command(),
           choose_command(),   bridge_command(), receipt_command(),
           doctor_command(),   gate_command(),   compile_command(),
           schedule_command(), shard_command(),  audit_command(),
           fit_command(),      warm_command(),   train_command(),
           model_command()}};
}

}  // namespace tessera::cli
