// tests/plugins/fake.h: shared by the fake plugins: an API table with its size,
// errors, and functions by which tests read the plugin's counters.
#pragma once

#include <pjrt_c_api.h>

#include <atomic>
#include <string>

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

namespace fake {

inline std::atomic<int> errors_alive{0};

inline PJRT_Error* error(PJRT_Error_Code code, const std::string& message) {
  ++errors_alive;
  return new PJRT_Error{code, message};
}

inline void destroy_error(PJRT_Error_Destroy_Args* args) {
  --errors_alive;
  delete args->error;
}

inline void error_message(PJRT_Error_Message_Args* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

inline PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = args->error->code;
  return nullptr;
}

inline PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) { return nullptr; }

// The smallest API table that can be loaded.
inline PJRT_Api least() {
  PJRT_Api api = {};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.PJRT_Error_Destroy = destroy_error;
  api.PJRT_Error_Message = error_message;
  api.PJRT_Error_GetCode = error_code;
  api.PJRT_Plugin_Initialize = initialize;
  return api;
}

}  // namespace fake
