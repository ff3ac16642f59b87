// cli/bridge/data.cc: the arrays of a bridge run, owned: read, drawn, written.
#include "cli/bridge/data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/float16.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "cli/data/random_inputs.h"
#include "receipt/machine.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxShapes = int64_t{1} << 24;
constexpr int64_t kMaxProgram = int64_t{1} << 31;
constexpr std::align_val_t kAlignment{64};

// Streams of input arrays begin here, far from those that have names.
constexpr uint64_t kFirstStream = 1024;

// The parser has seen that it fits.
size_t byte_count(const BridgeArray& array) {
  auto bytes = static_cast<size_t>(byte_width(array.dtype));
  for (const int64_t n : array.shape) bytes *= static_cast<size_t>(n);
  return bytes;
}

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

// What a plugin would take for true though it is neither true nor false.
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

template <class T>
void put(const Bytes& to, size_t i, T value) {
  std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
}

// In [0, 1), of the normal number's own bits: even enough for test data.
double uniform(uint64_t seed, Stream stream, uint64_t i) {
  return 0.5 * std::erfc(-static_cast<double>(random_normal(seed, stream, i)) /
                         std::sqrt(2.0));
}

int64_t integer(const std::pair<int64_t, int64_t>& range, double share) {
  const double least = static_cast<double>(range.first);
  const double size = static_cast<double>(range.second) - least + 1;
  const double value = std::floor(least + share * size);
  if (value >= static_cast<double>(range.second)) return range.second;
  return std::max(range.first, static_cast<int64_t>(value));
}

void draw(const BridgeArray& array, const Bytes& to, uint64_t seed,
          Stream stream) {
  const size_t count =
      to.view().size() / static_cast<size_t>(byte_width(array.dtype));
  const auto range = array.range.value_or(std::pair(int64_t{0}, int64_t{1}));
  for (size_t i = 0; i < count; ++i) {
    switch (array.dtype) {
      case Dtype::f32:
        put(to, i, random_normal(seed, stream, i));
        continue;
      case Dtype::f64:
        put(to, i, double{random_normal(seed, stream, i)});
        continue;
      case Dtype::bf16:
        put(to, i, to_bf16(random_normal(seed, stream, i)));
        continue;
      case Dtype::f16:
        put(to, i, to_f16(random_normal(seed, stream, i)));
        continue;
      default:
        break;
    }
    const int64_t value = integer(range, uniform(seed, stream, i));
    // Little-endian: the low bytes come first, in every width.
    std::memcpy(to.data() + i * static_cast<size_t>(byte_width(array.dtype)),
                &value, static_cast<size_t>(byte_width(array.dtype)));
  }
}

}  // namespace

Result<BridgeArtifact> read_artifact(const std::string& file,
                                     const std::string& shapes_file) {
  auto text = read_file(shapes_file, kMaxShapes);
  if (!text) return text.error();
  auto spec = parse_bridge_spec(*text);
  if (!spec) return spec.error();
  auto program = read_file(file, kMaxProgram);
  if (!program) return program.error();
  return BridgeArtifact{std::move(*program), std::move(*spec)};
}

Bytes::Bytes(size_t size)
    : size_(size),
      bytes_(static_cast<std::byte*>(
          ::operator new(std::max<size_t>(size, 1), kAlignment))) {}

void Bytes::Free::operator()(std::byte* p) const {
  ::operator delete(p, kAlignment);
}

std::vector<const void*> BridgeData::input_pointers() const {
  std::vector<const void*> out;
  for (const Bytes& b : inputs) out.push_back(b.data());
  return out;
}

std::vector<void*> BridgeData::output_pointers() const {
  std::vector<void*> out;
  for (const Bytes& b : outputs) out.push_back(b.data());
  return out;
}

Result<void> check_arrays_fit(const BridgeSpec& spec) {
  double bytes = 0;
  for (const BridgeArray& a : spec.inputs) {
    bytes += static_cast<double>(byte_count(a));
  }
  // Once in the plugin's memory and once in ours.
  for (const BridgeArray& a : spec.outputs) {
    bytes += 2 * static_cast<double>(byte_count(a));
  }
  const auto available = static_cast<double>(available_memory());
  if (bytes <= available) return {};
  return over_limit("bridge",
                    "the arrays must fit the memory that is free, found {:.0f} "
                    "bytes for {:.0f}",
                    bytes, available);
}

Result<std::vector<Bytes>> read_bridge_inputs(const std::string& path,
                                              const BridgeSpec& spec) {
  auto bytes = read_file(path, available_memory());
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return file.error();
  for (const auto& [name, unused] : file->tensors) {
    if (find(spec.inputs, name) || find(spec.outputs, name)) continue;
    std::vector<std::string_view> names;
    for (const BridgeArray& a : spec.inputs) names.push_back(a.name);
    return invalid("inputs", "tensors must be named {}, found {}",
                   in_quotes(fmt::format("{}", fmt::join(names, ", ")), 300),
                   in_quotes(name));
  }
  std::vector<Bytes> out;
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

Result<std::vector<Bytes>> draw_bridge_inputs(const BridgeSpec& spec,
                                              uint64_t seed) {
  for (const BridgeArray& array : spec.inputs) {
    const bool whole = array.dtype == Dtype::i8 || array.dtype == Dtype::i16 ||
                       array.dtype == Dtype::i32 || array.dtype == Dtype::i64 ||
                       array.dtype == Dtype::u8;
    if (!whole || array.range) continue;
    return invalid("bridge",
                   "an integer input must come from --inputs or have a range "
                   "in the file of shapes, found neither for {}",
                   in_quotes(array.name));
  }
  std::vector<Bytes> out;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    out.emplace_back(byte_count(spec.inputs[i]));
    draw(spec.inputs[i], out.back(), seed,
         static_cast<Stream>(kFirstStream + i));
  }
  return out;
}

std::vector<Bytes> make_bridge_outputs(const BridgeSpec& spec) {
  std::vector<Bytes> out;
  for (const BridgeArray& array : spec.outputs) {
    out.emplace_back(byte_count(array));
    std::memset(out.back().data(), 0xff, out.back().view().size());
  }
  return out;
}

Result<void> write_bridge_outputs(const std::string& path,
                                  const BridgeSpec& spec,
                                  const std::vector<Bytes>& outputs) {
  Safetensors file;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const BridgeArray& array = spec.outputs[i];
    file.tensors[array.name] = {array.dtype, array.shape, outputs[i].view()};
  }
  auto bytes = write_safetensors(file);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

std::map<std::string, std::string> digests_of(
    const std::vector<BridgeArray>& arrays, const std::vector<Bytes>& bytes) {
  std::map<std::string, std::string> out;
  for (size_t i = 0; i < arrays.size(); ++i) {
    Digest digest;
    digest.add(bytes[i].view().data(), bytes[i].view().size());
    out[arrays[i].name] = digest.hex();
  }
  return out;
}

std::string digest_of_all(const std::vector<Bytes>& bytes) {
  Digest digest;
  for (const Bytes& b : bytes) digest.add(b.view().data(), b.view().size());
  return digest.hex();
}

}  // namespace tessera::cli
