// lanes/mosaic/program.cc: main, whose one op is the custom call.
#include "lanes/mosaic/program.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace tessera::mosaic {
namespace {

struct Array {
  std::string_view name;
  std::string type;
  int rank = 0;
};

Array array_of(std::string_view name, const std::vector<int64_t>& shape,
               std::string_view element) {
  std::string type = "tensor<";
  for (int64_t n : shape) type += fmt::format("{}x", n);
  return {name, type + std::string(element) + ">",
          static_cast<int>(shape.size())};
}

// Row major.
std::string layouts_of(const std::vector<Array>& arrays) {
  std::string out;
  for (const Array& a : arrays) {
    std::string order;
    for (int i = a.rank - 1; i >= 0; --i) {
      order += fmt::format("{}{}", order.empty() ? "" : ", ", i);
    }
    out +=
        fmt::format("{}dense<{}> : tensor<{}xindex>", out.empty() ? "" : ", ",
                    a.rank == 1 ? order : fmt::format("[{}]", order), a.rank);
  }
  return out;
}

std::string joined(const std::vector<Array>& arrays, bool names, bool types) {
  std::string out;
  for (const Array& a : arrays) {
    if (!out.empty()) out += ", ";
    if (names) out += fmt::format("%{}{}", a.name, types ? ": " : "");
    if (types) out += a.type;
  }
  return out;
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 |
             (j < have ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= have ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

std::string program(std::string_view name,
                    const std::vector<Argument>& arguments, int outputs,
                    std::string_view kernel) {
  std::vector<Array> inputs;
  for (const Argument& a : arguments) {
    if (a.type.space != Space::smem && a.type.space != Space::any) continue;
    const Type element = scalar(a.type.element);
    inputs.push_back(array_of(a.name, a.type.shape, to_string(element)));
  }
  const std::vector<Array> results(inputs.end() - outputs, inputs.end());
  inputs.resize(inputs.size() - static_cast<size_t>(outputs));
  std::string returned;
  for (int i = 0; i < outputs; ++i) {
    returned += fmt::format("{}%result#{}", i == 0 ? "" : ", ", i);
  }
  const std::string config = fmt::format(
      "{{\\22custom_call_config\\22: {{\\22body\\22: \\22{}\\22, "
      "\\22serialization_format\\22: 1, \\22needs_layout_passes\\22: true, "
      "\\22disable_bounds_checks\\22: true}}, \\22scoped_memory_configs\\22: "
      "[{{\\22memory_space\\22:1, \\22offset\\22: 0, \\22size\\22: {}}}]}}",
      base64(kernel), kProgramVectorBytes);
  std::string out = fmt::format(
      "module @tessera attributes {{mhlo.num_partitions = 1 : i32, "
      "mhlo.num_replicas = 1 : i32}} {{\n"
      "  func.func public @main({}) -> ({}) {{\n"
      "    %result:{} = stablehlo.custom_call @tpu_custom_call({}) "
      "{{backend_config = \"{}\", kernel_name = \"{}\", "
      "operand_layouts = [{}], result_layouts = [{}]}} : ({}) -> ({}) "
      "loc(\"{}\")\n"
      "    return {} : {}\n"
      "  }}\n"
      "}}\n\n"
      "// The kernel, which backend_config holds in base64:\n//\n",
      joined(inputs, true, true), joined(results, false, true), outputs,
      joined(inputs, true, false), config, name, layouts_of(inputs),
      layouts_of(results), joined(inputs, false, true),
      joined(results, false, true), name, returned,
      joined(results, false, true));
  for (size_t at = 0; at < kernel.size();) {
    const size_t end = std::min(kernel.find('\n', at), kernel.size());
    out += fmt::format("// {}\n", kernel.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace tessera::mosaic
