// receipt/digests.cc: 128-bit digests of arrays and facts.
#include "receipt/digests.h"

#include "base/digest.h"

namespace tessera::receipt {
namespace {

void add(Digest& digest, const TensorView& t) {
  const auto* bytes = static_cast<const char*>(t.data);
  const int64_t width = byte_width(t.dtype);
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s) {
        const int64_t at =
            b * t.batch_stride + h * t.head_stride + s * t.token_stride;
        digest.add(bytes + at * width, static_cast<size_t>(t.dim * width));
      }
    }
  }
}

void add(Digest& digest, const MutableTensorView& t) {
  add(digest, TensorView{t.data, t.dtype, t.batch, t.heads, t.tokens, t.dim,
                         t.batch_stride, t.head_stride, t.token_stride});
}

void add(Digest& digest, std::span<const float> values) {
  digest.add(values.data(), values.size_bytes());
}

void add(Digest& digest, const std::optional<Ints>& values) {
  digest.add(values ? static_cast<int64_t>(values->size()) : -1);
  if (values) digest.add(values->data(), values->size_bytes());
}

}  // namespace

std::string facts_digest(const Facts& f) {
  Digest digest;
  add(digest, f.doc_ids);
  add(digest, f.q_doc_ids);
  add(digest, f.valid_token_counts);
  add(digest, f.valid_slot_counts);
  digest.add(f.base_block_tokens);
  add(digest, f.prefix_lengths);
  add(digest, f.q_offsets);
  add(digest, f.picks ? std::optional<Ints>(f.picks->blocks) : std::nullopt);
  digest.add(f.picks ? f.picks->heads : 0);
  digest.add(f.picks ? f.picks->k : 0);
  if (f.picks && f.picks->meaning == RouteMeaning::tile_union) {
    digest.add(f.picks->query_tile);
  }
  if (f.tree_enter || f.tree_leave) {
    add(digest, f.tree_enter);
    add(digest, f.tree_leave);
  }
  for (size_t i = 0; i < f.same_ids.size(); ++i) {
    if (!f.same_ids[i]) continue;
    digest.add(static_cast<int64_t>(i));
    add(digest, f.same_ids[i]);
  }
  return digest.hex();
}

std::string array_digest(const TensorView& tensor) {
  Digest digest;
  add(digest, tensor);
  return digest.hex();
}

std::string array_digest(std::span<const float> values) {
  Digest digest;
  add(digest, values);
  return digest.hex();
}

std::string outputs_digest(const ForwardTensors& forward,
                           const Gradients* gradients) {
  Digest digest;
  add(digest, forward.out);
  add(digest, forward.lse);
  if (gradients) {
    add(digest, gradients->dq);
    add(digest, gradients->dk);
    add(digest, gradients->dv);
    add(digest, gradients->dsink_logits);
  }
  return digest.hex();
}

}  // namespace tessera::receipt
