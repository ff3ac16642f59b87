// tests/fuzz/topk_fuzz.cc: bytes as topk_idxs of a small request are either
// refused, or can be planned and are the same when read back.
//
// Input: one byte each for lengths, block and shape, then the values.
#include <vector>

#include "tessera/layouts.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  const auto next = [&] { return at < size ? data[at++] : uint8_t{0}; };
  Request request;
  request.batch = 1 + next() % 2;
  request.q_len = 1 + next() % 20;
  request.kv_len = 1 + next() % 80;
  request.tile = {8 + next() % 24, 8 + next() % 24};
  request.masks = {*make_mask(blocks(1 + next() % 16))};
  const auto groups = static_cast<int8_t>(next());
  const auto k = static_cast<int8_t>(next());
  std::vector<int64_t> shape;
  switch (next() % 4) {
    case 0:
      shape = {request.batch * request.q_len, k};
      break;
    case 1:
      shape = {request.batch * request.q_len, groups, k};
      break;
    case 2:
      shape = {request.batch, request.q_len, groups, k};
      break;
    default:  // anything
      for (int n = next() % 6; n > 0; --n) shape.push_back(next());
  }
  std::vector<int32_t> values;
  const size_t most = static_cast<size_t>(request.batch * request.q_len * 64);
  while (at < size && values.size() < most) {
    values.push_back(static_cast<int8_t>(next()));
  }
  // If the shape is valid and not too large, missing values are -1 (unused).
  int64_t want = 1;
  for (const int64_t n : shape) want *= n >= 0 && n <= 128 ? n : 0;
  if (want > 0 && want <= static_cast<int64_t>(most)) {
    values.resize(static_cast<size_t>(want), -1);
  }

  const auto picks = picks_from_topk(values, shape, request);
  if (!picks) {
    must(picks.error().message.starts_with("[topk] "));
    return 0;
  }
  must(static_cast<int64_t>(values.size()) ==
       request.batch * request.q_len * picks->heads * picks->k);
  Facts facts;
  facts.picks = picks->view();
  const auto batch = BorrowedBatch::make(request, facts);
  must(batch.ok());
  const auto written = make_topk(*batch);
  must(written.ok() && written->values == values);
  const auto reads = count_key_reads(*batch);
  must(reads.ok() && reads->extra() >= 0 && reads->needed <= reads->by_query);
  const auto again = picks_from_topk(written->values, written->shape, request);
  must(again.ok() && again->blocks == picks->blocks);
  return 0;
}
