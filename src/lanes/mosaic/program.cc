// lanes/mosaic/program.cc: writes main, which holds the custom call.
#include "lanes/mosaic/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/base64.h"

namespace tessera::mosaic {
namespace {

std::string type_text(const Argument& a) {
  std::string out = "tensor<";
  for (int64_t n : a.type.shape) out += fmt::format("{}x", n);
  return fmt::format("{}{}>", out, to_string(scalar(a.type.element)));
}

// Text of a transpose of tokens and dim. No data moves: the compiler itself
// lays out arrays of such dims with the tokens last.
std::string turn_text(std::string_view to, std::string_view from,
                      const Argument& source, const Argument& turned) {
  return fmt::format(
      "    %{} = stablehlo.transpose %{}, dims = [0, 1, 3, 2] : ({}) -> {}\n",
      to, from, type_text(source), type_text(turned));
}

// Row-major layouts of the arrays.
std::string layouts_of(const std::vector<Argument>& arrays) {
  std::string out;
  for (const Argument& a : arrays) {
    const size_t rank = a.type.shape.size();
    std::string order;
    for (size_t i = rank; i-- > 0;) {
      order += fmt::format("{}{}", order.empty() ? "" : ", ", i);
    }
    out +=
        fmt::format("{}dense<{}> : tensor<{}xindex>", out.empty() ? "" : ", ",
                    rank == 1 ? order : fmt::format("[{}]", order), rank);
  }
  return out;
}

std::string joined(const std::vector<Argument>& arrays, bool names) {
  std::string out;
  for (const Argument& a : arrays) {
    if (!out.empty()) out += ", ";
    if (names) out += fmt::format("%{}: ", a.name);
    out += type_text(a);
  }
  return out;
}

}  // namespace

Argument with_dim_last(Argument a) {
  const auto end = a.type.shape.end();
  if (a.tokens_last) std::iter_swap(end - 1, end - 2);
  a.tokens_last = false;
  return a;
}

CallArrays call_arrays(const std::vector<Argument>& arguments, int outputs) {
  CallArrays out;
  bool in_scratch = false;
  for (const Argument& a : arguments) {
    const Space space = a.type.space;
    in_scratch = in_scratch || space == Space::vmem;
    if (in_scratch || (space != Space::smem && space != Space::any)) continue;
    out.inputs.push_back(a);
  }
  const auto results = out.inputs.end() - outputs;
  out.results.assign(results, out.inputs.end());
  out.inputs.erase(results, out.inputs.end());
  return out;
}

namespace {

// Pins arrays to HBM, from and to which the kernel copies. The compiler may
// otherwise put them elsewhere, where a copy is a loop over lines.
std::string places_of(const CallArrays& arrays) {
  std::string inputs, outputs;
  for (size_t i = 0; i < arrays.inputs.size(); ++i) {
    if (arrays.inputs[i].type.space != Space::any) continue;
    inputs += fmt::format(R"({}{{"operand_index": {}, "color": 0}})",
                          inputs.empty() ? "" : ", ", i);
  }
  for (size_t i = 0; i < arrays.results.size(); ++i) {
    outputs += fmt::format(R"({}{{"color": 0, "shape_index": [{}]}})",
                           outputs.empty() ? "" : ", ", i);
  }
  return fmt::format(
      R"("output_memory_space_colors": [{}], "input_memory_space_colors": [{}])",
      outputs, inputs);
}

// Which results share the memory of an input array.
std::string shared_memory(const CallArrays& arrays) {
  std::string out;
  for (size_t r = 0; r < arrays.results.size(); ++r) {
    const std::string name = before(arrays.results[r].name);
    const auto at = std::ranges::find(arrays.inputs, name, &Argument::name);
    if (at == arrays.inputs.end()) continue;
    out += fmt::format(
        "{}#stablehlo.output_operand_alias<output_tuple_indices = [{}], "
        "operand_index = {}, operand_tuple_indices = []>",
        out.empty() ? "" : ", ", r, at - arrays.inputs.begin());
  }
  return out.empty() ? out
                     : fmt::format("output_operand_aliases = [{}], ", out);
}

// Escapes quotes for the text of an attribute.
std::string in_attribute(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 256);
  for (const char c : json) {
    if (c == '"') {
      out += "\\22";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string backend_config(const CallArrays& arrays, std::string_view kernel,
                           int64_t vector_bytes) {
  return fmt::format(
      R"({{"custom_call_config": {{"body": "{}", "serialization_format": 1, )"
      R"("needs_layout_passes": true, {}, "disable_bounds_checks": true}}, )"
      R"("scoped_memory_configs": )"
      R"([{{"memory_space":1, "offset": 0, "size": {}}}]}})",
      base64(kernel), places_of(arrays), vector_bytes);
}

std::string call_attributes(std::string_view name, const CallArrays& arrays,
                            std::string_view kernel, int64_t vector_bytes) {
  return fmt::format(
      "backend_config = \"{}\", kernel_name = \"{}\", {}operand_layouts = "
      "[{}], result_layouts = [{}]",
      in_attribute(backend_config(arrays, kernel, vector_bytes)), name,
      shared_memory(arrays), layouts_of(arrays.inputs),
      layouts_of(arrays.results));
}

std::string program(std::string_view name,
                    const std::vector<Argument>& arguments, int outputs,
                    std::string_view kernel, int64_t vector_bytes) {
  const auto [inputs, results] = call_arrays(arguments, outputs);
  std::string before_call, operands, behind_call, returned;
  std::vector<Argument> taken, given;
  for (const Argument& a : inputs) {
    taken.push_back(with_dim_last(a));
    std::string operand = a.name;
    if (a.tokens_last) {
      operand += "_turned";
      before_call += turn_text(operand, a.name, taken.back(), a);
    }
    operands += fmt::format("{}%{}", operands.empty() ? "" : ", ", operand);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const Argument& a = results[i];
    if (is_kept(a.name)) continue;
    given.push_back(with_dim_last(a));
    std::string result = fmt::format("result#{}", i);
    if (a.tokens_last) {
      behind_call += turn_text(a.name, result, a, given.back());
      result = a.name;
    }
    returned += fmt::format("{}%{}", returned.empty() ? "" : ", ", result);
  }
  std::string out = fmt::format(
      "module @tessera attributes {{mhlo.num_partitions = 1 : i32, "
      "mhlo.num_replicas = 1 : i32}} {{\n"
      "  func.func public @main({}) -> ({}) {{\n"
      "{}    %result:{} = stablehlo.custom_call @{}({}) {{{}}} : ({}) -> ({}) "
      "loc(\"{}\")\n"
      "{}    return {} : {}\n"
      "  }}\n"
      "}}\n\n"
      "// The kernel, which backend_config holds in base64:\n//\n",
      joined(taken, true), joined(given, false), before_call, outputs,
      kCallTarget, operands,
      call_attributes(name, {inputs, results}, kernel, vector_bytes),
      joined(inputs, false), joined(results, false), name, behind_call,
      returned, joined(given, false));
  for (size_t at = 0; at < kernel.size();) {
    const size_t end = std::min(kernel.find('\n', at), kernel.size());
    out += fmt::format("// {}\n", kernel.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace tessera::mosaic
