// cli/bridge/data.cc: the arrays of a bridge run: read, drawn, written.
#include "cli/bridge/data.h"

#include <fmt/ranges.h>

#include <cstring>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "receipt/machine.h"
#include "run/operation.h"

namespace tessera::cli {
namespace {

std::string type_text(Dtype dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

const BridgeArray* find(const std::vector<BridgeArray>& arrays,
                        std::string_view name) {
  for (const BridgeArray& a : arrays) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

// Refuses BOOL bytes other than 0 and 1, which a plugin would take for true.
Result<void> check_bools(const BridgeArray& array, std::string_view bytes) {
  if (array.dtype != Dtype::boolean) return {};
  for (const char c : bytes) {
    if (c == 0 || c == 1) continue;
    return invalid("inputs", "a BOOL must be 0 or 1, found {} for {}",
                   static_cast<int>(static_cast<unsigned char>(c)),
                   in_quotes(array.name));
  }
  return {};
}

Result<std::vector<AlignedBytes>> parse_inputs(std::string_view bytes,
                                               const BridgeSpec& spec) {
  auto file = parse_safetensors(bytes);
  if (!file) return file.error();
  for (const auto& [name, unused] : file->tensors) {
    if (find(spec.inputs, name) || find(spec.outputs, name)) continue;
    std::vector<std::string_view> names;
    for (const BridgeArray& a : spec.inputs) names.push_back(a.name);
    return invalid("inputs", "tensors must be named {}, found {}",
                   in_quotes(fmt::format("{}", fmt::join(names, ", ")), 300),
                   in_quotes(name));
  }
  std::vector<AlignedBytes> out;
  for (const BridgeArray& array : spec.inputs) {
    auto tensor = file->find(array.name);
    if (!tensor) return tensor.error();
    if (tensor->dtype != array.dtype || tensor->shape != array.shape) {
      return invalid("inputs", "{} must be {}, found {}", in_quotes(array.name),
                     type_text(array.dtype, array.shape),
                     type_text(tensor->dtype, tensor->shape));
    }
    if (auto ok = check_bools(array, tensor->bytes); !ok) return ok.error();
    out.emplace_back(tensor->bytes.size());
    std::memcpy(out.back().data(), tensor->bytes.data(), tensor->bytes.size());
  }
  return out;
}

}  // namespace

std::vector<const void*> BridgeData::input_pointers() const {
  std::vector<const void*> out;
  for (const AlignedBytes& b : inputs) out.push_back(b.data());
  return out;
}

std::vector<void*> BridgeData::output_pointers() const {
  std::vector<void*> out;
  for (const AlignedBytes& b : outputs) out.push_back(b.data());
  return out;
}

Result<void> check_arrays_fit(const BridgeSpec& spec) {
  double bytes = 0;
  for (const BridgeArray& a : spec.inputs) {
    bytes += static_cast<double>(run::bridge_bytes(a));
  }
  // Outputs are in the plugin's memory and in this process's memory.
  for (const BridgeArray& a : spec.outputs) {
    bytes += 2 * static_cast<double>(run::bridge_bytes(a));
  }
  return receipt::check_free("bridge", bytes, "the arrays");
}

Result<std::vector<AlignedBytes>> read_bridge_inputs(const std::string& path,
                                                     const BridgeSpec& spec) {
  auto bytes = read_file(path, receipt::available_memory());
  if (!bytes) return bytes.error();
  return in_file(parse_inputs(*bytes, spec), path);
}

std::vector<AlignedBytes> make_bridge_outputs(const BridgeSpec& spec) {
  std::vector<AlignedBytes> out;
  for (const BridgeArray& array : spec.outputs) {
    out.emplace_back(run::bridge_bytes(array));
    std::memset(out.back().data(), 0xff, out.back().view().size());
  }
  return out;
}

Result<void> write_bridge_outputs(const std::string& path,
                                  const BridgeSpec& spec,
                                  const std::vector<AlignedBytes>& outputs) {
  Safetensors file;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const BridgeArray& array = spec.outputs[i];
    file.tensors[array.name] = {array.dtype, array.shape, outputs[i].view()};
  }
  auto bytes = write_safetensors(file);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

}  // namespace tessera::cli
