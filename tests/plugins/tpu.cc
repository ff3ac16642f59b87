// tests/plugins/tpu.cc: a real CPU plugin that reports to be a TPU. A program
// with a TPU kernel, which no CPU can compile, is replaced by a program with
// the same inputs and outputs, from the file that TESSERA_TEST_TPU_PROGRAM
// names (for gradients with ".backward" at its end, for sink telemetry with
// ".sinks"). The plugin counts calls, and tests can look at the inputs of each
// device in the latest run.
#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/plugins/wrapped.h"

namespace {

const PJRT_Api& real() {
  static const PJRT_Api api = fake::wrapped();
  return api;
}

std::atomic<int> replaced{0};
std::atomic<int> integers{0};

// The data of each buffer, and the inputs of the latest run by device.
std::mutex mutex;
bool records = false;
std::map<const PJRT_Buffer*, std::string> made_of;
std::vector<std::vector<std::string>> latest;

PJRT_Error* platform(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "tpu";
  args->platform_name_size = 3;
  return nullptr;
}

PJRT_Error* kind(PJRT_DeviceDescription_Kind_Args* args) {
  const char* asked = std::getenv("TESSERA_TEST_TPU_KIND");
  args->device_kind = asked ? asked : "TPU v6 lite";
  args->device_kind_size = std::strlen(args->device_kind);
  return nullptr;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const std::string_view code(args->program->code, args->program->code_size);
  const char* path = std::getenv("TESSERA_TEST_TPU_PROGRAM");
  if (!path || code.find("tpu_custom_call") == code.npos) {
    return real().PJRT_Client_Compile(args);
  }
  const bool backward = code.find("\"tessera_backward\"") != code.npos;
  const bool sinks = code.find("\"tessera_sinks\"") != code.npos;
  const char* const suffix = backward ? ".backward" : sinks ? ".sinks" : "";
  std::ifstream file(std::string(path) + suffix, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  PJRT_Program program = *args->program;
  program.code = text.data();
  program.code_size = text.size();
  PJRT_Client_Compile_Args ours = *args;
  ours.program = &program;
  PJRT_Error* error = real().PJRT_Client_Compile(&ours);
  args->executable = ours.executable;
  ++replaced;
  return error;
}

size_t bytes_of(const PJRT_Client_BufferFromHostBuffer_Args& args) {
  const bool narrow = args.type == PJRT_Buffer_Type_BF16;
  size_t out = narrow ? 2 : 4;
  for (size_t i = 0; i < args.num_dims; ++i) {
    out *= static_cast<size_t>(args.dims[i]);
  }
  return out;
}

PJRT_Error* to_device(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (args->type == PJRT_Buffer_Type_S32) ++integers;
  PJRT_Error* error = real().PJRT_Client_BufferFromHostBuffer(args);
  const std::lock_guard lock(mutex);
  if (error || !records) return error;
  made_of[args->buffer] = {static_cast<const char*>(args->data),
                           bytes_of(*args)};
  return nullptr;
}

PJRT_Error* free_buffer(PJRT_Buffer_Destroy_Args* args) {
  {
    const std::lock_guard lock(mutex);
    made_of.erase(args->buffer);
  }
  return real().PJRT_Buffer_Destroy(args);
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  {
    const std::lock_guard lock(mutex);
    latest.clear();
    for (size_t d = 0; records && d < args->num_devices; ++d) {
      auto& of_device = latest.emplace_back();
      for (size_t i = 0; i < args->num_args; ++i) {
        of_device.push_back(made_of[args->argument_lists[d][i]]);
      }
    }
  }
  return real().PJRT_LoadedExecutable_Execute(args);
}

}  // namespace

extern "C" int replaced_programs() { return replaced; }
extern "C" int integers_put() { return integers; }
extern "C" void record_inputs(int wanted) {
  const std::lock_guard lock(mutex);
  records = wanted != 0;
  made_of.clear();
  latest.clear();
}
// An input of the latest run, or null.
extern "C" const std::string* latest_input(int device, int number) {
  const std::lock_guard lock(mutex);
  const auto d = static_cast<size_t>(device);
  const auto i = static_cast<size_t>(number);
  if (d >= latest.size() || i >= latest[d].size()) return nullptr;
  return &latest[d][i];
}

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = real();
    a.PJRT_Client_PlatformName = platform;
    a.PJRT_DeviceDescription_Kind = kind;
    a.PJRT_Client_Compile = compile;
    a.PJRT_Client_BufferFromHostBuffer = to_device;
    a.PJRT_Buffer_Destroy = free_buffer;
    a.PJRT_LoadedExecutable_Execute = execute;
    return a;
  }();
  return &api;
}
