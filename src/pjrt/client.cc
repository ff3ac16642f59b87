// pjrt/client.cc: starts clients, reads their devices, keeps both.
#include "pjrt/client.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/text.h"
#include "base/trace.h"
#include "pjrt/api.h"
#include "pjrt/environment.h"

namespace tessera::pjrt {
namespace {

// The result points into the option, which must outlive it.
PJRT_NamedValue named_value(const std::string& name, const OptionValue& value) {
  PJRT_NamedValue out = {};
  out.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  out.name = name.c_str();
  out.name_size = name.size();
  out.value_size = 1;
  if (const auto* flag = std::get_if<bool>(&value)) {
    out.type = PJRT_NamedValue_kBool;
    out.bool_value = *flag;
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    out.type = PJRT_NamedValue_kInt64;
    out.int64_value = *number;
  } else if (const auto* real = std::get_if<double>(&value)) {
    out.type = PJRT_NamedValue_kFloat;
    out.float_value = static_cast<float>(*real);
  } else {
    const auto& text = std::get<std::string>(value);
    out.type = PJRT_NamedValue_kString;
    out.string_value = text.c_str();
    out.value_size = text.size();
  }
  return out;
}

// Checked here because plugins end the process if a count has another type, or
// is below 0.
Result<void> check_option(const std::string& name, const OptionValue& value) {
  if (const auto* real = std::get_if<double>(&value)) {
    if (!std::isfinite(static_cast<float>(*real))) {
      return invalid("pjrt",
                     "an option must be a finite float, found {} for {}", *real,
                     in_quotes(name));
    }
  }
  if (name != kDeviceCount) return {};
  const auto* count = std::get_if<int64_t>(&value);
  if (count && *count >= 1 && *count <= kMaxDevices) return {};
  return invalid("pjrt", "{} must be an integer in 1..{}, found {}",
                 kDeviceCount, kMaxDevices,
                 count ? fmt::to_string(*count) : "another type");
}

// The id is required, to compile for the device; the kind may stay empty.
Result<Device> describe_device(const Plugin& plugin, PJRT_Device* at) {
  const Purpose purpose = {"a device must have a description", plugin.path()};
  PJRT_Device_GetDescription_Args description = {};
  description.device = at;
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_Device_GetDescription, description,
                              purpose);
  if (!ok) return ok.error();
  Device out;
  out.handle = at;
  PJRT_DeviceDescription_Id_Args id = {};
  id.device_description = description.device_description;
  ok = TESSERA_PJRT_CALL(plugin, PJRT_DeviceDescription_Id, id, purpose);
  if (!ok) return ok.error();
  out.id = id.id;
  PJRT_DeviceDescription_Kind_Args kind = {};
  kind.device_description = description.device_description;
  if (TESSERA_PJRT_CALL(plugin, PJRT_DeviceDescription_Kind, kind, purpose)) {
    out.kind = text_of(kind.device_kind, kind.device_kind_size);
  }
  return out;
}

}  // namespace

class ClientMaker {
 public:
  static Result<std::unique_ptr<const Client>> make(
      const Plugin& plugin, const ClientOptions& options, int64_t threads);

 private:
  // Reads the platform and devices of a client that has started.
  static Result<void> look_at(Client& client);
};

Result<std::unique_ptr<const Client>> ClientMaker::make(
    const Plugin& plugin, const ClientOptions& options, int64_t threads) {
  std::vector<PJRT_NamedValue> values;
  values.reserve(options.size());
  for (const auto& [name, value] : options) {
    values.push_back(named_value(name, value));
  }
  const Purpose purpose = {"a client must start", plugin.path()};
  PJRT_Client_Create_Args args = {};
  args.create_options = values.data();
  args.num_options = values.size();
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_Client_Create, args, purpose);
  if (!ok) {
    Error error = ok.error();
    // No option was given that could be invalid, so the plugin has no device
    // here.
    const bool asked = !options.empty() || error.kind != ErrorKind::invalid;
    if (!asked) error.kind = ErrorKind::unavailable;
    return error;
  }
  if (!args.client) {
    return invalid("pjrt", "{}, found nothing for {}", purpose.rule,
                   purpose.subject);
  }
  std::unique_ptr<Client> out(new Client);
  out->plugin_ = &plugin;
  out->handle_ = args.client;
  out->threads_ = threads;
  ok = look_at(*out);
  if (!ok) {
    // No caller holds this client yet, so it can be destroyed.
    PJRT_Client_Destroy_Args destroy = {};
    destroy.client = args.client;
    (void)TESSERA_PJRT_CALL(plugin, PJRT_Client_Destroy, destroy,
                            Purpose{"a client must be freed", "it"});
    return ok.error();
  }
  return std::unique_ptr<const Client>(std::move(out));
}

Result<void> ClientMaker::look_at(Client& client) {
  const Plugin& plugin = *client.plugin_;
  PJRT_Client_PlatformName_Args name = {};
  name.client = client.handle_;
  auto ok = TESSERA_PJRT_CALL(
      plugin, PJRT_Client_PlatformName, name,
      Purpose{"a client must tell its platform", plugin.path()});
  if (!ok) return ok;
  client.platform_ = text_of(name.platform_name, name.platform_name_size);
  PJRT_Client_PlatformVersion_Args version = {};
  version.client = client.handle_;
  ok = TESSERA_PJRT_CALL(
      plugin, PJRT_Client_PlatformVersion, version,
      Purpose{"a client must tell its version", plugin.path()});
  if (!ok) return ok;
  client.platform_version_ =
      text_of(version.platform_version, version.platform_version_size);
  const Purpose purpose = {"a client must have a device", plugin.path()};
  PJRT_Client_AddressableDevices_Args devices = {};
  devices.client = client.handle_;
  ok = TESSERA_PJRT_CALL(plugin, PJRT_Client_AddressableDevices, devices,
                         purpose);
  if (!ok) return ok;
  if (devices.num_addressable_devices == 0) {
    return unavailable("pjrt", "{}, found none for {}", purpose.rule,
                       purpose.subject);
  }
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    auto device = describe_device(plugin, devices.addressable_devices[i]);
    if (!device) return device.error();
    client.devices_.push_back(std::move(*device));
  }
  return {};
}

Result<const Client*> open_client(const Plugin& plugin,
                                  const ClientOptions& options) {
  const TraceSpan span("pjrt", "open_client");
  ClientOptions sorted = options;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first != sorted[i - 1].first) continue;
    return invalid("pjrt", "an option must be given once, found two for {}",
                   in_quotes(sorted[i].first));
  }
  for (const auto& [name, value] : sorted) {
    if (auto ok = check_option(name, value); !ok) return ok.error();
  }
  // Never destroyed, because the plugin's threads outlive main().
  static std::mutex mutex;
  using Key = std::pair<const Plugin*, ClientOptions>;
  static auto& clients = *new std::map<Key, std::unique_ptr<const Client>>;
  const std::lock_guard lock(mutex);
  Key key(&plugin, std::move(sorted));
  auto at = clients.find(key);
  if (at == clients.end()) {
    // The plugin reads the number of threads only for its first client.
    const auto before = clients.lower_bound(Key(&plugin, {}));
    const bool is_first =
        before == clients.end() || before->first.first != &plugin;
    auto client =
        ClientMaker::make(plugin, key.second,
                          is_first ? threads_now() : before->second->threads());
    if (!client) return client.error();
    at = clients.emplace(std::move(key), *std::move(client)).first;
  }
  return at->second.get();
}

std::vector<int64_t> Devices::ids() const {
  std::vector<int64_t> out;
  for (const Device* device : all_) out.push_back(device->id);
  return out;
}

Result<const Device*> find_device(const Client& client, int64_t number) {
  const auto count = static_cast<int64_t>(client.devices().size());
  if (number < 0 || number >= count) {
    return invalid("pjrt",
                   "a device's number must be less than the {} that the plugin "
                   "has, found {} for {}",
                   count, number, in_quotes(client.plugin().path()));
  }
  return &client.devices()[static_cast<size_t>(number)];
}

std::string describe(const Device& device) {
  return fmt::format("{} {}", device.kind.empty() ? "device" : device.kind,
                     device.id);
}

}  // namespace tessera::pjrt
