// tests/plugins/tpu.cc: a real CPU plugin that says it is a TPU. A program with
// a TPU kernel in it, which no CPU can compile, is replaced by the one in the
// file that TESSERA_TEST_TPU_PROGRAM names, of the same inputs and outputs;
// that of the gradients ends in ".backward", that of sink telemetry in
// ".sinks".
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/plugins/wrapped.h"

namespace {

const PJRT_Api& real() {
  static const PJRT_Api api = fake::wrapped();
  return api;
}

std::atomic<int> replaced{0};

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

}  // namespace

extern "C" int replaced_programs() { return replaced; }

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = real();
    a.PJRT_Client_PlatformName = platform;
    a.PJRT_DeviceDescription_Kind = kind;
    a.PJRT_Client_Compile = compile;
    return a;
  }();
  return &api;
}
