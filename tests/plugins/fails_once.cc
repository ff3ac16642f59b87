// tests/plugins/fails_once.cc: a real plugin with one call that fails once. A
// test selects the call by fail_next, counted from the next one.
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tests/plugins/wrapped.h"

namespace {

const PJRT_Api& real() {
  static const PJRT_Api api = fake::wrapped();
  return api;
}

// The kind of call that fails, numbered as in shard_fails_test.cc.
enum class Fault { none, input, start, end, late, output, read, read_late };
std::atomic<int> fault{0};
std::atomic<int> calls_left{0};
std::atomic<int> calls_seen{0};

// Whether the call made now is the one that fails.
bool fails(Fault here) {
  if (fault.load() != static_cast<int>(here)) return false;
  if (calls_left.fetch_sub(1) != 0) return false;
  fault = 0;
  ++calls_seen;
  return true;
}

// The errors and events that this file made, among those of the plugin.
std::mutex mutex;
std::set<PJRT_Error*> our_errors;
std::set<PJRT_Event*> failing, late;
constexpr const char* kMessage = "the device is lost";

bool is_ours(const PJRT_Error* error) {
  const std::lock_guard lock(mutex);
  return our_errors.count(const_cast<PJRT_Error*>(error)) != 0;
}

PJRT_Error* lost() {
  auto* error = reinterpret_cast<PJRT_Error*>(new char);
  const std::lock_guard lock(mutex);
  our_errors.insert(error);
  return error;
}

void free_error(PJRT_Error_Destroy_Args* args) {
  if (!is_ours(args->error)) return real().PJRT_Error_Destroy(args);
  const std::lock_guard lock(mutex);
  our_errors.erase(args->error);
  delete reinterpret_cast<char*>(args->error);
}

void message(PJRT_Error_Message_Args* args) {
  if (!is_ours(args->error)) return real().PJRT_Error_Message(args);
  args->message = kMessage;
  args->message_size = std::strlen(kMessage);
}

PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  if (!is_ours(args->error)) return real().PJRT_Error_GetCode(args);
  args->code = PJRT_Error_Code_UNAVAILABLE;
  return nullptr;
}

PJRT_Error* to_device(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (fails(Fault::input)) return lost();
  return real().PJRT_Client_BufferFromHostBuffer(args);
}

// For `end`, `late` and `output` the devices of a run are counted.
PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (fails(Fault::start)) return lost();
  PJRT_Error* error = real().PJRT_LoadedExecutable_Execute(args);
  if (error) return error;
  for (size_t d = 0; d < args->num_devices; ++d) {
    const std::lock_guard lock(mutex);
    if (fails(Fault::end)) failing.insert(args->device_complete_events[d]);
    if (fails(Fault::late)) late.insert(args->device_complete_events[d]);
    if (fails(Fault::output)) {
      PJRT_Buffer_Destroy_Args gone = {};
      gone.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE;
      gone.buffer = args->output_lists[d][0];
      real().PJRT_Buffer_Destroy(&gone);
      args->output_lists[d][0] = nullptr;
    }
  }
  return nullptr;
}

PJRT_Error* to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  if (fails(Fault::read)) return lost();
  const bool halfway = fails(Fault::read_late);
  PJRT_Error* error = real().PJRT_Buffer_ToHostBuffer(args);
  if (!error && halfway) {
    const std::lock_guard lock(mutex);
    failing.insert(args->event);
  }
  return error;
}

PJRT_Error* await(PJRT_Event_Await_Args* args) {
  bool is_failing = false;
  bool is_late = false;
  {
    const std::lock_guard lock(mutex);
    is_failing = failing.erase(args->event) != 0;
    is_late = late.erase(args->event) != 0;
  }
  if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  PJRT_Error* error = real().PJRT_Event_Await(args);
  return !error && is_failing ? lost() : error;
}

}  // namespace

extern "C" void fail_next(int what, int after) {
  calls_left = after;
  fault = what;
}
// The number of faults that happened, and of errors that were not freed.
extern "C" int faults_seen() { return calls_seen; }
extern "C" int errors_alive() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(our_errors.size() + failing.size());
}

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api a = real();
    a.PJRT_Error_Destroy = free_error;
    a.PJRT_Error_Message = message;
    a.PJRT_Error_GetCode = code;
    a.PJRT_Client_BufferFromHostBuffer = to_device;
    a.PJRT_LoadedExecutable_Execute = execute;
    a.PJRT_Buffer_ToHostBuffer = to_host;
    a.PJRT_Event_Await = await;
    return a;
  }();
  return &api;
}
