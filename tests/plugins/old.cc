// tests/plugins/old.cc: a plugin from before PJRT_Compile. Its struct ends
// there, and the memory after it has a function that must not be called.
#include <cstdlib>

#include "tests/plugins/fake.h"

struct PJRT_TopologyDescription {};

namespace {

PJRT_Error* make_topology(PJRT_TopologyDescription_Create_Args* args) {
  args->topology = new PJRT_TopologyDescription;
  return nullptr;
}

PJRT_Error* free_topology(PJRT_TopologyDescription_Destroy_Args* args) {
  delete args->topology;
  return nullptr;
}

PJRT_Error* devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) {
  args->num_descriptions = 0;
  return nullptr;
}

PJRT_Error* never(PJRT_Compile_Args*) { std::abort(); }

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api kApi = [] {
    PJRT_Api api = fake::least();
    api.struct_size = offsetof(PJRT_Api, PJRT_Compile);
    api.PJRT_TopologyDescription_Create = make_topology;
    api.PJRT_TopologyDescription_Destroy = free_topology;
    api.PJRT_TopologyDescription_GetDeviceDescriptions = devices;
    api.PJRT_Compile = never;
    return api;
  }();
  return &kApi;
}
