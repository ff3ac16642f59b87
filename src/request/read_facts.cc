// request/read_facts.cc: reads ids, counts, offsets and picks from flags and
// the files that they name.
#include "request/read_facts.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "request/documents.h"
#include "request/given_picks.h"
#include "request/numbers.h"
#include "request/pick_source.h"
#include "request/trees.h"

namespace tessera::request {
namespace {

// One value serves every batch row; otherwise one per row.
Result<std::vector<int32_t>> per_row(std::string_view text,
                                     std::string_view what, int64_t batch,
                                     int64_t least, int64_t most) {
  auto values = parse_ints(text, what, least, most);
  if (!values) return values;
  if (values->size() == 1) {
    return std::vector<int32_t>(static_cast<size_t>(batch), values->front());
  }
  if (static_cast<int64_t>(values->size()) != batch) {
    const std::string counts = batch == 1 ? "" : fmt::format(" or {}", batch);
    return invalid("cli",
                   "{} must have 1 value{}, one per batch row, "
                   "found {}",
                   what, counts, values->size());
  }
  return values;
}

// "tokens:N[,N...]", "slots:N[,N...]@BASE" or "N[,N...]", which means tokens.
Result<void> read_valid(std::string_view text, const Request& r,
                        OwnedFacts& facts) {
  constexpr std::string_view kSlots = "slots:";
  constexpr std::string_view kTokens = "tokens:";
  if (text.starts_with(kSlots)) {
    const std::string_view rest = text.substr(kSlots.size());
    const size_t at = rest.find('@');
    if (at == std::string_view::npos) {
      return invalid("cli",
                     "--valid slots must end in @BASE, the keys of a slot, "
                     "found {}",
                     in_quotes(text));
    }
    if (facts.valid_slot_counts) {
      return invalid("cli", "--valid slots is given once, found twice");
    }
    auto base =
        parse_int(rest.substr(at + 1), "--valid slots base", 1, kMaxTokens);
    if (!base) return base.error();
    auto slots =
        per_row(rest.substr(0, at), "--valid slots", r.batch, 0, kMaxTokens);
    if (!slots) return slots.error();
    facts.base_block_tokens = *base;
    facts.valid_slot_counts = std::move(*slots);
    return {};
  }
  if (facts.valid_token_counts) {
    return invalid("cli", "--valid tokens is given once, found twice");
  }
  const std::string_view rest =
      text.starts_with(kTokens) ? text.substr(kTokens.size()) : text;
  auto tokens = per_row(rest, "--valid tokens", r.batch, 0, kMaxTokens);
  if (!tokens) return tokens.error();
  facts.valid_token_counts = std::move(*tokens);
  return {};
}

// "a=SOURCE"
Result<void> read_same(std::string_view text, const Request& r,
                       OwnedFacts& facts) {
  const bool named = text.size() > 2 && text[1] == '=' && text[0] >= 'a' &&
                     text[0] < 'a' + kSameNames;
  if (!named) {
    return invalid("cli", "--same takes NAME=SOURCE, NAME a to {}, found {}",
                   static_cast<char>('a' + kSameNames - 1), in_quotes(text));
  }
  auto& ids = facts.same_ids[static_cast<size_t>(text[0] - 'a')];
  if (ids) {
    return invalid("cli", "--same {} is given once, found twice", text[0]);
  }
  auto read = read_documents(text.substr(2), fmt::format("--same {}", text[0]),
                             r.batch, r.kv_len);
  if (!read) return read.error();
  ids = std::move(*read);
  return {};
}

}  // namespace

Result<void> read_facts(const receipt::RequestText& o, const Request& r,
                        OwnedFacts& facts) {
  auto take = [](Result<std::vector<int32_t>> values,
                 std::optional<std::vector<int32_t>>& out) -> Result<void> {
    if (!values) return values.error();
    out = std::move(*values);
    return {};
  };
  if (r.batch > kMaxIds / std::max(r.q_len, r.kv_len)) {
    return over_limit("cli",
                      "batch times length must be at most {}, found {} "
                      "times {}",
                      kMaxIds, r.batch, std::max(r.q_len, r.kv_len));
  }
  if (o.docs) {
    auto e = take(read_documents(*o.docs, "--docs", r.batch, r.kv_len),
                  facts.doc_ids);
    if (!e) return e;
  }
  if (o.q_docs) {
    auto e = take(read_documents(*o.q_docs, "--q-docs", r.batch, r.q_len),
                  facts.q_doc_ids);
    if (!e) return e;
  }
  for (const std::string& valid : o.valid) {
    if (auto e = read_valid(valid, r, facts); !e) return e;
  }
  if (o.prefix) {
    auto e = take(per_row(*o.prefix, "--prefix", r.batch, 0, kMaxTokens),
                  facts.prefix_lengths);
    if (!e) return e;
  }
  if (o.q_offset) {
    auto e = take(
        per_row(*o.q_offset, "--q-offset", r.batch, -kMaxTokens, kMaxTokens),
        facts.q_offsets);
    if (!e) return e;
  }
  if (o.tree) {
    if (auto e = read_tree_fact(*o.tree, r, facts); !e) return e;
  }
  for (const std::string& text : o.same) {
    if (auto e = read_same(text, r, facts); !e) return e;
  }
  // The picks of a router are not facts until they are routed.
  if (o.picks && !names_router(r)) {
    return read_given_picks(*o.picks, r, facts);
  }
  return {};
}

}  // namespace tessera::request
