// model/block.h: the decoder block, the same for every choice of slots.
//
//   x1 = x + proj(attention(rope(q), rope(k), v)), (q, k, v) = qkv(norm(x))
//   x2 = x1 + fc2(act(fc1(norm(x1))))
//
// With post norms, the terms added to x and to x1 are normed first.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/layer.h"

namespace tessera::model {

// What all blocks of a program read: sizes, and cos and sin of the RoPE angles,
// [batch, tokens, head_dim / 2] each.
struct Stream {
  int64_t batch = 1, tokens = 0;
  Value cos, sin;

  int64_t rows() const { return batch * tokens; }
};

// The places of a block's slots, in the order of the forward pass.
enum class Part : uint8_t {
  norm1,
  qkv,
  attention,
  proj,
  post_norm1,
  mlp,  // fused; or else the four parts that follow
  norm2,
  fc1,
  activation,  // takes no slot
  fc2,
  post_norm2
};
inline constexpr size_t kParts = 11;
std::string_view to_string(Part part);

struct BlockPass {
  Value out;    // [rows, width]
  Value tiles;  // count that attention visited
  std::array<Values, kParts> saved;
  std::array<SlotBytes, kParts> bytes{};
};

class Block {
 public:
  static Result<Block> make(const LayerSpec& spec, const Needs& needs);

  // Names are within the block: "norm1.weight".
  std::vector<ModelParameter> parameters() const;
  // With for_way_back the caller reads only what backward() needs, so the
  // output, and work that only the output needs, may be left out.
  BlockPass forward(const Site& at, const Stream& stream,
                    const Values& parameters, const Value& x,
                    bool for_way_back = false) const;
  // Gradients of x and of the parameters.
  Returned backward(const Site& at, const Stream& stream,
                    const Values& parameters, const BlockPass& pass,
                    const Value& gradient) const;
  // The flops that the part's layer reports; 0 for a part without a layer.
  std::optional<Flops> flops(Part part, int64_t rows) const;

 private:
  explicit Block(const ModelConfig& model) : model_(model) {}
  const Layer* layer(Part part) const {
    return layers_[static_cast<size_t>(part)].get();
  }
  std::array<Values, kParts> split(const Values& parameters) const;

  ModelConfig model_;
  std::array<LayerPtr, kParts> layers_;  // null where the block has none
};

}  // namespace tessera::model
