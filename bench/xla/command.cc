// bench/xla/command.cc: `tessera-bench xla`: compares the xla lane with a
// worklist to its chunked and dense programs and to the cpu lane.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/xla/measure.h"
#include "bench/xla/report.h"
#include "bench/xla/settings.h"
#include "cli/machine.h"
#include "receipt/machine.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kFailed;
using cli::kOk;
using cli::OtherCores;

namespace {

using nlohmann::json;

struct Way {
  std::string name;
  Session session;
};

// Opens the methods of the xla lane, then the cpu lane.
Result<std::vector<Way>> open_ways(const XlaSettings& s) {
  std::vector<Way> out;
  const auto open = [&out](std::string_view name,
                           SessionOptions options) -> Result<void> {
    auto session = Session::open(std::move(options));
    if (!session) return session.error();
    out.push_back({std::string(name), std::move(*session)});
    return {};
  };
  SessionOptions options;
  options.lane = LaneId::xla;
  options.xla = s.xla;
  for (const XlaMethod method : s.methods) {
    options.xla.method = method;
    if (auto e = open(to_string(method), options); !e) return e.error();
  }
  options.lane = LaneId::cpu;
  if (auto e = open(kCpu, options); !e) return e.error();
  return out;
}

// Prints the text of the first program of the settings, and measures nothing.
Result<int> print_program(const XlaSettings& s, const Session& session,
                          bool backward) {
  XlaProblem p;
  p.what = s.cases.front();
  p.dtype = s.dtypes.front();
  p.direction = backward ? Direction::backward : Direction::forward;
  if (auto ok = bind(p, s); !ok) return ok.error();
  auto ready = session.prepare(*p.batch, p.data.call());
  if (!ready) return ready.error();
  auto text = ready->program_text(backward);
  if (!text) return text.error();
  fmt::print("{}", *text);
  return kOk;
}

Result<int> run(const XlaFlags& o) {
  auto settings = read_settings(o);
  if (!settings) return settings.error();
  const XlaSettings& s = *settings;
  auto opened = open_ways(s);
  if (!opened) return opened.error();
  const std::vector<Way>& ways = *opened;
  if (o.program) return print_program(s, ways.front().session, o.backward);
  const auto found = ways.front().session.place();
  if (!found) return found.error();
  const PluginPlace& place = *found;
  if (!o.json) {
    fmt::print(
        "{} tokens, {} heads, head dim {}; {}, {}. Medians of {} "
        "rounds, each with transfers "
        "and after a run\nthat does not count; nor does the first one, which "
        "compiles\n\n",
        s.tokens, s.shape.heads, s.shape.head_dim, receipt::cpu_model(),
        place.device, s.rounds);
  }
  json tables = json::array();
  bool passed = true;
  std::vector<Direction> directions = {Direction::forward};
  if (o.backward) directions.push_back(Direction::backward);
  for (const AttentionCase* what : s.cases) {
    for (const Dtype dtype : s.dtypes) {
      for (const Direction direction : directions) {
        XlaProblem p;
        p.what = what;
        p.dtype = dtype;
        p.direction = direction;
        if (auto ok = bind(p, s); !ok) return ok.error();
        std::vector<XlaContender> all;
        for (const Way& way : ways) {
          XlaContender& c = all.emplace_back();
          c.name = way.name;
          c.session = &way.session;
        }
        const OtherCores others;
        if (auto ok = measure(p, all, s.rounds); !ok) return ok.error();
        const double busy = others.so_far();
        tables.push_back(table_json(p, all, busy));
        if (!o.json) print_table(p, all, busy);
        for (const XlaContender& c : all) {
          if (c.check.max_bound_ratio <= 1) continue;
          passed = false;
          print_out_of_bound(c.check.max_bound_ratio,
                             fmt::format("{}: {}", c.name, c.check.worst));
        }
      }
    }
  }
  const json result = {
      {"version", kVersion},
      {"cpu", receipt::cpu_model()},
      {"plugin", std::filesystem::path(place.plugin).filename().string()},
      {"platform", place.platform},
      {"device", place.device},
      {"tokens", s.tokens},
      {"heads", s.shape.heads},
      {"kv_heads", s.shape.kv_heads},
      {"head_dim", s.shape.head_dim},
      {"rounds", s.rounds},
      {"passed", passed},
      {"tables", tables}};
  if (auto e = write_result(o.out, result); !e) return e.error();
  if (o.json) fmt::print("{}\n", result.dump(2));
  return passed ? kOk : kFailed;
}

}  // namespace

Command xla_command() {
  auto o = std::make_shared<XlaFlags>();
  Command command{"xla", "The xla lane's worklist beside its dense program"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N", "Length of the batch row [8192]"},
          {"--cases", &o->cases, "CASE,...",
           "Cases, of " + xla_cases() + " [window]"},
          {"--dtype", &o->dtype, "TYPE,...", "Types, of f32 and bf16 [both]"},
          {"--methods", &o->methods, "NAME,...",
           "Methods, of worklist, chunked and dense [all]"},
          {"--heads", &o->heads, "N", "Query heads [4]"},
          {"--kv-heads", &o->kv_heads, "N", "K/V heads [as many]"},
          {"--head-dim", &o->head_dim, "N",
           "Dimension of queries, keys and values [128]"},
          {"--rounds", &o->rounds, "N", "Runs of each program, in turn [3]"},
          {"--plugin", &o->plugin, "NAME",
           "A file or a known name [xla_cpu_pjrt]"},
          {"--device", &o->device, "N", "Number of the plugin's device [0]"},
          {"--cache", &o->cache, "FOLDER",
           "Keep what is compiled there [nowhere]"},
          {"--backward", &o->backward, "",
           "Measure forward and backward too, as tables of their own"},
          {"--program", &o->program, "",
           "Print the first program as StableHLO and run none"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
