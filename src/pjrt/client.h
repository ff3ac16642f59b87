// pjrt/client.h: a client of a plugin, and the devices that it has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "pjrt/plugin.h"

struct PJRT_Client;
struct PJRT_Device;

namespace tessera::pjrt {

// Options for the start of a client, such as "cpu_device_count" with 4. The
// plugin takes a double as a float.
using OptionValue = std::variant<bool, int64_t, double, std::string>;
using ClientOptions = std::vector<std::pair<std::string, OptionValue>>;

// The option for the number of CPU devices, and its largest value.
inline constexpr const char* kDeviceCount = "cpu_device_count";
inline constexpr int64_t kMaxDevices = 1024;

struct Device {
  int64_t id = 0;
  std::string kind;  // "cpu"
  PJRT_Device* handle = nullptr;
};

// The devices of a program: one, or one for each of its partitions.
class Devices {
 public:
  Devices(const Device& one) : all_{&one} {}
  explicit Devices(std::vector<const Device*> all) : all_(std::move(all)) {}

  const Device& front() const { return *all_.front(); }
  const Device& operator[](size_t i) const { return *all_[i]; }
  size_t size() const { return all_.size(); }
  std::vector<int64_t> ids() const;

 private:
  std::vector<const Device*> all_;  // not empty
};

class Client {
 public:
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Plugin& plugin() const { return *plugin_; }
  const std::string& platform() const { return platform_; }  // "cpu"
  const std::string& platform_version() const { return platform_version_; }
  // The devices that this process may use, in the plugin's order; at least one.
  const std::vector<Device>& devices() const { return devices_; }
  PJRT_Client* handle() const { return handle_; }
  // For a CPU client: the threads that the plugin's first client was made with.
  int64_t threads() const { return threads_; }

 private:
  friend class ClientMaker;  // client.cc
  Client() = default;

  const Plugin* plugin_ = nullptr;
  std::string platform_, platform_version_;
  std::vector<Device> devices_;
  PJRT_Client* handle_ = nullptr;
  int64_t threads_ = 0;
};

// The same plugin and options, in any order, give the same client. It lives as
// long as the process, because plugins run threads of their own. A start that
// failed is tried again by the next call. Safe from any thread.
Result<const Client*> open_client(const Plugin& plugin,
                                  const ClientOptions& options = {});

// Device `number` of devices(), or an error that says how many there are.
Result<const Device*> find_device(const Client& client, int64_t number);

// "cpu 2": its kind and id, for messages and receipts.
std::string describe(const Device& device);

}  // namespace tessera::pjrt
