// tests/plugins/odd.cc: a plugin of another API version: it has no fingerprint,
// no peak memory, and larger named values than our header.
#include "tests/plugins/fake.h"

struct PJRT_TopologyDescription {};
struct PJRT_Executable {
  std::string program, options;
};
struct PJRT_SerializedExecutable {
  std::string bytes;
};

namespace {

std::atomic<int> alive{0};  // topologies, executables, serialized executables

struct LargerValue {
  PJRT_NamedValue value;
  const char* newer;
};
LargerValue values[3];

PJRT_NamedValue named(const char* name, PJRT_NamedValue_Type type) {
  PJRT_NamedValue out = {};
  out.struct_size = sizeof(LargerValue);
  out.name = name;
  out.name_size = std::string(name).size();
  out.type = type;
  out.value_size = 1;
  return out;
}

PJRT_Error* make_topology(PJRT_TopologyDescription_Create_Args* args) {
  const std::string name(args->topology_name, args->topology_name_size);
  if (name != "good") {
    return fake::error(PJRT_Error_Code_INVALID_ARGUMENT, "no target " + name);
  }
  ++alive;
  args->topology = new PJRT_TopologyDescription;
  return nullptr;
}

PJRT_Error* free_topology(PJRT_TopologyDescription_Destroy_Args* args) {
  --alive;
  delete args->topology;
  return nullptr;
}

PJRT_Error* devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  args->num_descriptions = 0;
  return nullptr;
}

PJRT_Error* compile(PJRT_Compile_Args* args) {
  const std::string program(args->program->code, args->program->code_size);
  const std::string format(args->program->format, args->program->format_size);
  if (format != "mlir") {
    return fake::error(PJRT_Error_Code_UNIMPLEMENTED, "format " + format);
  }
  if (program == "large") {
    return fake::error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "out of smem");
  }
  ++alive;
  args->executable = new PJRT_Executable{
      program, {args->compile_options, args->compile_options_size}};
  return nullptr;
}

PJRT_Error* free_executable(PJRT_Executable_Destroy_Args* args) {
  --alive;
  delete args->executable;
  return nullptr;
}

PJRT_Error* memory(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  args->generated_code_size_in_bytes = 5;
  args->argument_size_in_bytes = 4;
  args->output_size_in_bytes = 3;
  args->alias_size_in_bytes = 2;
  args->temp_size_in_bytes = 1;
  return nullptr;
}

PJRT_Error* cost(PJRT_Executable_GetCostAnalysis_Args* args) {
  values[0].value = named("z", PJRT_NamedValue_kInt64);
  values[0].value.int64_value = -7;
  values[1].value = named("unknown", static_cast<PJRT_NamedValue_Type>(7));
  values[2].value = named("a", PJRT_NamedValue_kFloat);
  values[2].value.float_value = 1.5F;
  args->properties = &values[0].value;
  args->num_properties = 3;
  return nullptr;
}

void free_bytes(PJRT_SerializedExecutable* bytes) {
  --alive;
  delete bytes;
}

PJRT_Error* serialize(PJRT_Executable_Serialize_Args* args) {
  ++alive;
  auto* out = new PJRT_SerializedExecutable{args->executable->program + "|" +
                                            args->executable->options};
  args->serialized_executable = out;
  args->serialized_bytes = out->bytes.data();
  args->serialized_bytes_size = out->bytes.size();
  args->serialized_executable_deleter = free_bytes;
  return nullptr;
}

}  // namespace

extern "C" int fake_alive() { return alive + fake::errors_alive; }

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = [] {
    PJRT_Api api = fake::least();
    api.pjrt_api_version.minor_version = PJRT_API_MINOR + 100;
    api.PJRT_TopologyDescription_Create = make_topology;
    api.PJRT_TopologyDescription_Destroy = free_topology;
    api.PJRT_TopologyDescription_GetDeviceDescriptions = devices;
    api.PJRT_Compile = compile;
    api.PJRT_Executable_Destroy = free_executable;
    api.PJRT_Executable_GetCompiledMemoryStats = memory;
    api.PJRT_Executable_GetCostAnalysis = cost;
    api.PJRT_Executable_Serialize = serialize;
    return api;
  }();
  return &kApi;
}
