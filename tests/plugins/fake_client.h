// tests/plugins/fake_client.h: a fake plugin with clients that run programs and
// fail on request: a client by its options, an array by its size, a program by
// its text, on the last of its devices. All objects are counted.
#pragma once

#include <cstring>
#include <vector>

#include "tests/plugins/fake.h"

struct PJRT_Client {
  std::vector<PJRT_Device*> devices;
};
struct PJRT_DeviceDescription {
  int id = 0;
};
struct PJRT_Device {
  PJRT_DeviceDescription description;
};
struct PJRT_Buffer {
  std::string bytes;
  std::vector<int64_t> dims;
};
struct PJRT_Event {
  std::string message;
  bool reads = false;  // it reads the caller's data until it is awaited
};
struct PJRT_Executable {
  std::string text;
};
struct PJRT_LoadedExecutable {
  std::string text;
};

namespace fake {

inline std::atomic<int> alive{0};    // buffers, events, executables
inline std::atomic<int> clients{0};  // all that were ever made
inline std::atomic<int> unread{0};   // reading events freed before their time
inline PJRT_Device devices[2] = {{{7}}, {{9}}};

// Sizes of one-dimensional arrays that request a failure.
inline constexpr int64_t kNoRoom = 101;
inline constexpr int64_t kNothing = 102;
inline constexpr int64_t kNeverComes = 103;

inline PJRT_Event* event(const std::string& message) {
  ++alive;
  return new PJRT_Event{message};
}

inline PJRT_Error* free_event(PJRT_Event_Destroy_Args* args) {
  --alive;
  unread += args->event->reads;
  delete args->event;
  return nullptr;
}

inline PJRT_Error* await_event(PJRT_Event_Await_Args* args) {
  args->event->reads = false;
  if (args->event->message.empty()) return nullptr;
  return error(PJRT_Error_Code_INTERNAL, args->event->message);
}

inline PJRT_Error* make_client(PJRT_Client_Create_Args* args) {
  std::string start;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    if (option.type == PJRT_NamedValue_kString) {
      start.assign(option.string_value, option.value_size);
    }
  }
  ++clients;
  if (start == "fails") {
    return error(PJRT_Error_Code_UNAVAILABLE,
                 "no chip, asked " + std::to_string(clients));
  }
  if (start == "nothing") return nullptr;
  ++alive;
  args->client = new PJRT_Client;
  if (start != "no devices") {
    args->client->devices = {&devices[0], &devices[1]};
  }
  return nullptr;
}

inline PJRT_Error* free_client(PJRT_Client_Destroy_Args* args) {
  --alive;
  delete args->client;
  return nullptr;
}

inline PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}

inline PJRT_Error* platform_version(PJRT_Client_PlatformVersion_Args* args) {
  args->platform_version = "fake 1.2";
  args->platform_version_size = 8;
  return nullptr;
}

inline PJRT_Error* list_devices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = args->client->devices.data();
  args->num_addressable_devices = args->client->devices.size();
  return nullptr;
}

inline PJRT_Error* description(PJRT_Device_GetDescription_Args* args) {
  args->device_description = &args->device->description;
  return nullptr;
}

inline PJRT_Error* device_id(PJRT_DeviceDescription_Id_Args* args) {
  args->id = args->device_description->id;
  return nullptr;
}

inline PJRT_Error* make_buffer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  const int64_t size = args->num_dims == 1 ? args->dims[0] : 1;
  if (size == kNoRoom) {
    return error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "no room");
  }
  args->done_with_host_buffer = event("");
  args->done_with_host_buffer->reads = true;
  if (size == kNothing) return nullptr;
  ++alive;
  args->buffer = new PJRT_Buffer{
      {static_cast<const char*>(args->data), static_cast<size_t>(size)},
      {args->dims, args->dims + args->num_dims}};
  return nullptr;
}

inline PJRT_Error* free_buffer(PJRT_Buffer_Destroy_Args* args) {
  --alive;
  delete args->buffer;
  return nullptr;
}

inline PJRT_Error* read_buffer(PJRT_Buffer_ToHostBuffer_Args* args) {
  const auto& bytes = args->src->bytes;
  if (bytes.size() == kNeverComes) {
    args->event = event("the link is down");
    return nullptr;
  }
  std::memcpy(args->dst, bytes.data(), bytes.size());
  args->event = event("");
  return nullptr;
}

inline PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const std::string text(args->program->code, args->program->code_size);
  if (text == "does not compile") {
    return error(PJRT_Error_Code_INVALID_ARGUMENT, "at line 1");
  }
  if (text == "nothing") return nullptr;
  ++alive;
  args->executable = new PJRT_LoadedExecutable{text};
  return nullptr;
}

inline PJRT_Error* load(PJRT_Executable_DeserializeAndLoad_Args* args) {
  ++alive;
  args->loaded_executable = new PJRT_LoadedExecutable{
      {args->serialized_executable, args->serialized_executable_size}};
  return nullptr;
}

inline PJRT_Error* free_loaded(PJRT_LoadedExecutable_Destroy_Args* args) {
  --alive;
  delete args->executable;
  return nullptr;
}

inline PJRT_Error* get_executable(
    PJRT_LoadedExecutable_GetExecutable_Args* args) {
  ++alive;
  args->executable = new PJRT_Executable{args->loaded_executable->text};
  return nullptr;
}

inline PJRT_Error* free_executable(PJRT_Executable_Destroy_Args* args) {
  --alive;
  delete args->executable;
  return nullptr;
}

inline PJRT_Error* count_outputs(PJRT_Executable_NumOutputs_Args* args) {
  args->num_outputs = 2;
  return nullptr;
}

inline PJRT_Error* output_types(PJRT_Executable_OutputElementTypes_Args* args) {
  static PJRT_Buffer_Type ours[2] = {PJRT_Buffer_Type_U8, PJRT_Buffer_Type_U8};
  static PJRT_Buffer_Type odd[2] = {PJRT_Buffer_Type_U8,
                                    static_cast<PJRT_Buffer_Type>(77)};
  args->output_types = args->executable->text == "odd type" ? odd : ours;
  args->num_output_types = args->executable->text == "odd count" ? 1 : 2;
  return nullptr;
}

inline PJRT_Error* output_dims(PJRT_Executable_OutputDimensions_Args* args) {
  static constexpr int64_t kDims[1] = {3};
  static constexpr size_t kSizes[2] = {1, 0};  // [3] and a scalar
  args->dims = kDims;
  args->dim_sizes = kSizes;
  args->num_outputs = 2;
  return nullptr;
}

inline PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  const std::string& text = args->executable->text;
  if (text == "does not start") {
    return error(PJRT_Error_Code_ABORTED, "the core is halted");
  }
  if (args->options->num_non_donatable_input_indices != args->num_args) {
    return error(PJRT_Error_Code_INVALID_ARGUMENT, "an input may go");
  }
  for (size_t d = 0; d < args->num_devices; ++d) {
    const bool last = d + 1 == args->num_devices;
    alive += 1;
    args->output_lists[d][0] = new PJRT_Buffer{"abc", {3}};
    if (text != "forgets an output" || !last) {
      alive += 1;
      args->output_lists[d][1] = new PJRT_Buffer{"d", {}};
    }
    const bool fails =
        text == "all do not end" || (text == "does not end" && last);
    args->device_complete_events[d] = event(fails ? "a fault in the core" : "");
  }
  return nullptr;
}

// The full API table.
inline PJRT_Api runs() {
  PJRT_Api api = least();
  api.PJRT_Event_Destroy = free_event;
  api.PJRT_Event_Await = await_event;
  api.PJRT_Client_Create = make_client;
  api.PJRT_Client_Destroy = free_client;
  api.PJRT_Client_PlatformName = platform_name;
  api.PJRT_Client_PlatformVersion = platform_version;
  api.PJRT_Client_AddressableDevices = list_devices;
  api.PJRT_Device_GetDescription = description;
  api.PJRT_DeviceDescription_Id = device_id;
  api.PJRT_Client_BufferFromHostBuffer = make_buffer;
  api.PJRT_Buffer_Destroy = free_buffer;
  api.PJRT_Buffer_ToHostBuffer = read_buffer;
  api.PJRT_Client_Compile = compile;
  api.PJRT_Executable_DeserializeAndLoad = load;
  api.PJRT_LoadedExecutable_Destroy = free_loaded;
  api.PJRT_LoadedExecutable_GetExecutable = get_executable;
  api.PJRT_Executable_Destroy = free_executable;
  api.PJRT_Executable_NumOutputs = count_outputs;
  api.PJRT_Executable_OutputElementTypes = output_types;
  api.PJRT_Executable_OutputDimensions = output_dims;
  api.PJRT_LoadedExecutable_Execute = execute;
  return api;
}

}  // namespace fake
