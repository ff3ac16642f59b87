// request/tensor_file.cc: attention's arrays from and to .safetensors files.
#include "request/tensor_file.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/tensor_rows.h"
#include "base/text.h"
#include "receipt/machine.h"

namespace tessera::request {
namespace {

using Shape = std::vector<int64_t>;

// Tensors that a file may hold: outputs too, so that one file can hold a run.
constexpr std::string_view kKnown[] = {
    "q",   "k",  "v",  "dout", "dlse",         "sink_logits", "out",
    "lse", "dq", "dk", "dv",   "dsink_logits", "sink_mass",   "sink_entropy"};

std::string dims_text(Layout layout, std::string_view tokens) {
  return layout == Layout::bhsd
             ? fmt::format("[batch, heads, {}, dim]", tokens)
             : fmt::format("[batch, {}, heads, dim]", tokens);
}

// The shape in the layout's order.
Shape ordered(Layout layout, int64_t batch, int64_t heads, int64_t tokens,
              int64_t dim) {
  if (layout == Layout::bhsd) return {batch, heads, tokens, dim};
  return {batch, tokens, heads, dim};
}

// [batch, heads, tokens, dim] of a tensor, none of them 0.
Result<Shape> dims_of(const Tensor& tensor, std::string_view name,
                      std::string_view tokens, Layout layout) {
  const Shape& s = tensor.shape;
  if (s.size() != 4 || std::find(s.begin(), s.end(), 0) != s.end()) {
    return invalid("inputs",
                   "{} must have four dimensions {}, none of them 0, found "
                   "[{}]",
                   name, dims_text(layout, tokens), fmt::join(s, ", "));
  }
  if (layout == Layout::bhsd) return s;
  return Shape{s[0], s[2], s[1], s[3]};
}

Result<void> check_tensor(const Tensor& tensor, std::string_view name,
                          const Shape& shape, Dtype dtype) {
  if (tensor.dtype != dtype) {
    return invalid("inputs", "{} must be {}, found {}", name, to_string(dtype),
                   to_string(tensor.dtype));
  }
  if (tensor.shape != shape) {
    return invalid("inputs", "{} must have shape [{}], found [{}]", name,
                   fmt::join(shape, ", "), fmt::join(tensor.shape, ", "));
  }
  return {};
}

}  // namespace

Result<InputFile> read_inputs(const std::string& path, Layout layout) {
  auto bytes = read_file(path, receipt::available_memory());
  if (!bytes) return bytes.error();
  InputFile file;
  file.bytes = std::make_unique<std::string>(std::move(*bytes));
  auto tensors = parse_safetensors(*file.bytes);
  if (!tensors) return in_file(tensors.error(), path);
  file.tensors = std::move(*tensors);
  if (auto e = check_inputs(file, layout); !e) return in_file(e.error(), path);
  return file;
}

Result<void> check_inputs(InputFile& file, Layout layout) {
  for (const auto& [name, unused] : file.tensors.tensors) {
    if (std::find(std::begin(kKnown), std::end(kKnown), name) ==
        std::end(kKnown)) {
      return invalid("inputs", "tensors must be named {}, found {}",
                     fmt::join(kKnown, ", "), in_quotes(name));
    }
  }
  auto q = file.tensors.find("q");
  if (!q) return q.error();
  auto k = file.tensors.find("k");
  if (!k) return k.error();
  auto v = file.tensors.find("v");
  if (!v) return v.error();
  if (!is_float_dtype(q->dtype)) {
    return invalid("inputs", "q must be F32, BF16 or F16, found {}",
                   to_string(q->dtype));
  }
  file.dtype = q->dtype;
  auto q_dims = dims_of(*q, "q", "q_len", layout);
  if (!q_dims) return q_dims.error();
  auto k_dims = dims_of(*k, "k", "kv_len", layout);
  if (!k_dims) return k_dims.error();
  auto v_dims = dims_of(*v, "v", "kv_len", layout);
  if (!v_dims) return v_dims.error();
  file.batch = (*q_dims)[0], file.heads = (*q_dims)[1];
  file.q_len = (*q_dims)[2], file.head_dim = (*q_dims)[3];
  file.kv_heads = (*k_dims)[1], file.kv_len = (*k_dims)[2];
  file.v_head_dim = (*v_dims)[3];

  struct Rule {
    std::string_view name;
    Shape shape;
    Dtype dtype;
  };
  const Rule rules[] = {
      {"k",
       ordered(layout, file.batch, file.kv_heads, file.kv_len, file.head_dim),
       file.dtype},
      {"v",
       ordered(layout, file.batch, file.kv_heads, file.kv_len, file.v_head_dim),
       file.dtype},
      {"dout",
       ordered(layout, file.batch, file.heads, file.q_len, file.v_head_dim),
       file.dtype},
      {"dlse", {file.batch, file.heads, file.q_len}, Dtype::f32},
      {"sink_logits", {file.heads}, Dtype::f32},
  };
  for (const Rule& rule : rules) {
    const auto it = file.tensors.tensors.find(rule.name);
    if (it == file.tensors.tensors.end()) continue;
    auto e = check_tensor(it->second, rule.name, rule.shape, rule.dtype);
    if (!e) return e;
  }
  return {};
}

void take_inputs(const InputFile& file, AttentionData& data) {
  const auto bytes = [&](std::string_view name) {
    return file.tensors.tensors.find(name)->second.bytes;
  };
  data.q.fill(bytes("q"));
  data.k.fill(bytes("k"));
  data.v.fill(bytes("v"));
  if (file.has("sink_logits")) {
    data.sink_logits = load_array<float>(bytes("sink_logits"));
  }
  if (!data.backward) return;
  if (file.has("dout")) data.dout.fill(bytes("dout"));
  if (file.has("dlse")) data.dlse = load_array<float>(bytes("dlse"));
}

Result<void> write_outputs(const std::string& path, const AttentionData& data) {
  Safetensors file;
  const auto add = [&](const char* name, const Array& array) {
    file.tensors[name] = {data.dtype, array.shape(), array.bytes()};
  };
  const auto add_floats = [&](const char* name, const std::vector<float>& x,
                              Shape shape) {
    file.tensors[name] = {Dtype::f32, std::move(shape),
                          bytes_of(std::span<const float>(x))};
  };
  add("out", data.out);
  const Shape by_query = {data.batch, data.shape.heads, data.q_len};
  add_floats("lse", data.lse, by_query);
  if (!data.sink_mass.empty()) {
    add_floats("sink_mass", data.sink_mass, by_query);
    add_floats("sink_entropy", data.sink_entropy, by_query);
  }
  if (data.backward) {
    add("dq", data.dq);
    add("dk", data.dk);
    add("dv", data.dv);
    if (data.sink_logits) {
      add_floats("dsink_logits", data.dsink_logits, {data.shape.heads});
    }
  }
  auto bytes = write_safetensors(file);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

}  // namespace tessera::request
