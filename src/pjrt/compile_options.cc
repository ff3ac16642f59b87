// pjrt/compile_options.cc: writes small messages in protobuf's wire format.
#include "pjrt/compile_options.h"

namespace tessera::pjrt {
namespace {

// Field numbers: CompileOptionsProto, ExecutableBuildOptionsProto in it, and
// DeviceAssignmentProto in the latter, with a message for each computation.
constexpr uint64_t kBuildOptions = 3;
constexpr uint64_t kReplicas = 4;
constexpr uint64_t kPartitions = 5;
constexpr uint64_t kUseSpmd = 6;
constexpr uint64_t kDeviceAssignment = 9;
constexpr uint64_t kUseShardy = 19;
constexpr uint64_t kReplicaCount = 1;
constexpr uint64_t kComputationCount = 2;
constexpr uint64_t kComputationDevices = 3;
constexpr uint64_t kReplicaDeviceIds = 1;
// CompileOptionsProto's map of overrides, its entries, and OptionOverrideProto.
constexpr uint64_t kOverrides = 7;
constexpr uint64_t kKey = 1;
constexpr uint64_t kValue = 2;
constexpr uint64_t kBool = 2;

constexpr const char* kConcurrentOrder =
    "xla_cpu_enable_concurrency_optimized_scheduler";

constexpr uint64_t kVarint = 0;  // wire types
constexpr uint64_t kBytes = 2;

// Seven bits per byte, low ones first; the top bit says that more follow.
void add_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void add_number(std::string& out, uint64_t field, int64_t value) {
  if (value == 0) return;
  add_varint(out, field << 3 | kVarint);
  add_varint(out, static_cast<uint64_t>(value));
}

void add_message(std::string& out, uint64_t field, const std::string& bytes) {
  add_varint(out, field << 3 | kBytes);
  add_varint(out, bytes.size());
  out += bytes;
}

// A computation is a partition; each has one replica.
std::string assignment(const std::vector<int64_t>& devices) {
  std::string out;
  add_number(out, kReplicaCount, 1);
  add_number(out, kComputationCount, static_cast<int64_t>(devices.size()));
  for (const int64_t id : devices) {
    std::string ids;
    add_varint(ids, static_cast<uint64_t>(id));
    std::string computation;
    add_message(computation, kReplicaDeviceIds, ids);  // packed
    add_message(out, kComputationDevices, computation);
  }
  return out;
}

// A compiler option that is switched off. False must be written, too.
std::string switched_off(const char* option) {
  std::string value;
  add_varint(value, kBool << 3 | kVarint);
  add_varint(value, 0);
  std::string out;
  add_message(out, kKey, option);
  add_message(out, kValue, value);
  return out;
}

}  // namespace

std::string compile_options_bytes(const CompileOptions& options) {
  std::string build;
  add_number(build, kReplicas, options.replicas);
  add_number(build, kPartitions, options.partitions);
  add_number(build, kUseSpmd, options.use_spmd ? 1 : 0);
  if (!options.devices.empty()) {
    add_message(build, kDeviceAssignment, assignment(options.devices));
  }
  add_number(build, kUseShardy, options.use_shardy ? 1 : 0);
  std::string out;
  add_message(out, kBuildOptions, build);
  if (options.in_order) {
    add_message(out, kOverrides, switched_off(kConcurrentOrder));
  }
  return out;
}

}  // namespace tessera::pjrt
