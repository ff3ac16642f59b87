// run/sink_telemetry.cc: sink telemetry of a pass, by document.
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/fail.h"
#include "base/trace.h"
#include "mask/bind.h"
#include "plan/batch_state.h"
#include "run/session_state.h"

namespace tessera {
namespace {

using Document = SinkTelemetry::Document;

// The document of each query of a batch row, or -1 where it has none.
std::vector<int32_t> documents_of(const mask::Bound& bound, int64_t b,
                                  bool segments) {
  const mask::BoundRow& row = bound.rows[static_cast<size_t>(b)];
  std::vector<int32_t> numbers;  // of keys
  if (segments) {
    numbers = *segments_from_ids({row.ids, static_cast<size_t>(bound.kv_len)});
  }
  std::vector<int32_t> out(static_cast<size_t>(bound.q_len), -1);
  for (int64_t q = 0; q < bound.q_len; ++q) {
    const int64_t at = q + row.q_offset;
    int32_t& document = out[static_cast<size_t>(q)];
    if (row.q_ids) {
      document = row.q_ids[q];
    } else if (at >= 0 && at < bound.kv_len) {
      document = segments ? numbers[static_cast<size_t>(at)] : row.ids[at];
    }
  }
  return out;
}

// Sums by document; means() divides them by the counts.
class ByDocument {
 public:
  explicit ByDocument(size_t heads) : heads_(heads) {}

  Document& of(int64_t batch_row, std::optional<int32_t> document) {
    const auto [at, is_new] =
        index_.try_emplace(document.value_or(-1), all_.size());
    if (is_new) {
      Document d{batch_row, document, {}, {}, {}};
      d.queries.resize(heads_);
      d.mass.resize(heads_);
      d.entropy.resize(heads_);
      all_.push_back(std::move(d));
    }
    return all_[at->second];
  }
  void end_batch_row() { index_.clear(); }

  std::vector<Document> means() && {
    for (Document& d : all_) {
      for (size_t h = 0; h < heads_; ++h) {
        if (d.queries[h] == 0) continue;
        d.mass[h] /= static_cast<double>(d.queries[h]);
        d.entropy[h] /= static_cast<double>(d.queries[h]);
      }
    }
    return std::move(all_);
  }

 private:
  size_t heads_;
  std::unordered_map<int32_t, size_t> index_;  // of one batch row
  std::vector<Document> all_;
};

std::vector<Document> by_document(const mask::Bound& bound, const Names& names,
                                  int64_t heads, const lanes::SinkRows& rows) {
  const bool named = names.documents || names.segments;
  ByDocument out(static_cast<size_t>(heads));
  for (int64_t b = 0; b < bound.batch; ++b) {
    std::vector<int32_t> documents;
    if (named) documents = documents_of(bound, b, names.segments);
    for (int64_t q = 0; q < bound.q_len; ++q) {
      for (int64_t h = 0; h < heads; ++h) {
        const auto at = static_cast<size_t>((b * heads + h) * bound.q_len + q);
        if (rows.live[at] == 0) continue;
        std::optional<int32_t> document;
        // An id below 0 is padding; its query is live if the head's mask names
        // no documents.
        if (named && documents[static_cast<size_t>(q)] >= 0) {
          document = documents[static_cast<size_t>(q)];
        }
        Document& d = out.of(b, document);
        const auto head = static_cast<size_t>(h);
        ++d.queries[head];
        d.mass[head] += rows.mass[at];
        d.entropy[head] += rows.entropy[at];
      }
    }
    out.end_batch_row();
  }
  return std::move(out).means();
}

}  // namespace

Result<SinkTelemetry> Prepared::sink_telemetry(const Saved& saved,
                                               int64_t first_keys,
                                               const StopFlag* stop) {
  const TraceSpan span("run", "sink telemetry");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e.error();
  if (!p.call.sink_telemetry) {
    return invalid("run",
                   "a call must say sink_telemetry when it is prepared, found "
                   "one that does not");
  }
  if (saved.of != p.id) {
    return invalid("run",
                   "sink telemetry must be handed what this batch's forward "
                   "pass gave, found another's");
  }
  if (first_keys < 1 || first_keys > kMaxTokens) {
    return invalid("run", "first_keys must be 1 to {}, found {}", kMaxTokens,
                   first_keys);
  }
  auto read = plan::read_batch(p.batch, "run");
  if (!read) return read.error();
  auto rows = p.work->sink_rows(saved.tensors, first_keys, stop);
  if (!rows) return rows.error();
  SinkTelemetry out;
  out.first_keys = first_keys;
  out.documents =
      by_document((*read)->sweep.bound, mask::names_of(p.batch.request()),
                  p.call.shape.heads, *rows);
  out.mass = std::move(rows->mass);
  out.entropy = std::move(rows->entropy);
  return out;
}

}  // namespace tessera
