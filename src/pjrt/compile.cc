// pjrt/compile.cc: PJRT_Compile, and queries to an executable.
#include "pjrt/compile.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/fail.h"
#include "base/text.h"
#include "pjrt/api.h"

namespace tessera::pjrt {
namespace {

constexpr int64_t kUnset = -1;

// The error rule of a query about `what`.
struct Question {
  std::string rule;
  explicit Question(std::string_view what)
      : rule(fmt::format("an executable must tell its {}", what)) {}
  Purpose about(const Plugin& plugin) const { return {rule, plugin.path()}; }
};

// Nothing if the property has a type that is not known here.
std::optional<CostProperty> read_property(const PJRT_NamedValue& value) {
  CostProperty out;
  if (!value.name) return {};
  out.name = text_of(value.name, value.name_size);
  int type = 0;  // a newer plugin's may be outside the enum
  std::memcpy(&type, &value.type, sizeof type);
  switch (type) {
    case PJRT_NamedValue_kFloat:
      out.value = double{value.float_value};
      return out;
    case PJRT_NamedValue_kInt64:
      out.value = value.int64_value;
      return out;
    case PJRT_NamedValue_kBool:
      out.value = value.bool_value;
      return out;
    case PJRT_NamedValue_kString:
      out.value = text_of(value.string_value, value.value_size);
      return out;
    case PJRT_NamedValue_kInt64List:
      out.value = std::vector<int64_t>(
          value.int64_array_value, value.int64_array_value + value.value_size);
      return out;
  }
  return {};
}

// An MLIR text without comments and strings, and whether Shardy's words stand
// in the code or in a string: in MLIR's generic form a custom call's target is
// a string.
struct Words {
  std::string code;
  bool shardy = false;
};
Words words_of(std::string_view program) {
  Words out;
  const auto is_shardys = [](std::string_view text) {
    return text.find("sdy.") != std::string_view::npos;
  };
  size_t at = 0;
  while (at < program.size()) {
    size_t end = std::min(program.find_first_of("\"/", at), program.size());
    out.code += program.substr(at, end - at);
    at = end;
    if (program.substr(at, 1) == "\"") {
      while (++end < program.size() && program[end] != '"') {
        if (program[end] == '\\') ++end;
      }
      end = std::min(end + 1, program.size());
      out.shardy |= is_shardys(program.substr(at, end - at));
      at = end;
    } else if (program.substr(at, 2) == "//") {
      at = std::min(program.find('\n', at), program.size());
    } else if (at < program.size()) {
      out.code += program[at++];
    }
  }
  out.shardy |= is_shardys(out.code);
  return out;
}

}  // namespace

template <>
void Destroyer<PJRT_Executable>::operator()(PJRT_Executable* object) const {
  PJRT_Executable_Destroy_Args args = {};
  args.executable = object;
  (void)TESSERA_PJRT_CALL(*plugin, PJRT_Executable_Destroy, args,
                          Purpose{"an executable must be freed", "it"});
}

Result<CompileOptions> options_of(const Topology& topology,
                                  std::string_view program) {
  CompileOptions out;
  constexpr std::string_view kPartitions = "mhlo.num_partitions = ";
  if (program.find(kPartitions) == std::string_view::npos) return out;
  const Words words = words_of(program);
  const size_t at = words.code.find(kPartitions);
  if (at == std::string::npos) return out;
  const char* const begin = words.code.data() + at + kPartitions.size();
  const char* const end = words.code.data() + words.code.size();
  if (std::from_chars(begin, end, out.partitions).ec != std::errc() ||
      out.partitions < 1) {
    return invalid("pjrt",
                   "{}must be followed by a number from 1 on, found "
                   "none",
                   kPartitions);
  }
  if (out.partitions == 1) return out;
  // With any other number, libtpu ends the process.
  const auto devices = static_cast<int64_t>(topology.devices().size());
  if (out.partitions != devices) {
    return invalid("pjrt",
                   "a program's partitions must be the {} devices of {}, found "
                   "{}",
                   devices, topology.name(), out.partitions);
  }
  out.use_spmd = true;
  out.use_shardy = words.shardy;
  return out;
}

Result<Executable> compile(const Topology& topology, std::string_view program,
                           const CompileOptions& options) {
  std::string code(program);
  PJRT_Program in = mlir_program(code);
  const std::string bytes = compile_options_bytes(options);
  PJRT_Compile_Args args = {};
  args.topology = topology.handle();
  args.program = &in;
  args.compile_options = bytes.data();
  args.compile_options_size = bytes.size();
  auto ok =
      TESSERA_PJRT_CALL(topology.plugin(), PJRT_Compile, args,
                        Purpose{"the program must compile", topology.name()});
  if (!ok) return ok.error();
  if (!args.executable) {
    return invalid("pjrt", "the program must compile, found nothing for {}",
                   topology.name());
  }
  Executable out;
  out.handle_ = {args.executable, {&topology.plugin()}};
  return out;
}

Result<std::string> Executable::name() const {
  PJRT_Executable_Name_Args args = {};
  args.executable = handle();
  auto ok = TESSERA_PJRT_CALL(plugin(), PJRT_Executable_Name, args,
                              Question("name").about(plugin()));
  if (!ok) return ok.error();
  return text_of(args.executable_name, args.executable_name_size);
}

Result<std::string> Executable::fingerprint() const {
  PJRT_Executable_Fingerprint_Args args = {};
  args.executable = handle();
  auto ok = TESSERA_PJRT_CALL(plugin(), PJRT_Executable_Fingerprint, args,
                              Question("fingerprint").about(plugin()));
  if (!ok) return ok.error();
  return text_of(args.executable_fingerprint, args.executable_fingerprint_size);
}

Result<int64_t> Executable::outputs() const {
  PJRT_Executable_NumOutputs_Args args = {};
  args.executable = handle();
  auto ok = TESSERA_PJRT_CALL(plugin(), PJRT_Executable_NumOutputs, args,
                              Question("outputs").about(plugin()));
  if (!ok) return ok.error();
  return static_cast<int64_t>(args.num_outputs);
}

Result<int64_t> Executable::code_bytes() const {
  PJRT_Executable_SizeOfGeneratedCodeInBytes_Args args = {};
  args.executable = handle();
  auto ok =
      TESSERA_PJRT_CALL(plugin(), PJRT_Executable_SizeOfGeneratedCodeInBytes,
                        args, Question("code's size").about(plugin()));
  if (!ok) return ok.error();
  return args.size_in_bytes;
}

Result<MemoryStats> Executable::memory() const {
  PJRT_Executable_GetCompiledMemoryStats_Args args = {};
  args.executable = handle();
  args.peak_memory_in_bytes = kUnset;
  auto ok = TESSERA_PJRT_CALL(plugin(), PJRT_Executable_GetCompiledMemoryStats,
                              args, Question("memory").about(plugin()));
  if (!ok) return ok.error();
  MemoryStats out;
  out.code = args.generated_code_size_in_bytes;
  out.argument = args.argument_size_in_bytes;
  out.output = args.output_size_in_bytes;
  out.alias = args.alias_size_in_bytes;
  out.temporary = args.temp_size_in_bytes;
  if (args.peak_memory_in_bytes != kUnset) out.peak = args.peak_memory_in_bytes;
  return out;
}

Result<std::vector<CostProperty>> Executable::cost() const {
  PJRT_Executable_GetCostAnalysis_Args args = {};
  args.executable = handle();
  auto ok = TESSERA_PJRT_CALL(plugin(), PJRT_Executable_GetCostAnalysis, args,
                              Question("cost").about(plugin()));
  if (!ok) return ok.error();
  std::vector<CostProperty> out;
  if (args.num_properties == 0 || !args.properties) return out;
  // A newer plugin's values may be larger than those of our header.
  const size_t stride = args.properties->struct_size;
  const auto* at = reinterpret_cast<const char*>(args.properties);
  for (size_t i = 0; i < args.num_properties; ++i, at += stride) {
    const auto* value = reinterpret_cast<const PJRT_NamedValue*>(at);
    if (value->struct_size != stride ||
        !reaches(*value, &PJRT_NamedValue::value_size)) {
      return invalid("pjrt",
                     "a plugin's values must have one size of at least {} "
                     "bytes, found {} for {}",
                     size_t{PJRT_NamedValue_STRUCT_SIZE}, value->struct_size,
                     in_quotes(plugin().path()));
    }
    if (auto property = read_property(*value)) {
      out.push_back(std::move(*property));
    }
  }
  std::sort(out.begin(), out.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

Result<std::string> Executable::serialize() const {
  PJRT_Executable_Serialize_Args args = {};
  args.executable = handle();
  auto ok = TESSERA_PJRT_CALL(plugin(), PJRT_Executable_Serialize, args,
                              Question("bytes").about(plugin()));
  if (!ok) return ok.error();
  std::string out = text_of(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter) {
    args.serialized_executable_deleter(args.serialized_executable);
  }
  return out;
}

}  // namespace tessera::pjrt
