// request/tensor_file.h: attention's arrays from and to .safetensors files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "request/attention_data.h"

namespace tessera::request {

// A file of inputs whose shapes fit each other.
struct InputFile {
  std::unique_ptr<std::string> bytes;  // at a fixed address: tensors view it
  Safetensors tensors;
  int64_t batch = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0;
  int64_t head_dim = 0, v_head_dim = 0;
  Dtype dtype = Dtype::f32;

  bool has(std::string_view name) const {
    return tensors.tensors.contains(name);
  }
};

// q, k and v must be there; dout, dlse and sink_logits may.
Result<InputFile> read_inputs(const std::string& path, Layout layout);
// Checks names, shapes and dtypes, and sets the file's sizes.
Result<void> check_inputs(InputFile& file, Layout layout);

// Copies what the file holds into allocated `data` of its shape. dout and dlse
// are for a backward pass only.
void take_inputs(const InputFile& file, AttentionData& data);

// out, lse and, after a backward pass, the gradients.
Result<void> write_outputs(const std::string& path, const AttentionData& data);

}  // namespace tessera::request
