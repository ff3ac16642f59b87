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

// What a plugin can be asked at its start: "cpu_device_count" is 4. It takes a
// double as a float.
using OptionValue = std::variant<bool, int64_t, double, std::string>;
using ClientOptions = std::vector<std::pair<std::string, OptionValue>>;

// Of a plugin for CPUs, and the most that one may be asked for.
inline constexpr const char* kDeviceCount = "cpu_device_count";
inline constexpr int64_t kMaxDevices = 1024;

struct Device {
  int64_t id = 0;
  std::string kind;  // "cpu"
  PJRT_Device* handle = nullptr;
};

// What a program runs on: one device, or one for each of its partitions.
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
  // Those that this process may use, in the plugin's order; at least one.
  const std::vector<Device>& devices() const { return devices_; }
  PJRT_Client* handle() const { return handle_; }
  // Of a client for CPUs: as many as the plugin's first client was made with.
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

// The same plugin and options, in any order, again give the same client, which
// lives as long as the process: plugins run threads of their own. One that
// could not start is tried again. Safe from any thread.
Result<const Client*> open_client(const Plugin& plugin,
                                  const ClientOptions& options = {});

// The device of that number in devices(), or an error that says how many.
Result<const Device*> find_device(const Client& client, int64_t number);

// "cpu 2": its kind and id, for messages and receipts.
std::string describe(const Device& device);

}  // namespace tessera::pjrt
