// base/safetensors.cc: the .safetensors container.
#include "base/safetensors.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/shape.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "safetensors";
constexpr std::string_view kMetadata = "__metadata__";
// Headers are small; a huge one is a file meant to exhaust its reader.
constexpr uint64_t kMaxHeader = uint64_t{1} << 24;

struct DtypeName {
  Dtype dtype;
  std::string_view name;
  int64_t width;
};
constexpr DtypeName kDtypes[] = {
    {Dtype::i32, "I32", 4},      {Dtype::i64, "I64", 8}, {Dtype::f16, "F16", 2},
    {Dtype::bf16, "BF16", 2},    {Dtype::f32, "F32", 4}, {Dtype::f64, "F64", 8},
    {Dtype::i8, "I8", 1},        {Dtype::i16, "I16", 2}, {Dtype::u8, "U8", 1},
    {Dtype::boolean, "BOOL", 1},
};

const DtypeName& entry(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];
}

// A tensor with the place its header claims.
struct Placed {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
};

Result<Placed> read_tensor(const std::string& name, const Json& value,
                           int64_t data_size,
                           SafetensorsHeader::Entry& tensor) {
  const std::string what = "tensor " + in_quotes(name);
  if (Result<void> ok =
          check_fields(value, kWhere, what, {"dtype", "shape", "data_offsets"});
      !ok) {
    return ok.error();
  }
  auto dtype_name =
      read_string(value.at("dtype"), kWhere, what + " field 'dtype'");
  if (!dtype_name) return dtype_name.error();
  const std::optional<Dtype> dtype = find_dtype(*dtype_name);
  if (!dtype) {
    return invalid(kWhere,
                   "dtype must be one of I32, I64, F16, BF16, F32, F64, I8, "
                   "I16, U8 and BOOL, found {} "
                   "for {}",
                   in_quotes(*dtype_name), what);
  }
  tensor.dtype = *dtype;

  const Json& shape = value.at("shape");
  if (!shape.is_array() || shape.size() > kMaxDimensions) {
    return invalid(kWhere,
                   "a shape must be an array of at most {} dimensions, found "
                   "{} for {}",
                   kMaxDimensions, describe(shape), what);
  }
  for (const Json& n : shape) {
    auto dimension =
        read_int(n, kWhere, "each dimension of " + what, 0, INT64_MAX);
    if (!dimension) return dimension.error();
    tensor.shape.push_back(*dimension);
  }

  const Json& offsets = value.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    return invalid(kWhere,
                   "data_offsets must be an array of 2, found {} for {}",
                   describe(offsets), what);
  }
  Placed placed{name, 0, 0};
  auto begin =
      read_int(offsets[0], kWhere, "the first offset of " + what, 0, data_size);
  if (!begin) return begin.error();
  placed.begin = *begin;
  auto end = read_int(offsets[1], kWhere, "the last offset of " + what,
                      placed.begin, data_size);
  if (!end) return end.error();
  placed.end = *end;

  const std::optional<int64_t> count = element_count(tensor.shape);
  int64_t size = 0;
  if (!count ||
      __builtin_mul_overflow(*count, byte_width(tensor.dtype), &size)) {
    return invalid(kWhere,
                   "a tensor's size must fit int64, found shape [{}] for {}",
                   fmt::join(tensor.shape, ", "), what);
  }
  if (size != placed.end - placed.begin) {
    return invalid(kWhere,
                   "offsets must span the shape's {} bytes, found {} for {}",
                   size, placed.end - placed.begin, what);
  }
  return placed;
}

Result<void> check_cover(std::vector<Placed>& placed, int64_t data_size) {
  std::sort(placed.begin(), placed.end(), [](const auto& l, const auto& r) {
    return std::pair(l.begin, l.end) < std::pair(r.begin, r.end);
  });
  int64_t at = 0;
  for (const Placed& p : placed) {
    if (p.begin != at) {
      return invalid(kWhere,
                     "tensors must follow one another without {}, found offset "
                     "{} for {}, which is due at {}",
                     p.begin < at ? "overlap" : "a hole", p.begin,
                     "tensor " + in_quotes(p.name), at);
    }
    at = p.end;
  }
  if (at != data_size) {
    return invalid(kWhere,
                   "tensors must cover the file's {} data bytes, found {}",
                   data_size, at);
  }
  return {};
}

}  // namespace

std::optional<Dtype> find_dtype(std::string_view name) {
  for (const DtypeName& d : kDtypes) {
    if (d.name == name) return d.dtype;
  }
  return {};
}

std::string_view to_string(Dtype dtype) { return entry(dtype).name; }

int64_t byte_width(Dtype dtype) { return entry(dtype).width; }

Result<Tensor> Safetensors::find(std::string_view name) const {
  if (const auto it = tensors.find(name); it != tensors.end()) {
    return it->second;
  }
  std::string known;
  size_t listed = 0;
  for (const auto& [other, unused] : tensors) {
    if (++listed > 8) {
      known += ", ...";
      break;
    }
    known += (known.empty() ? "" : ", ") + in_quotes(other, 40);
  }
  return invalid(kWhere, "the file must hold the tensor {}, found {}",
                 in_quotes(name), known.empty() ? "none" : known);
}

Result<int64_t> safetensors_header_size(std::string_view start, int64_t size) {
  if (start.size() < kSafetensorsStart) {
    return invalid(kWhere,
                   "a file must start with its header's length, found {} bytes "
                   "for at least 8",
                   start.size());
  }
  const auto length = load<uint64_t>(start);
  if (length > kMaxHeader) {
    return over_limit(kWhere, "a header must be at most {} bytes, found {}",
                      kMaxHeader, length);
  }
  const int64_t most = size - kSafetensorsStart;
  if (static_cast<int64_t>(length) > most) {
    return invalid(kWhere,
                   "a file must hold its whole header, found {} bytes for {}",
                   most, length);
  }
  return kSafetensorsStart + static_cast<int64_t>(length);
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view start,
                                                   int64_t size) {
  const auto data_begin = safetensors_header_size(start, size);
  if (!data_begin) return data_begin.error();
  const std::string_view text = start.substr(
      kSafetensorsStart, static_cast<size_t>(*data_begin - kSafetensorsStart));
  const int64_t data_size = size - *data_begin;
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& header = **parsed;
  if (auto e = check_object(header, kWhere, "the header"); !e) {
    return e.error();
  }

  SafetensorsHeader out;
  std::vector<Placed> placed;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      if (auto e = check_object(value, kWhere, kMetadata); !e) {
        return e.error();
      }
      for (const auto& [key, text_value] : value.items()) {
        auto string =
            read_string(text_value, kWhere, "metadata " + in_quotes(key));
        if (!string) return string.error();
        out.metadata.emplace(key, std::move(*string));
      }
      continue;
    }
    SafetensorsHeader::Entry tensor;
    auto place = read_tensor(name, value, data_size, tensor);
    if (!place) return place.error();
    tensor.begin = *data_begin + place->begin;
    tensor.end = *data_begin + place->end;
    placed.push_back(std::move(*place));
    out.tensors.emplace(name, std::move(tensor));
  }
  if (Result<void> ok = check_cover(placed, data_size); !ok) return ok.error();
  return out;
}

Result<Safetensors> parse_safetensors(std::string_view bytes) {
  auto header =
      parse_safetensors_header(bytes, static_cast<int64_t>(bytes.size()));
  if (!header) return header.error();
  Safetensors out;
  out.metadata = std::move(header->metadata);
  for (auto& [name, entry] : header->tensors) {
    out.tensors.emplace(
        name,
        Tensor{entry.dtype, std::move(entry.shape),
               bytes.substr(static_cast<size_t>(entry.begin),
                            static_cast<size_t>(entry.end - entry.begin))});
  }
  return out;
}

Result<std::string> write_safetensors(const Safetensors& file) {
  std::vector<std::pair<std::string_view, const Tensor*>> order;
  for (const auto& [name, tensor] : file.tensors) {
    const std::optional<int64_t> count = element_count(tensor.shape);
    int64_t size = 0;
    if (name == kMetadata) {
      return invalid(kWhere, "a tensor must not be named '{}', found one",
                     kMetadata);
    }
    if (tensor.shape.size() > kMaxDimensions || !count ||
        __builtin_mul_overflow(*count, byte_width(tensor.dtype), &size) ||
        static_cast<uint64_t>(size) != tensor.bytes.size()) {
      return invalid(kWhere,
                     "a tensor's bytes must fill its shape [{}] of {}, found "
                     "{} for {}",
                     fmt::join(tensor.shape, ", "), to_string(tensor.dtype),
                     tensor.bytes.size(), in_quotes(name));
    }
    order.emplace_back(name, &tensor);
  }
  std::stable_sort(
      order.begin(), order.end(), [](const auto& l, const auto& r) {
        return byte_width(l.second->dtype) > byte_width(r.second->dtype);
      });

  // The JSON printer throws on text that is not UTF-8, so it never sees any.
  const auto bad_text = [](std::string_view text) {
    return invalid(kWhere, "names and metadata must be UTF-8, found {}",
                   in_quotes(text));
  };
  Json header = Json::object();
  if (!file.metadata.empty()) {
    Json& metadata = header[std::string(kMetadata)];
    for (const auto& [key, value] : file.metadata) {
      if (!is_utf8(key)) return bad_text(key);
      if (!is_utf8(value)) return bad_text(value);
      metadata[key] = value;
    }
  }
  size_t at = 0;
  for (const auto& [name, tensor] : order) {
    if (!is_utf8(name)) return bad_text(name);
    const size_t end = at + tensor->bytes.size();
    header[std::string(name)] = {{"dtype", to_string(tensor->dtype)},
                                 {"shape", tensor->shape},
                                 {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  std::string out;
  out.reserve(8 + text.size() + at);
  append(out, uint64_t{text.size()});
  out += text;
  for (const auto& [name, tensor] : order) out += tensor->bytes;
  return out;
}

Result<std::vector<int32_t>> int32_values(const Tensor& tensor,
                                          std::string_view name) {
  if (tensor.dtype == Dtype::i32) return load_array<int32_t>(tensor.bytes);
  if (tensor.dtype != Dtype::i64) {
    return invalid(kWhere, "dtype must be I32 or I64, found {} for tensor {}",
                   to_string(tensor.dtype), in_quotes(name));
  }
  std::vector<int32_t> out(tensor.bytes.size() / 8);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto v = load<int64_t>(tensor.bytes, 8 * i);
    if (v < INT32_MIN || v > INT32_MAX) {
      return invalid(kWhere,
                     "values must fit int32, found {} for value {} of tensor "
                     "{}",
                     v, i, in_quotes(name));
    }
    out[i] = static_cast<int32_t>(v);
  }
  return out;
}

}  // namespace tessera
