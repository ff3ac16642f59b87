// cli/request/make_request.cc: reads every option into plain numbers and
// arrays.
#include "cli/request/make_request.h"

#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/request/documents.h"
#include "cli/request/routed_picks.h"
#include "cli/unsupported.h"

namespace tessera::cli {
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
    return invalid("cli",
                   "{} must have 1 value or {}, one per batch row, "
                   "found {}",
                   what, batch, values->size());
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

Result<void> read_picks(const std::string& path, const Request& r,
                        OwnedFacts& facts) {
  auto drawn = parse_drawn(path);
  if (!drawn) return drawn.error();
  if (*drawn) {
    return invalid("cli",
                   "--picks clustered goes with a mask that names routed(top, "
                   "block), found {}",
                   to_string(r.masks.front()));
  }
  auto bytes = read_file(path, kMaxFactBytes);
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return file.error();
  auto tensor = file->find("picks");
  if (!tensor) return tensor.error();
  const std::vector<int64_t>& shape = tensor->shape;
  if (shape.size() != 4 || shape[0] != r.batch || shape[2] != r.q_len) {
    return invalid("picks",
                   "tensor picks must have shape [{}, heads, {}, k], found "
                   "[{}] for {}",
                   r.batch, r.q_len, fmt::join(shape, ", "), in_quotes(path));
  }
  auto values = int32_values(*tensor, "picks");
  if (!values) return values.error();
  facts.picks = std::move(*values);
  facts.picks_heads = shape[1];
  facts.picks_k = shape[3];
  return {};
}

Result<void> read_facts(const RequestText& o, const Request& r,
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
  // Those of a router are judged first.
  if (o.picks && !names_router(r)) return read_picks(*o.picks, r, facts);
  return {};
}

// A mask that asks for what is not here is told so by name.
Error refused_word(std::string_view text, Error error) {
  if (error.column == 0) return error;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= '0' && c <= '9');
  };
  const size_t begin = static_cast<size_t>(error.column) - 1;
  size_t end = begin;
  while (end < text.size() && is_word(text[end])) ++end;
  const std::string_view word =
      begin < end ? text.substr(begin, end - begin) : std::string_view();
  if (const auto why = refusal(word)) {
    error.message = fmt::format("[mask] {}, found '{}' at column {}", *why,
                                word, error.column);
  }
  return error;
}

}  // namespace

Result<Tile> parse_tile(std::string_view text, std::string_view what) {
  const std::vector<std::string_view> parts = split(text, 'x');
  if (parts.size() > 2) {
    return invalid("cli", "{} must read QxKV, as 256x256, found {}", what,
                   in_quotes(text));
  }
  auto q = parse_int(parts.front(), what, kMinBlock, kMaxBlock);
  if (!q) return q.error();
  auto kv = parse_int(parts.back(), what, kMinBlock, kMaxBlock);
  if (!kv) return kv.error();
  return Tile{*q, *kv};
}

Result<Request> resolve_request(const RequestText& o) {
  Request r;
  if (o.masks.empty()) {
    return invalid("cli",
                   "--mask must be given, found none (try --mask "
                   "'causal & documents')");
  }
  for (const std::string& text : o.masks) {
    auto mask = parse_mask(text);
    if (!mask) return refused_word(text, mask.error());
    r.masks.push_back(std::move(*mask));
  }
  if (!o.q_len) return invalid("cli", "--q-len must be given, found none");
  // Absent ones stay as they are.
  struct Number {
    std::string_view what;
    const std::optional<std::string>& text;
    int64_t most;
    int64_t& out;
  };
  Ceilings& ceilings = r.ceilings;
  for (const Number& n :
       {Number{"--q-len", o.q_len, kMaxTokens, r.q_len},
        Number{"--kv-len", o.kv_len, kMaxTokens, r.kv_len},
        Number{"--batch", o.batch, kMaxBatch, r.batch},
        Number{"--max-steps", o.max_steps, kMaxCeiling, ceilings.max_steps},
        Number{"--max-width", o.max_width, kMaxCeiling, ceilings.max_width},
        Number{"--max-union", o.max_union, kMaxCeiling, ceilings.max_union}}) {
    if (!n.text) continue;
    auto value = parse_int(*n.text, n.what, 1, n.most);
    if (!value) return value.error();
    n.out = *value;
  }
  if (!o.kv_len) r.kv_len = r.q_len;
  if (o.tile) {
    auto tile = parse_tile(*o.tile, "--tile");
    if (!tile) return tile.error();
    r.tile = *tile;
  }
  if (o.logical_block) {
    auto block = parse_tile(*o.logical_block, "--logical-block");
    if (!block) return block.error();
    r.logical_block = *block;
  }
  return r;
}

Result<Resolved> resolve(const RequestText& o) {
  auto request = resolve_request(o);
  if (!request) return request.error();
  Resolved out;
  out.given = o;
  out.written = o.masks;
  out.request = std::move(*request);
  if (o.target) {
    auto target = find_target(*o.target);
    if (!target) return target.error();
    out.target = std::move(*target);
  }
  if (auto e = read_facts(o, out.request, out.facts); !e) return e.error();
  return out;
}

}  // namespace tessera::cli
