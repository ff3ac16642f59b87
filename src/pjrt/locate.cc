// pjrt/locate.cc: asks Python where a package lies, without importing it.
#include "pjrt/locate.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/child.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/trace.h"

namespace tessera::pjrt {
namespace {

constexpr KnownPlugin kKnown[] = {
    {"libtpu", "libtpu", "libtpu.so", "TESSERA_PJRT_LIBTPU", "libtpu"},
    {"xla_cpu_pjrt", "xla_plugins", "xla_cpu_pjrt/xla_cpu_pjrt.so",
     "TESSERA_PJRT_XLA_CPU_PJRT", "xla-cpu-pjrt"},
    {"lammps_jax_pjrt_cpu", "lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so",
     "TESSERA_PJRT_LAMMPS_JAX_PJRT_CPU", "lammps-jax-pjrt-cpu"},
};

constexpr double kPythonSeconds = 30;

// '' is removed from the path, so that a package in the current folder does not
// count as installed.
constexpr const char* kScript =
    "import sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "import importlib.util, os\n"
    "spec = importlib.util.find_spec(sys.argv[1])\n"
    "for place in (spec and spec.submodule_search_locations) or []:\n"
    "    path = os.path.join(place, sys.argv[2])\n"
    "    if os.path.isfile(path):\n"
    "        sys.stdout.write(path)\n"
    "        break\n";

std::string variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? value : "";
}

std::vector<std::string> interpreters() {
  if (std::string named = variable("TESSERA_PYTHON"); !named.empty()) {
    return {std::move(named)};
  }
  std::vector<std::string> out;
  if (const std::string venv = variable("VIRTUAL_ENV"); !venv.empty()) {
    out.push_back(venv + "/bin/python");
  }
  out.emplace_back("python3");
  return out;
}

// The path, or why there is none.
struct Answer {
  std::string path, why;
};

Answer ask(const std::string& python, const KnownPlugin& plugin) {
  const auto run =
      run_child({python, "-c", kScript, std::string(plugin.package),
                 std::string(plugin.file)},
                {{"PYTHONDONTWRITEBYTECODE", "1"}}, kPythonSeconds);
  if (!run) return {"", run.error().message};
  if (run->timed_out) {
    return {"", fmt::format("no answer in {:.0f} s", kPythonSeconds)};
  }
  if (run->exit_code != 0) {
    // The last line of a traceback tells the error.
    std::string_view said = run->err;
    while (said.ends_with('\n')) said.remove_suffix(1);
    said.remove_prefix(said.rfind('\n') + 1);
    return {"", fmt::format("exit {} {}", run->exit_code, in_quotes(said))};
  }
  if (run->out.empty()) return {"", "no such package"};
  return {run->out, ""};
}

}  // namespace

std::span<const KnownPlugin> known_plugins() { return kKnown; }

std::string default_cpu_plugin(int64_t devices) {
  return devices > 1 ? "lammps_jax_pjrt_cpu" : "xla_cpu_pjrt";
}

std::string cpu_plugin(const std::string& named, int64_t devices) {
  return named.empty() ? default_cpu_plugin(devices) : named;
}

Result<std::string> find_plugin(const std::string& plugin) {
  if (plugin.find('/') != std::string::npos || plugin.ends_with(".so")) {
    return plugin;
  }
  TraceSpan span("pjrt", "find_plugin");
  span.note("name", plugin);
  const auto* known =
      std::find_if(std::begin(kKnown), std::end(kKnown),
                   [&](const KnownPlugin& k) { return k.name == plugin; });
  if (known == std::end(kKnown)) {
    std::vector<std::string_view> names;
    for (const KnownPlugin& k : kKnown) names.push_back(k.name);
    return invalid("pjrt", "a plugin must be a path or one of {}, found {}",
                   fmt::join(names, ", "), in_quotes(plugin));
  }
  if (std::string path = variable(known->variable); !path.empty()) return path;
  std::string asked;
  for (const std::string& python : interpreters()) {
    Answer answer = ask(python, *known);
    if (!answer.path.empty()) return std::move(answer.path);
    asked += fmt::format("{}{}: {}", asked.empty() ? "" : ", ",
                         in_quotes(python), answer.why);
  }
  return unavailable("pjrt",
                     "{} must be installed (pip install {}; name its Python in "
                     "TESSERA_PYTHON, or the file in {}), found {}",
                     known->name, known->install, known->variable, asked);
}

}  // namespace tessera::pjrt
