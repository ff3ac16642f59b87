// pjrt/input_types.cc: reads protobuf's wire format, as far as a program's
// shape needs it.
#include "pjrt/input_types.h"

#include <optional>
#include <utility>

#include "base/fail.h"

namespace tessera::pjrt {
namespace {

// Field numbers: HloModuleProtoWithConfig, HloModuleProto, ProgramShapeProto,
// ShapeProto.
constexpr uint64_t kModule = 1;
constexpr uint64_t kProgramShape = 4;
constexpr uint64_t kParameters = 1;
constexpr uint64_t kElementType = 2;
constexpr uint64_t kDimensions = 3;

// Values of PrimitiveType, and our Dtype.
constexpr std::pair<uint64_t, Dtype> kTypes[] = {
    {1, Dtype::boolean}, {2, Dtype::i8},   {3, Dtype::i16},  {4, Dtype::i32},
    {5, Dtype::i64},     {6, Dtype::u8},   {10, Dtype::f16}, {11, Dtype::f32},
    {12, Dtype::f64},    {16, Dtype::bf16}};

// A field is a number or bytes; fields of fixed width are skipped.
struct Field {
  uint64_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;
  std::string_view bytes;
};

std::optional<uint64_t> take_varint(std::string_view& in) {
  uint64_t out = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    out |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return out;
  }
  return {};
}

bool skip(std::string_view& in, size_t bytes) {
  if (in.size() < bytes) return false;
  in.remove_prefix(bytes);
  return true;
}

// Nothing if `in` is no message.
std::optional<Field> take_field(std::string_view& in) {
  const auto tag = take_varint(in);
  if (!tag) return {};
  Field out;
  out.number = *tag >> 3;
  switch (*tag & 7) {
    case 0: {
      const auto value = take_varint(in);
      if (!value) return {};
      out.value = *value;
      return out;
    }
    case 1:
      if (!skip(in, 8)) return {};
      return out;
    case 2: {
      const auto size = take_varint(in);
      if (!size || *size > in.size()) return {};
      out.is_bytes = true;
      out.bytes = in.substr(0, *size);
      in.remove_prefix(*size);
      return out;
    }
    case 5:
      if (!skip(in, 4)) return {};
      return out;
    default:
      return {};
  }
}

Error broken() {
  return invalid("pjrt",
                 "a program must tell its inputs, found bytes that are no "
                 "module of XLA");
}

// The last field of that number, which is what protobuf reads.
Result<std::string_view> find_bytes(std::string_view in, uint64_t number) {
  std::optional<std::string_view> out;
  while (!in.empty()) {
    const auto field = take_field(in);
    if (!field) return broken();
    if (field->number == number && field->is_bytes) out = field->bytes;
  }
  if (!out) return broken();
  return *out;
}

Result<ArrayType> read_type(std::string_view in, size_t index) {
  ArrayType out;
  uint64_t type = 0;
  while (!in.empty()) {
    const auto field = take_field(in);
    if (!field) return broken();
    if (field->number == kElementType) type = field->value;
    if (field->number != kDimensions) continue;
    if (!field->is_bytes) {
      out.dims.push_back(static_cast<int64_t>(field->value));
      continue;
    }
    for (std::string_view packed = field->bytes; !packed.empty();) {
      const auto dim = take_varint(packed);
      if (!dim) return broken();
      out.dims.push_back(static_cast<int64_t>(*dim));
    }
  }
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs != type) continue;
    out.dtype = ours;
    return out;
  }
  return invalid("pjrt",
                 "a program's inputs must be of BOOL, I8, I16, I32, I64, U8, "
                 "F16, BF16, F32 or F64, found XLA's type {} for input {}",
                 type, index);
}

}  // namespace

Result<std::vector<ArrayType>> input_types(std::string_view bytes,
                                           bool with_config) {
  if (with_config) {
    auto module = find_bytes(bytes, kModule);
    if (!module) return module.error();
    bytes = *module;
  }
  auto shape = find_bytes(bytes, kProgramShape);
  if (!shape) return shape.error();
  std::vector<ArrayType> out;
  while (!shape->empty()) {
    const auto field = take_field(*shape);
    if (!field) return broken();
    if (field->number != kParameters || !field->is_bytes) continue;
    auto type = read_type(field->bytes, out.size());
    if (!type) return type.error();
    out.push_back(std::move(*type));
  }
  return out;
}

}  // namespace tessera::pjrt
