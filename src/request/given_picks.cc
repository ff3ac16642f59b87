// request/given_picks.cc: reads picks [batch, heads, q_len, k] and topk_idxs.
#include "request/given_picks.h"

#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "request/documents.h"
#include "request/drawn_picks.h"
#include "request/numbers.h"
#include "request/picks_file.h"
#include "tessera/layouts.h"

namespace tessera::request {
namespace {

Result<NpyInts> read_tensor(std::string_view bytes, std::string_view name) {
  auto file = parse_safetensors(bytes);
  if (!file) return file.error();
  auto tensor = file->find(name);
  if (!tensor) return tensor.error();
  auto values = int32_values(*tensor, name);
  if (!values) return values.error();
  return NpyInts{tensor->shape, std::move(*values)};
}

Result<void> read_topk(const std::string& path, const Request& r,
                       OwnedFacts& facts) {
  auto bytes = read_file(path, kMaxFactBytes);
  if (!bytes) return bytes.error();
  auto array = path.ends_with(".safetensors") ? read_tensor(*bytes, "topk_idxs")
                                              : parse_npy(*bytes);
  if (!array) return in_file(array.error(), path);
  auto picks = picks_from_topk(array->values, array->shape, r);
  if (!picks) return picks.error();
  facts.picks = std::move(picks->blocks);
  facts.picks_heads = picks->heads;
  facts.picks_k = picks->k;
  return {};
}

}  // namespace

Result<void> read_given_picks(const std::string& source, const Request& r,
                              OwnedFacts& facts) {
  std::string_view path = source;
  if (take_prefix(path, kTopkSource)) {
    return read_topk(std::string(path), r, facts);
  }
  auto drawn = parse_drawn(source);
  if (!drawn) return drawn.error();
  if (*drawn) {
    return invalid("cli",
                   "--picks clustered goes with a mask that names routed(top, "
                   "block), found {}",
                   to_string(r.masks.front()));
  }
  auto bytes = read_file(source, kMaxFactBytes);
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return in_file(file.error(), source);
  auto tensor = file->find("picks");
  if (!tensor) return in_file(tensor.error(), source);
  auto given = read_picks_tensor(*tensor, "picks", r, r.q_len, source);
  if (!given) return given.error();
  const Picks picks = given->view();
  facts.picks_heads = picks.heads;
  facts.picks_k = picks.k;
  facts.picks = std::move(given->blocks);
  return {};
}

}  // namespace tessera::request
