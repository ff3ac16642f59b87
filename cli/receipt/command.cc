// cli/receipt/command.cc: `tessera receipt`: shows, verifies and compares
// receipts.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/json_line.h"
#include "cli/receipt/second_run.h"
#include "cli/receipt/verdict.h"
#include "receipt/parts.h"
#include "receipt/text.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string verb;
  std::vector<std::string> files;
  std::optional<std::string> plugin;
  bool json = false;
};

Result<receipt::ReceiptClaim> load(const std::string& path) {
  auto text = read_file(path, receipt::kMaxReceiptBytes);
  if (!text) return text.error();
  return in_file(receipt::parse_receipt(*text), path);
}

Result<int> show(const Options& o) {
  auto claim = load(o.files[0]);
  if (!claim) return claim.error();
  if (o.json) {
    fmt::print("{}\n", json_line(receipt::fields_json(*claim)));
  } else {
    fmt::print("{}", receipt::claim_text(*claim));
  }
  return receipt::check_digest(*claim).ok() ? kOk : kFailed;
}

Result<int> verify(const Options& o) {
  auto claim = load(o.files[0]);
  if (!claim) return claim.error();
  if (o.plugin && !claim->plugin) {
    return invalid("cli", "--plugin goes with a receipt of a plugin, found {}",
                   in_quotes(*o.plugin));
  }
  auto verdict =
      run::verify_receipt(*claim, [&](const receipt::Receipt& claimed) {
        return second_run(claimed, o.plugin);
      });
  if (!verdict) return verdict.error();
  print_verdict(*verdict, o.json);
  return verdict->is_true() ? kOk : kFailed;
}

Result<int> diff(const Options& o) {
  auto a = load(o.files[0]);
  if (!a) return a.error();
  auto b = load(o.files[1]);
  if (!b) return b.error();
  const std::vector<ReceiptDifference> all = receipt::differences(*a, *b);
  print_differences(all, o.json);
  return all.empty() ? kOk : kFailed;
}

Result<int> run(const Options& o) {
  struct Verb {
    std::string_view name;
    size_t files;
    Result<int> (*run)(const Options&);
  };
  constexpr Verb kVerbs[] = {
      {"show", 1, show}, {"verify", 1, verify}, {"diff", 2, diff}};
  if (o.plugin && o.verb != "verify") {
    return invalid("cli", "--plugin goes with receipt verify, found {}",
                   in_quotes(o.verb));
  }
  if (o.verb == "schema") {
    const bool table = o.files == std::vector<std::string>{"table"};
    if (!table && !o.files.empty()) {
      return invalid("cli",
                     "receipt schema takes nothing or the word table, found {}",
                     in_quotes(o.files[0]));
    }
    fmt::print("{}", table ? receipt_table() : receipt_schema());
    return kOk;
  }
  for (const Verb& verb : kVerbs) {
    if (o.verb != verb.name) continue;
    if (o.files.size() != verb.files) {
      return invalid("cli", "receipt {} must be given {} file{}, found {}",
                     verb.name, verb.files, verb.files == 1 ? "" : "s",
                     o.files.size());
    }
    return verb.run(o);
  }
  return invalid("cli",
                 "receipt must be told to show, verify, diff or print its "
                 "schema, found {}",
                 in_quotes(o.verb));
}

constexpr JsonField kJsonFields[] = {
    {"verified, compared, contradictions, notes", "from verify"},
    {"wrong[].{field,claimed,found}", "from verify"},
    {"differences[].{field,a,b}", "from diff"},
};

}  // namespace

Command receipt_command() {
  auto o = std::make_shared<Options>();
  Command command{"receipt", "Show, verify or compare receipts of runs"};
  add_flags(
      command,
      {
          {"what", &o->verb, "VERB", "show, verify, diff or schema",
           /*required=*/true},
          {"files", &o->files, "FILE",
           "Receipts that --receipt of `tessera run`, `tessera bridge` or "
           "`tessera train` wrote; for schema nothing, or the word table"},
          {"--plugin", &o->plugin, "FILE",
           "With verify: load this plugin, where the receipt's is not "
           "installed"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer =
      "Examples:\n"
      "  tessera run --mask causal --q-len 512 --receipt run.json\n"
      "  tessera receipt verify run.json\n"
      "  tessera receipt diff run.json again.json\n"
      "\n"
      "verify checks the digest and runs the receipt again: plan, contract, "
      "counts and\noutput must be the same. Exit code 1 when they are not, "
      "when two receipts differ,\nand when show finds a wrong digest.\n"
      "Files that the receipt names are read again from the current folder. A "
      "plugin\nthat it names is loaded only where it is an installed one, or "
      "--plugin is given.";
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
