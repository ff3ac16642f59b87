// tests/plugins/refuses_load.cc: a real plugin that refuses serialized
// programs.
#include "tests/plugins/wrapped.h"

namespace {

// Returns a real error of the plugin, for a program that is invalid.
PJRT_Error* refuse(PJRT_Executable_DeserializeAndLoad_Args* args) {
  static const PJRT_Api real = fake::wrapped();
  char text[] = "no program";
  const char format[] = "mlir";
  PJRT_Program program = {};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = text;
  program.code_size = sizeof text - 1;
  program.format = format;
  program.format_size = sizeof format - 1;
  PJRT_Client_Compile_Args compile = {};
  compile.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE;
  compile.client = args->client;
  compile.program = &program;
  return real.PJRT_Client_Compile(&compile);
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = fake::wrapped();
    a.PJRT_Executable_DeserializeAndLoad = refuse;
    return a;
  }();
  return &api;
}
