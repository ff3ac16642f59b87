// bench/mesh/command.cc: `tessera-bench mesh`: layers on one device and on a
// mesh, with arrays copied for each call and arrays that stay on the devices.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/fail.h"
#include "base/text.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/mesh/measure.h"
#include "cli/machine.h"
#include "lanes/tensors.h"
#include "pjrt/locate.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kFailed;
using cli::kOk;
using cli::OtherCores;

namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> tokens, heads, kv_heads, head_dim, devices, layers,
      rounds, mean, plugin, out;
  bool json = false;
};

Result<MeshSettings> read_settings(const Options& o) {
  MeshSettings s;
  AttentionShape& shape = s.shape;
  const struct {
    const std::optional<std::string>& text;
    const char* name;
    int64_t& to;
    int64_t least, most;
  } numbers[] = {{o.tokens, "--tokens", s.tokens, 256, 1 << 20},
                 {o.heads, "--heads", shape.heads, 1, 1024},
                 {o.kv_heads, "--kv-heads", shape.kv_heads, 1, 1024},
                 {o.head_dim, "--head-dim", shape.head_dim, lanes::kDimStep,
                  lanes::kMaxDim},
                 {o.devices, "--devices", s.devices, 2, 64},
                 {o.layers, "--layers", s.layers, 1, 1000},
                 {o.rounds, "--rounds", s.rounds, 1, 1000}};
  for (const auto& n : numbers) {
    if (!n.text) continue;
    auto value = request::parse_int(*n.text, n.name, n.least, n.most);
    if (!value) return value.error();
    n.to = *value;
  }
  if (shape.heads % shape.kv_heads != 0) {
    return invalid("cli", "--kv-heads must divide --heads, found {} for {}",
                   shape.kv_heads, shape.heads);
  }
  if (shape.head_dim % lanes::kDimStep != 0) {
    return invalid("cli", "--head-dim must be a multiple of {}, found {}",
                   lanes::kDimStep, shape.head_dim);
  }
  shape.v_head_dim = shape.head_dim;
  if (o.mean) {
    auto mean = request::parse_int(*o.mean, "--mean", 1, 1 << 20);
    if (!mean) return mean.error();
    s.mean = static_cast<double>(*mean);
  }
  s.plugin = pjrt::cpu_plugin(o.plugin.value_or(""), s.devices);
  return s;
}

json times_json(const MeshTimes& t) {
  return {{"forward_ms", t.forward},
          {"backward_ms", t.backward},
          {"cpu_ms", t.cpu},
          {"stay_forward_ms", t.stay_forward},
          {"stay_backward_ms", t.stay_backward},
          {"put_and_fetch_ms", t.put_and_fetch}};
}

std::string beside(double ms, double one) {
  return fmt::format("{:.0f} ({:.2f})", ms, ms / one);
}

void print_row(const MeshContender& c, const MeshTimes& one) {
  const MeshTimes& t = c.times;
  fmt::print("{:<18} {:>13} {:>13} {:>13} {:>13} {:>6.0f} {:>13}\n", c.name,
             beside(t.forward, one.forward), beside(t.backward, one.backward),
             beside(t.stay_forward, one.stay_forward),
             beside(t.stay_backward, one.stay_backward), t.put_and_fetch,
             beside(t.cpu, one.cpu));
}

Result<int> run(const Options& o) {
  auto settings = read_settings(o);
  if (!settings) return settings.error();
  if (auto e = check_result(o.out); !e) return e.error();
  const MeshSettings& s = *settings;
  const std::string plugin = on_a_line(s.plugin);
  std::vector<MeshContender> all = mesh_contenders(s);
  const OtherCores others;
  if (auto ok = measure_mesh(s, all); !ok) return ok.error();
  const double busy = others.so_far();
  if (!o.json) {
    fmt::print(
        "causal & documents, {} tokens, documents of mean {:.0f}, {} heads on "
        "{}, head dim {}, f32; {}; {}.\nms a layer, medians of {} rounds of {} "
        "layers (beside one device); arrays that stay are put and\nfetched "
        "once a round; cpu is of all cores, forward and backward. Others kept "
        "{:.1f}\ncores busy.\n\n"
        "{:<18} {:>13} {:>13} {:>13} {:>13} {:>6} {:>13}\n",
        s.tokens, s.mean, s.shape.heads, s.shape.kv_heads, s.shape.head_dim,
        receipt::cpu_model(), plugin, s.rounds, s.layers, busy, "", "forward",
        "backward", "stay: forward", "backward", "moved", "cpu");
  }
  bool passed = true;
  json rows = json::array();
  for (const MeshContender& c : all) {
    if (!c.check.passed) {
      passed = false;
      fmt::print(stderr, "{} is out of bound: {}\n", c.name, c.check.worst);
    }
    if (!o.json) print_row(c, all.front().times);
    json row = times_json(c.times);
    row["name"] = c.name;
    row["passed"] = c.check.passed;
    row["max_bound_ratio"] = c.check.max_bound_ratio;
    rows.push_back(std::move(row));
  }
  const json out = {{"bench", "mesh"},
                    {"version", kVersion},
                    {"cpu", receipt::cpu_model()},
                    {"plugin", plugin},
                    {"tokens", s.tokens},
                    {"mean", s.mean},
                    {"heads", s.shape.heads},
                    {"kv_heads", s.shape.kv_heads},
                    {"head_dim", s.shape.head_dim},
                    {"devices", s.devices},
                    {"layers", s.layers},
                    {"rounds", s.rounds},
                    {"other_cores", busy},
                    {"passed", passed},
                    {"rows", rows}};
  if (auto e = write_result(o.out, out); !e) return e.error();
  if (o.json) fmt::print("{}\n", out.dump());
  return passed ? kOk : kFailed;
}

}  // namespace

Command mesh_command() {
  auto o = std::make_shared<Options>();
  Command command{"mesh", "Layers on one device and on a mesh of them"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N", "Length of the batch row [8192]"},
          {"--mean", &o->mean, "N", "Mean of the documents' lengths [1500]"},
          {"--heads", &o->heads, "N", "Query heads [8]"},
          {"--kv-heads", &o->kv_heads, "N", "Key and value heads [2]"},
          {"--head-dim", &o->head_dim, "N",
           "Dimension of queries, keys and values [128]"},
          {"--devices", &o->devices, "N", "Devices of the mesh [4]"},
          {"--layers", &o->layers, "N", "Layers of a round [4]"},
          {"--rounds", &o->rounds, "N", "Rounds of each, in turn [3]"},
          {"--plugin", &o->plugin, "NAME",
           "A file or a known name, of all rows [lammps_jax_pjrt_cpu]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
