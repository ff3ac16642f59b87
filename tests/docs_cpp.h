// tests/docs_cpp.h: declarations that the C++ blocks of docs/ need, by page:
// `dev/docs_cpp` compiles the blocks of docs/NAME.md in namespace docs_NAME.
#pragma once

#include <tessera/tessera.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// For all pages.
int fail(const std::string& message);
template <class... T>
void use(const T&...);
template <class... T>
void save(const T&...);
template <class... T>
void trust(const T&...);

namespace docs_planned {
extern tessera::Request request;
extern tessera::OwnedFacts facts;
extern tessera::Result<tessera::OwnedBatch> batch;
extern tessera::AttentionCall call;
extern tessera::AttentionShape shape;
extern tessera::ForwardTensors tensors;
extern tessera::Gradients gradients;
}  // namespace docs_planned

namespace docs_cpu {
using docs_planned::batch, docs_planned::call, docs_planned::gradients;
extern void* q;
extern int64_t batch_size, heads, q_len, head_dim;
extern std::span<float> lse;
}  // namespace docs_cpu

namespace docs_data {
using namespace tessera;
using docs_planned::request, docs_planned::tensors;
extern Result<std::unique_ptr<DocumentSource>> source;
extern StreamOptions options;
extern Mask mask;
extern ArrowArrayStream stream;
extern Result<Prepared> ready;
}  // namespace docs_data

namespace docs_dispatch {
using docs_planned::batch, docs_planned::shape, docs_planned::tensors;
void log(std::string_view lane, const std::string& why);
}  // namespace docs_dispatch

namespace docs_layouts {
extern std::span<const uint8_t> cells;
extern int64_t heads, rows, columns, head, r;
}  // namespace docs_layouts

namespace docs_receipt {
using docs_planned::batch, docs_planned::shape, docs_planned::tensors;
void log(const std::string& line);
}  // namespace docs_receipt

namespace docs_routing {
using docs_planned::facts, docs_planned::request;
extern tessera::TensorView q, k;
}  // namespace docs_routing

namespace docs_session {
using docs_planned::call, docs_planned::facts, docs_planned::request;
struct Layer {
  tessera::ForwardTensors tensors;
  tessera::Gradients gradients;
  tessera::Saved saved;
};
extern std::vector<Layer> layers, reversed;
extern tessera::Result<tessera::Prepared> ready;
extern tessera::TensorView q_view, k_view, v_view, dout_view;
extern tessera::MutableTensorView out_view;
}  // namespace docs_session

namespace docs_shard {
using namespace tessera;
extern Batch batch;
extern ShardOptions options;
extern std::string text;
}  // namespace docs_shard

namespace docs_topk {
using docs_planned::batch, docs_planned::request;
extern tessera::Facts facts;
extern tessera::Ints topk_idxs;
extern std::vector<int64_t> shape;
}  // namespace docs_topk

namespace docs_train {
using namespace tessera;
extern Rows rows;
}  // namespace docs_train
