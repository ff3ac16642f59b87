// tests/fuzz/plan_fuzz.cc: bytes become a small request with facts. If it can
// be planned, the class of every tile must agree with its pairs.
//
// Input: one byte for each size and fact, then the mask's text.
#include <algorithm>
#include <optional>

#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t next() { return at_ < size_ ? data_[at_++] : 0; }
  // A small signed number, so that facts can be out of range.
  int32_t number() { return static_cast<int8_t>(next()); }
  std::optional<std::vector<int32_t>> numbers(bool present, int64_t count) {
    if (!present) return std::nullopt;
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (int32_t& v : values) v = number();
    return values;
  }
  // Runs of ids, as in packed documents.
  std::optional<std::vector<int32_t>> ids(bool present, int64_t count) {
    if (!present) return std::nullopt;
    std::vector<int32_t> values;
    while (ssize(values) < count) {
      const uint8_t b = next();
      const int64_t run =
          std::min<int64_t>(1 + (b >> 3), count - ssize(values));
      values.insert(values.end(), static_cast<size_t>(run), (b & 7) - 2);
    }
    return values;
  }
  // A tree of n tokens; one byte for each token is the number of subtrees that
  // end before it.
  void tree(int64_t n, std::vector<int32_t>& enter,
            std::vector<int32_t>& leave) {
    const size_t first = enter.size();
    std::vector<size_t> open;
    const auto close = [&](size_t number, int64_t at) {
      for (; number > 0 && !open.empty(); --number) {
        leave[open.back()] = static_cast<int32_t>(at);
        open.pop_back();
      }
    };
    for (int64_t t = 0; t < n; ++t) {
      close(next() % 8, t);
      open.push_back(first + static_cast<size_t>(t));
      enter.push_back(static_cast<int32_t>(t));
      leave.push_back(0);
    }
    close(open.size(), n);
  }
  std::string_view rest() const {
    return {reinterpret_cast<const char*>(data_) + at_, size_ - at_};
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

TileClass judge(const Legality& legality, const Plan& p, int64_t batch_row,
                int64_t head, int64_t r, int64_t c) {
  bool some = false, all = true;
  for (int64_t q = r * p.tile.q; q < std::min(p.q_len, (r + 1) * p.tile.q);
       ++q) {
    for (int64_t k = c * p.tile.kv; k < std::min(p.kv_len, (c + 1) * p.tile.kv);
         ++k) {
      const bool legal = legality.legal(batch_row, head, q, k);
      some |= legal;
      all &= legal;
    }
  }
  return !some ? TileClass::empty : all ? TileClass::full : TileClass::partial;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  Request request;
  const uint8_t present = bytes.next();
  request.batch = 1 + bytes.next() % 2;
  request.q_len = bytes.next() % 80;
  request.kv_len = bytes.next() % 80;
  request.tile = {8 + bytes.next() % 24, 8 + bytes.next() % 24};

  const auto ids = bytes.ids(present & 1, request.batch * request.kv_len);
  const auto q_ids = bytes.ids(present & 2, request.batch * request.q_len);
  const auto counts = bytes.numbers(present & 4, request.batch);
  const auto prefixes = bytes.numbers(present & 8, request.batch);
  const auto offsets = bytes.numbers(present & 16, request.batch);
  Facts facts;
  std::vector<int32_t> others;  // the same ids in reverse order
  if (ids) {
    facts.doc_ids = *ids;
    others.assign(ids->rbegin(), ids->rend());
    facts.same_ids = {*ids, others};
  }
  if (q_ids) facts.q_doc_ids = *q_ids;
  if (counts) facts.valid_token_counts = *counts;
  if (prefixes) facts.prefix_lengths = *prefixes;
  if (offsets) facts.q_offsets = *offsets;
  std::vector<int32_t> picks;
  if (present & 32) {
    const int64_t k = 1 + bytes.next() % 3;
    picks = *bytes.numbers(true, request.batch * request.q_len * k);
    facts.picks = Picks{picks, 1, k};
  }

  std::vector<int32_t> enter, leave;
  if (present & 64) {
    for (int64_t b = 0; b < request.batch; ++b) {
      bytes.tree(request.kv_len, enter, leave);
    }
    // Changes one number of the tree, which may make it invalid.
    if (present & 128 && !enter.empty()) {
      const size_t at = bytes.next() % enter.size();
      (bytes.next() % 2 == 0 ? enter : leave)[at] += bytes.number();
    }
    facts.tree_enter = enter;
    facts.tree_leave = leave;
  }

  const Result<Mask> mask = parse_mask(bytes.rest());
  if (!mask) return 0;
  request.masks = {*mask};
  const Result<Plan> plan = plan::make_plan(request, facts);
  const Result<Legality> legality = Legality::bind(request, facts);
  must(plan.ok() == legality.ok());
  if (!plan) {
    must(plan.error().message == legality.error().message);
    return 0;
  }

  must(plan->transposed == transpose(plan->forward));
  for (int64_t b = 0; b < plan->batch; ++b) {
    for (int64_t h = 0; h < plan->heads; ++h) {
      for (int64_t r = 0; r < plan->forward.rows; ++r) {
        auto entry = plan->forward.row(plan->list(b, h), r);
        for (int64_t c = 0; c < plan->forward.columns; ++c) {
          const TileClass truth = judge(*legality, *plan, b, h, r, c);
          if (truth == TileClass::empty) continue;
          must(!entry.empty() && entry[0] == Entry::of(c, truth));
          entry = entry.subspan(1);
        }
        must(entry.empty());
      }
    }
  }
  return 0;
}
