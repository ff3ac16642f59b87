// lanes/xla/writer_module.cc: the module around the ops, for one device or for
// all devices of a mesh.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "lanes/xla/writer_text.h"

namespace tessera::xla {

using Values = Writer::Values;

namespace {

std::string module_text(std::string_view name, int64_t partitions,
                        std::string_view above, std::string_view arguments,
                        std::string_view types, std::string_view body) {
  return fmt::format(
      "module @{} attributes {{mhlo.num_partitions = {} : i32, "
      "mhlo.num_replicas = 1 : i32}} {{\n"
      "{}"
      "  func.func public @main({}) -> ({}) {{\n"
      "{}"
      "  }}\n"
      "}}\n",
      name, partitions, above, arguments, types, body);
}

std::string typed(const Value& v) { return v.name + ": " + to_string(v.type); }

// `tf.aliasing_output = 3 : i32`, or "".
std::string reuse_of(const Value& argument,
                     [[maybe_unused]] const Values& results,
                     const Writer::Reuse& reuse) {
  for (const auto& [of, result] : reuse) {
    if (argument.name.substr(1) != of) continue;
    assert(results[result].type == argument.type);
    return fmt::format("tf.aliasing_output = {} : i32", result);
  }
  return "";
}

}  // namespace

std::string Writer::module(std::string_view name, const Values& results,
                           const Reuse& reuse) const {
  const auto argument = [&](const Value& a) {
    const std::string taken = reuse_of(a, results, reuse);
    return taken.empty() ? typed(a) : typed(a) + " {" + taken + "}";
  };
  return module_text(name, 1, "", joined(arguments_, argument),
                     types_of(results),
                     fmt::format("{}    \"func.return\"({}) : ({}) -> ()\n",
                                 text_, names_of(results), types_of(results)));
}

namespace {

// Splits "data,seq" into its axes.
std::vector<std::string> words_of(const std::string& axes) {
  std::vector<std::string> out;
  for (size_t at = 0; at < axes.size();) {
    const size_t end = std::min(axes.find(',', at), axes.size());
    out.push_back(axes.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// The type of the whole array, from a device's part and the axes that split it.
Type whole(const Type& part, const std::vector<std::string>& axes,
           const Writer::Spread& spread) {
  assert(axes.size() == part.dims.size());
  Type out = part;
  for (size_t d = 0; d < axes.size(); ++d) {
    for (const std::string& word : words_of(axes[d])) {
      for (const auto& [axis, size] : spread.sizes) {
        if (axis == word) out.dims[d] *= size;
      }
    }
  }
  return out;
}

// `[{"data"}, {}, {"data", "seq"}]`
std::string dims_text(const std::vector<std::string>& axes) {
  const auto quoted = [](const std::string& word) {
    return "\"" + word + "\"";
  };
  return "[" +
         joined(axes,
                [&](const std::string& each) {
                  return "{" + joined(words_of(each), quoted) + "}";
                }) +
         "]";
}

std::string sharding_of(const std::vector<std::string>& axes) {
  return fmt::format("<@mesh, {}>", dims_text(axes));
}

}  // namespace

std::string Writer::module(std::string_view name, const Values& results,
                           const Spread& spread, const Reuse& reuse) const {
  assert(spread.arguments.size() == arguments_.size());
  assert(spread.results.size() == results.size());
  int64_t devices = 1;
  for (const auto& [axis, size] : spread.sizes) devices *= size;
  std::string outer;
  Values given;  // arguments of the function; a device's have other names
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Value& a = arguments_[i];
    const std::vector<std::string>& axes = spread.arguments[i];
    given.push_back({"%all_" + a.name.substr(1), whole(a.type, axes, spread)});
    const std::string taken = reuse_of(a, results, reuse);
    outer += fmt::format("{}{} {{sdy.sharding = #sdy.sharding{}{}{}}}",
                         i == 0 ? "" : ", ", typed(given.back()),
                         sharding_of(axes), taken.empty() ? "" : ", ", taken);
  }
  Values taken;
  std::string types;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::vector<std::string>& axes = spread.results[i];
    taken.push_back({results.size() == 1 ? "%all" : fmt::format("%all#{}", i),
                     whole(results[i].type, axes, spread)});
    types += fmt::format("{}{} {{sdy.sharding = #sdy.sharding{}}}",
                         i == 0 ? "" : ", ", to_string(taken.back().type),
                         sharding_of(axes));
  }
  const std::string mesh = joined(spread.sizes, [](const auto& s) {
    return fmt::format("\"{}\"={}", s.first, s.second);
  });
  const std::string all_axes = joined(spread.sizes, [](const auto& s) {
    return fmt::format("\"{}\"", s.first);
  });
  const std::string body = fmt::format(
      "    %all{} = sdy.manual_computation({}) in_shardings=[{}] "
      "out_shardings=[{}] manual_axes={{{}}} ({}) {{\n"
      "{}"
      "    sdy.return {} : {}\n"
      "    }} : ({}) -> ({})\n"
      "    \"func.return\"({}) : ({}) -> ()\n",
      results.size() == 1 ? "" : fmt::format(":{}", results.size()),
      names_of(given), joined(spread.arguments, sharding_of),
      joined(spread.results, sharding_of), all_axes, joined(arguments_, typed),
      text_, names_of(results), types_of(results), types_of(given),
      types_of(taken), names_of(taken), types_of(taken));
  return module_text(name, devices,
                     fmt::format("  sdy.mesh @mesh = <[{}]>\n", mesh), outer,
                     types, body);
}

}  // namespace tessera::xla
