// cli/explain/command.cc: `tessera explain`.
#include "cli/command.h"

#include <memory>

#include "base/fail.h"
#include "cli/explain/answers.h"
#include "cli/numbers.h"
#include "cli/request/flags.h"

namespace tessera::cli {
namespace {

struct Options {
  RequestFlags request;
  std::optional<std::string> query, key, batch_row, head;
  bool json = false;
};

Result<int> run(const Options& o) {
  if (!o.query) {
    return invalid("cli", "--query must be given, found none");
  }
  auto planned = load_planned(o.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  const Plan& plan = batch.plan();
  auto query = parse_int(*o.query, "--query", 0, plan.q_len - 1);
  if (!query) return query.error();
  auto batch_row =
      parse_int(o.batch_row.value_or("0"), "--batch-row", 0, plan.batch - 1);
  if (!batch_row) return batch_row.error();
  auto head = parse_int(o.head.value_or("0"), "--head", 0, plan.heads - 1);
  if (!head) return head.error();
  auto legality = Legality::bind(batch.request(), batch.facts());
  if (!legality) return legality.error();
  const Where at{*batch_row, *head, *query};
  if (!o.key) return explain_query(*legality, plan, at, o.json);
  auto key = parse_int(*o.key, "--key", 0, plan.kv_len - 1);
  if (!key) return key.error();
  return explain_pair(*legality, plan, at, *key, o.json);
}

}  // namespace

Command explain_command() {
  auto o = std::make_shared<Options>();
  Command command{"explain", "Why a pair is legal or not, atom by atom"};
  add_request_flags(command, o->request);
  add_flags(command,
            {
                {"--query", &o->query, "I", "Query token"},
                {"--key", &o->key, "J", "Key token [all that the query sees]"},
                {"--batch-row", &o->batch_row, "B", "Which batch row [0]"},
                {"--head", &o->head, "H", "Which plan head [0]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Example:\n"
      "  tessera explain --mask 'causal & documents' --q-len 1000 \\\n"
      "      --docs lengths:300,700 --query 450 --key 200";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
