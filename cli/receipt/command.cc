// cli/receipt/command.cc: `tessera receipt`: shows, proves and compares
// receipts.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/receipt/verify_bridge.h"
#include "cli/receipt/verify_run.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string verb;
  std::vector<std::string> files;
  std::optional<std::string> plugin;
  bool json = false;
};

Result<Json> load(const std::string& path) {
  auto text = read_file(path, kMaxReceiptBytes);
  if (!text) return text.error();
  return read_any_receipt(*text);
}

std::string plain(const Json& value) {
  if (!value.is_string()) return value.dump();
  return on_a_line(value.get<std::string>());
}

std::string check_text(const Json& check) {
  if (check["kind"] == "none") return "none";
  return fmt::format("{}, {} rows, {}", plain(check["kind"]),
                     plain(check["rows"]),
                     check.value("passed", false) ? "passed" : "FAILED");
}

std::string digest_text(const Json& r) {
  const auto digest = check_digest(r);
  return digest ? plain(r["receipt_digest"]) + ", that of its fields"
                : "WRONG: " + digest.error().message;
}

std::string show_bridge(const Json& r) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  line("executed", fmt::format("{}, family {}", plain(r["lane"]["executed"]),
                               plain(r["lane"]["family"])));
  line("operation",
       fmt::format("{} {}", plain(r["operation"]), plain(r["name"])));
  line("artifact",
       fmt::format("{}, exported by JAX {}, digest {}",
                   plain(r["artifact"]["file"]), plain(r["artifact"]["jax"]),
                   plain(r["artifact"]["digest"])));
  line("plugin",
       fmt::format("{}, PJRT {}, {}", plain(r["plugin"]["file"]),
                   plain(r["plugin"]["api"]), plain(r["plugin"]["device"])));
  line("time", fmt::format("{:.4g} ms", r["ms"]["run"].get<double>()));
  line("check", check_text(r["check"]));
  line("key", plain(r["key"]["digest"]));
  line("output", plain(r["output"]["digest"]));
  line("digest", digest_text(r));
  return out;
}

std::string show_text(const Json& r) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  const Json& lane = r["lane"];
  const bool ran = lane["executed"].is_string();
  line("asked", fmt::format("{} (by {})", plain(lane["requested"]),
                            plain(lane["source"])));
  line("chosen", fmt::format("{}: {}", plain(lane["chosen"]),
                             plain(r["choice"]["reason"])));
  line("executed", ran ? fmt::format("{}, family {}", plain(lane["executed"]),
                                     plain(lane["family"]))
                       : fmt::format("nothing: compiled only, family {}",
                                     plain(lane["family"])));
  if (r["fallback"].is_string()) line("fallback", plain(r["fallback"]));
  for (const auto& [name, why] : r["choice"]["rejected"].items()) {
    line("not " + name, plain(why));
  }
  line("device", plain(r["device"]));
  if (r["isa"].is_string()) {
    line("on",
         fmt::format("{}, {} threads", plain(r["isa"]), plain(r["threads"])));
  }
  if (r["plugin"].is_object()) {
    line("plugin",
         fmt::format("{}, PJRT {}, {}", plain(r["plugin"]["file"]),
                     plain(r["plugin"]["api"]), plain(r["plugin"]["device"])));
  }
  for (const Json& mask : r["request"]["mask"]) line("mask", plain(mask));
  const Json& s = r["shape"];
  line("arrays",
       fmt::format("batch {}, {} x {} tokens, {} heads ({} K/V), head dim {}, "
                   "{}, {}",
                   plain(r["request"]["batch"]), plain(r["request"]["q_len"]),
                   plain(r["request"]["kv_len"]), plain(s["heads"]),
                   plain(s["kv_heads"]), plain(s["head_dim"]),
                   plain(s["dtype"]), plain(r["direction"])));
  line("tiles", fmt::format("{} run, {} skipped", plain(r["tiles"]["run"]),
                            plain(r["tiles"]["skipped"])));
  line("pairs", fmt::format("{} legal, {} scored", plain(r["pairs"]["legal"]),
                            plain(r["pairs"]["run"])));
  line("programs",
       fmt::format("{} compiled, {} from memory, {} from disk",
                   plain(r["compiles"]), plain(r["cache_hits"]["memory"]),
                   plain(r["cache_hits"]["disk"])));
  line("time", fmt::format("{:.4g} ms in all, {:.4g} forward, {:.4g} backward",
                           r["ms"]["total"].get<double>(),
                           r["ms"]["forward"].get<double>(),
                           r["ms"]["backward"].get<double>()));
  line("check", check_text(r["check"]));
  line("contract", plain(r["contract"]));
  line("plan", plain(r["plan"]["digest"]));
  line("output", plain(r["output"]["digest"]));
  line("digest", digest_text(r));
  return out;
}

Result<int> show(const Options& o) {
  auto receipt = load(o.files[0]);
  if (!receipt) return receipt.error();
  if (o.json) {
    fmt::print("{}\n", receipt->dump());
  } else {
    fmt::print("{}", is_bridge_receipt(*receipt) ? show_bridge(*receipt)
                                                 : show_text(*receipt));
  }
  return kOk;
}

Json json_of(const std::vector<ReceiptDifference>& all, const char* a,
             const char* b) {
  Json out = Json::array();
  for (const ReceiptDifference& d : all) {
    out.push_back({{"field", d.field}, {a, d.a}, {b, d.b}});
  }
  return out;
}

Result<int> verify(const Options& o) {
  auto receipt = load(o.files[0]);
  if (!receipt) return receipt.error();
  if (o.plugin && (*receipt)["plugin"].is_null()) {
    return invalid("cli", "--plugin goes with a receipt of a plugin, found {}",
                   in_quotes(*o.plugin));
  }
  const auto digest = check_digest(*receipt);
  Verdicts v;
  if (digest) {
    auto verdicts = is_bridge_receipt(*receipt)
                        ? verify_bridge_receipt(*receipt, o.plugin)
                        : verify_receipt(*receipt, o.plugin);
    if (!verdicts) return verdicts.error();
    v = std::move(*verdicts);
  } else {
    v.contradictions.push_back(digest.error().message);
  }
  const bool good = v.wrong.empty() && v.contradictions.empty();
  if (o.json) {
    const Json out = {{"verified", good},
                      {"compared", v.compared},
                      {"wrong", json_of(v.wrong, "claimed", "found")},
                      {"contradictions", v.contradictions},
                      {"notes", v.notes}};
    fmt::print("{}\n", out.dump());
    return good ? kOk : kFailed;
  }
  for (const std::string& c : v.contradictions) {
    fmt::print("WRONG       {}\n", c);
  }
  for (const ReceiptDifference& d : v.wrong) {
    fmt::print("WRONG       {}: the receipt says {}, running it again {}\n",
               plain(d.field), d.a.empty() ? "nothing" : d.a,
               d.b.empty() ? "nothing" : d.b);
  }
  for (const std::string& note : v.notes) fmt::print("note        {}\n", note);
  if (good) {
    fmt::print("verified    its digest, and {} fields by running it again\n",
               v.compared);
  }
  return good ? kOk : kFailed;
}

Result<int> diff(const Options& o) {
  auto a = load(o.files[0]);
  if (!a) return a.error();
  auto b = load(o.files[1]);
  if (!b) return b.error();
  const std::vector<ReceiptDifference> all = differences(*a, *b);
  if (o.json) {
    const Json out = {{"differences", json_of(all, "a", "b")}};
    fmt::print("{}\n", out.dump());
  } else {
    for (const ReceiptDifference& d : all) {
      fmt::print("{}: {} | {}\n", plain(d.field), d.a.empty() ? "nothing" : d.a,
                 d.b.empty() ? "nothing" : d.b);
    }
  }
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
  if (o.verb == "schema") {
    const bool bridge = o.files == std::vector<std::string>{"bridge"};
    if (!bridge && !o.files.empty()) {
      return invalid("cli",
                     "receipt schema takes nothing or the word bridge, found "
                     "{}",
                     in_quotes(o.files[0]));
    }
    fmt::print("{}", bridge ? bridge_receipt_schema() : receipt_schema());
    return kOk;
  }
  if (o.plugin && o.verb != "verify") {
    return invalid("cli", "--plugin goes with receipt verify, found {}",
                   in_quotes(o.verb));
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
           "Of `tessera run --receipt` or `tessera bridge --receipt`"},
          {"--plugin", &o->plugin, "FILE",
           "Of verify: load this one, where the receipt's is not installed"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer =
      "Examples:\n"
      "  tessera run --mask causal --q-len 512 --receipt run.json\n"
      "  tessera receipt verify run.json\n"
      "  tessera receipt diff run.json again.json\n"
      "\n"
      "verify checks the digest and runs the receipt again: plan, contract, "
      "counts and\noutput must be the same. Exit code 1 when they are not, or "
      "two receipts differ.\nFiles that the receipt names are read again from "
      "the current folder. A plugin\nthat it names is loaded only where it is "
      "an installed one, or --plugin is given.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
