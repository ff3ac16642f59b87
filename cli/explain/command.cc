// cli/explain/command.cc: `tessera explain`.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/fail.h"
#include "cli/explain/answers.h"
#include "cli/fit/flags.h"
#include "cli/given_flags.h"
#include "cli/json_line.h"
#include "cli/request/flags.h"
#include "cli/route/planned.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

struct Options {
  FitFlags fit;  // without --memory only the request flags are used
  std::optional<std::string> query, key, batch_row, head;
  bool memory = false;
  bool json = false;
};

Result<void> check_flags(const Options& o) {
  if (!o.query && !o.memory) {
    return invalid("cli", "--query must be given, found none");
  }
  const auto of_query = first_given({{"--key", o.key.has_value()},
                                     {"--batch-row", o.batch_row.has_value()},
                                     {"--head", o.head.has_value()}});
  if (!o.query && !of_query.empty()) {
    return invalid("cli",
                   "--key, --batch-row and --head go with --query, found {} "
                   "without it",
                   of_query);
  }
  if (o.memory) return {};
  FitFlags of_call = o.fit;
  of_call.kernel.run.request = {};
  const std::string found = first_given_of(std::move(of_call), add_fit_flags);
  if (found.empty()) return {};
  return invalid("cli",
                 "flags of a call's arrays, kernel and lane go with --memory, "
                 "found {} without it",
                 found);
}

Result<Answer> answer_at(const Options& o, const Batch& batch,
                         const Where& at) {
  if (!o.key) return explain_query(batch, at);
  auto key = request::parse_int(*o.key, "--key", 0, batch.plan().kv_len - 1);
  if (!key) return key.error();
  return explain_pair(batch, at, *key);
}

Result<Answer> explain(const Options& o) {
  request::RequestFlags request = o.fit.kernel.run.request;
  // With --memory the target is the chips of the budget (v5e:2x2), which a
  // request does not accept.
  if (o.memory) request.target.reset();
  auto planned = load_planned(request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  const Plan& plan = batch.plan();
  auto query = request::parse_int(*o.query, "--query", 0, plan.q_len - 1);
  if (!query) return query.error();
  auto batch_row = request::parse_int(o.batch_row.value_or("0"), "--batch-row",
                                      0, plan.batch - 1);
  if (!batch_row) return batch_row.error();
  auto head =
      request::parse_int(o.head.value_or("0"), "--head", 0, plan.heads - 1);
  if (!head) return head.error();
  const Where at{*batch_row, *head, *query};
  auto out = answer_at(o, batch, at);
  if (out && plan.meaning) out->json["meaning"] = to_string(*plan.meaning);
  return out;
}

Result<int> run(const Options& o) {
  if (auto e = check_flags(o); !e) return e.error();
  Answer out;
  if (o.query) {
    auto answer = explain(o);
    if (!answer) return answer.error();
    out = std::move(*answer);
  }
  int code = kOk;
  if (o.memory) {
    auto fitted = fit_request(o.fit);
    if (!fitted) return fitted.error();
    out.json["memory"] = fit_json(*fitted);
    out.text += fit_text(*fitted);
    code = fit_code(*fitted);
  }
  fmt::print("{}", o.json ? json_line(out.json) + "\n" : out.text);
  return code;
}

constexpr JsonField kJsonFields[] = {
    {"query, batch_row, head"},
    {"position", "place of the query among the keys"},
    {"key, legal", "with --key, as the next three"},
    {"expression[].{depth,text,holds,why}", "atom by atom"},
    {"vetoes[].{depth,text,holds,why}", "facts that no mask can allow"},
    {"tile.{row,column,class}"},
    {"legal_keys, key_ranges, tile_row",
     "without --key: how many the query sees, and from where to where"},
    {"tiles[].{column,class}", "without --key: tiles of that row"},
    {"meaning", "masks with picks: what attention does with them"},
    {"memory.NAME", "with --memory: as `tessera fit` has it"},
};

}  // namespace

Command explain_command() {
  auto o = std::make_shared<Options>();
  Command command{"explain",
                  "Why a pair is legal or not, atom by atom; a call's memory"};
  add_fit_flags(command, o->fit);
  for (Flag& flag : command.flags) {
    if (flag.names == std::string_view("--target")) {
      flag.about =
          "Check the worklist against the scalar memory of v4, v5e, v5p, v6e "
          "or "
          "tpu7x; with --memory the chip [v6e]";
    }
  }
  add_flags(command,
            {
                {"--query", &o->query, "I", "Query token"},
                {"--key", &o->key, "J", "Key token [all that the query sees]"},
                {"--batch-row", &o->batch_row, "B", "Which batch row [0]"},
                {"--head", &o->head, "H", "Which plan head [0]"},
                {"--memory", &o->memory, "",
                 "Report what the call takes of a TPU's memory, part by part, "
                 "as `tessera fit` does; its flags go with this one"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Examples:\n"
      "  tessera explain --mask 'causal & documents' --q-len 1000 \\\n"
      "      --docs lengths:300,700 --query 450 --key 200\n"
      "  tessera explain --mask 'causal & documents' --q-len 131072 --memory "
      "\\\n"
      "      --heads 32 --kv-heads 8 --backward --target v5e\n"
      "\n"
      "A call that does not fit exits with 1, as with `tessera fit`.";
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
