// tests/plugins/other_outputs.cc: a plugin whose programs report more outputs
// than they have.
#include "tests/plugins/fake_client.h"

namespace {

PJRT_Error* count(PJRT_Executable_NumOutputs_Args* args) {
  args->num_outputs = 3;
  return nullptr;
}

PJRT_Error* types(PJRT_Executable_OutputElementTypes_Args* args) {
  static PJRT_Buffer_Type ours[3] = {PJRT_Buffer_Type_F32, PJRT_Buffer_Type_F32,
                                     PJRT_Buffer_Type_S32};
  args->output_types = ours;
  args->num_output_types = 3;
  return nullptr;
}

PJRT_Error* dims(PJRT_Executable_OutputDimensions_Args* args) {
  static constexpr int64_t kDims[7] = {1, 1, 1000, 8, 1, 1, 16};
  static constexpr size_t kSizes[3] = {4, 3, 0};
  args->dims = kDims;
  args->dim_sizes = kSizes;
  args->num_outputs = 3;
  return nullptr;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = fake::runs();
    a.PJRT_Executable_NumOutputs = count;
    a.PJRT_Executable_OutputElementTypes = types;
    a.PJRT_Executable_OutputDimensions = dims;
    return a;
  }();
  return &api;
}
