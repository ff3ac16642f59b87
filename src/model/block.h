// model/block.h: the one decoder block, whatever fills its slots.
//
//   x1 = x + proj(attention(rope(q), rope(k), v)), (q, k, v) = qkv(norm(x))
//   x2 = x1 + fc2(act(fc1(norm(x1))))
//
// With post norms, what is added to x and to x1 is normed first.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/layer.h"

namespace tessera::model {

// What all blocks of a program read: sizes, and the angles of RoPE, [batch,
// tokens, head_dim / 2] each.
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
  mlp,  // fused, or the four that follow
  norm2,
  fc1,
  activation,  // no slot of its own
  fc2,
  post_norm2
};
inline constexpr size_t kParts = 11;
std::string_view to_string(Part part);

struct BlockPass {
  Value out;    // [rows, width]
  Value tiles;  // that attention visited
  std::array<Values, kParts> saved;
  std::array<SlotBytes, kParts> bytes{};
};

class Block {
 public:
  static Result<Block> make(const LayerSpec& spec, const Needs& needs);

  // Names within the block: "norm1.weight".
  std::vector<ModelParameter> parameters() const;
  // For the way back alone nobody asks what it gives, and what only that takes
  // is left out.
  BlockPass forward(const Site& at, const Stream& stream,
                    const Values& parameters, const Value& x,
                    bool for_way_back = false) const;
  // The gradient of x, and of the parameters.
  Returned backward(const Site& at, const Stream& stream,
                    const Values& parameters, const BlockPass& pass,
                    const Value& gradient) const;
  // As its layer says; of a part that has none, 0.
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
