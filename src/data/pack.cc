// data/pack.cc: packs documents into rows, and accounts for every token.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "data/fit.h"
#include "data/row_cost.h"
#include "data/row_order.h"
#include "tessera/data.h"

namespace tessera {
namespace {

using data::Fit;
using data::RowCost;

constexpr std::string_view kStrategies[] = {"inorder", "firstfit", "bestfit",
                                            "cost"};
constexpr std::string_view kLongRules[] = {"split", "keep_head", "keep_tail",
                                           "drop"};

template <class Enum>
Result<Enum> parse_word(std::span<const std::string_view> words,
                        std::string_view what, std::string_view text) {
  const auto at = std::find(words.begin(), words.end(), text);
  if (at != words.end()) return static_cast<Enum>(at - words.begin());
  return invalid("pack", "{} must be one of {}, found {} for it", what,
                 fmt::join(words, ", "), in_quotes(text));
}

Result<void> within(std::string_view what, int64_t n, int64_t most) {
  if (n >= 1 && n <= most) return {};
  return invalid("pack", "{} must be 1 to {}, found {} for it", what, most, n);
}

Result<void> check(const PackOptions& o) {
  if (auto e = within("the tokens of a row", o.tokens, kMaxRowTokens); !e) {
    return e;
  }
  if (auto e = within("the rows of a window", o.window_rows, kMaxWindowRows);
      !e) {
    return e;
  }
  if (auto e = within("the rows of a step", o.rows_per_step, kMaxRowsPerStep);
      !e) {
    return e;
  }
  if (!(o.mixing >= 0 && o.mixing <= 1)) {
    return invalid("pack", "mixing must be 0 to 1, found {} for it", o.mixing);
  }
  if (o.mixing != 0 && o.strategy != PackStrategy::by_cost) {
    return invalid("pack",
                   "mixing must come with the strategy cost, found {} for {}",
                   o.mixing, to_string(o.strategy));
  }
  return {};
}

// A window's parts are numbered in 32 bits, and take 16 bytes each.
constexpr int64_t kMaxWindowParts = int64_t{1} << 28;

Result<void> check_window(std::span<const int32_t> lengths, int64_t tokens) {
  int64_t parts = 0;
  for (const int32_t length : lengths) {
    ++parts;
    if (length > tokens) parts += length / tokens;
  }
  if (parts <= kMaxWindowParts) return {};
  return over_limit("pack",
                    "a window must be at most {} parts of documents, found {} "
                    "for {} tokens a row",
                    kMaxWindowParts, parts, tokens);
}

Error negative_length(int64_t length, int64_t document) {
  return invalid("pack", "a length must be 0 or more, found {} for document {}",
                 length, document);
}

// Whether each length is 1 to `tokens`; `sum` becomes their sum.
bool all_fit(std::span<const int32_t> lengths, int64_t tokens, int64_t& sum) {
  sum = 0;
  uint32_t outside = 0;  // only the sign bit is read
  for (const int32_t length : lengths) {
    const auto n = static_cast<uint32_t>(length);
    outside |= (n - 1) | (static_cast<uint32_t>(tokens) - n);
    sum += length;
  }
  return outside >> 31 == 0;
}

// As few parts as possible: full rows and a rest, or all alike in length.
void add_split(DocumentPart whole, int32_t tokens, bool alike,
               std::vector<DocumentPart>& parts) {
  const int64_t n = ceil_div(int64_t{whole.length}, int64_t{tokens});
  for (int64_t i = 1; i <= n; ++i) {
    const int64_t end = alike ? whole.length * i / n
                              : std::min<int64_t>(whole.length, i * tokens);
    const auto length = static_cast<int32_t>(end - whole.offset);
    parts.push_back({whole.document, whole.offset, length});
    whole.offset += length;
  }
}

// The documents of a window, cut by the rule for long ones. No part is longer
// than a row, except with in_order, which cuts where a row ends.
Result<std::vector<DocumentPart>> parts_of(std::span<const int32_t> lengths,
                                           int64_t first, const PackOptions& o,
                                           bool alike, PackAccount& account) {
  std::vector<DocumentPart> parts;
  parts.reserve(lengths.size());
  const auto tokens = static_cast<int32_t>(o.tokens);
  int64_t tokens_in = 0;
  for (size_t d = 0; d < lengths.size(); ++d) {
    const int64_t document = first + static_cast<int64_t>(d);
    const int32_t length = lengths[d];
    if (length < 0) return negative_length(length, document);
    tokens_in += length;
    if (length > 0 && length <= tokens) {
      parts.push_back({document, 0, length});
      continue;
    }
    if (length == 0) {
      ++account.empty_documents;
      continue;
    }
    ++account.long_documents;
    if (o.long_documents == LongDocuments::split) {
      if (o.strategy == PackStrategy::in_order) {
        parts.push_back({document, 0, length});
        continue;
      }
      add_split({document, 0, length}, tokens, alike, parts);
      continue;
    }
    account.tokens_dropped += length;
    if (o.long_documents == LongDocuments::drop) {
      ++account.dropped_documents;
      continue;
    }
    account.tokens_dropped -= tokens;
    const bool head = o.long_documents == LongDocuments::keep_head;
    parts.push_back({document, head ? 0 : length - tokens, tokens});
  }
  account.tokens_in += tokens_in;
  account.documents += static_cast<int64_t>(lengths.size());
  return parts;
}

void close_row(Packing& packing) {
  packing.row_start.push_back(static_cast<int64_t>(packing.parts.size()));
}

// Places one part after another, cut where a row ends.
void add_in_order(std::span<const DocumentPart> parts, Packing& packing) {
  int64_t room = packing.tokens;
  for (DocumentPart part : parts) {
    while (part.length > 0) {
      DocumentPart here = part;
      here.length = static_cast<int32_t>(std::min<int64_t>(part.length, room));
      packing.parts.push_back(here);
      part.offset += here.length;
      part.length -= here.length;
      room -= here.length;
      if (room > 0) continue;
      close_row(packing);
      room = packing.tokens;
    }
  }
  if (room < packing.tokens) close_row(packing);
}

// The parts to fit: where each lies in its document, and separately its length.
class Fitted {
 public:
  // Documents that fit as they are, numbered from `first` on.
  Fitted(std::span<const int32_t> lengths, int64_t first)
      : lengths_(lengths), first_(first) {}
  explicit Fitted(std::vector<DocumentPart> parts)
      : parts_(std::move(parts)), own_(parts_.size()), lengths_(own_) {
    for (size_t p = 0; p < own_.size(); ++p) own_[p] = parts_[p].length;
  }
  Fitted(const Fitted&) = delete;
  Fitted& operator=(const Fitted&) = delete;

  std::span<const int32_t> lengths() const { return lengths_; }

  // Adds the rows of the fit in this order.
  void add_rows(const Fit& fit, std::span<const int32_t> order,
                Packing& packing) const {
    const size_t before = packing.parts.size();
    packing.parts.resize(before + fit.parts);
    DocumentPart* const to = packing.parts.data() + before;
    std::vector<int32_t> at = data::row_starts(fit, order);
    if (parts_.empty()) {
      data::place_parts(fit, at, [&](size_t place, size_t p) {
        to[place] = {first_ + static_cast<int64_t>(p), 0, lengths_[p]};
      });
    } else {
      data::place_parts(fit, at,
                        [&](size_t place, size_t p) { to[place] = parts_[p]; });
    }
    for (const int32_t row : order) {
      packing.row_start.push_back(static_cast<int64_t>(before) +
                                  at[static_cast<size_t>(row)]);
    }
  }

 private:
  std::vector<DocumentPart> parts_;
  std::vector<int32_t> own_;
  std::span<const int32_t> lengths_;
  int64_t first_ = 0;
};

// The even fit may have one row more than best fit for so many rows.
constexpr int64_t kRowsForOneMore = 1024;

// `usual` has documents cut into full rows and a rest, `alike` into like parts.
Result<void> add_by_cost(const Fitted& usual, const Fitted& alike,
                         const RowCost& cost, const PackOptions& options,
                         PackState& state, Packing& packing) {
  const Fit best = data::best_fit(usual.lengths(), options.tokens);
  const Fit even = data::even_fit(alike.lengths(), options.tokens);
  const bool is_full = even.rows <= best.rows + best.rows / kRowsForOneMore;
  const Fitted& fitted = is_full ? alike : usual;
  const Fit& fit = is_full ? even : best;
  std::vector<int32_t> as_fitted(static_cast<size_t>(fit.rows));
  std::iota(as_fitted.begin(), as_fitted.end(), 0);
  // Placing the parts moves the start of each row to the next row's.
  std::vector<int32_t> row_start = data::row_starts(fit, as_fitted);
  row_start.insert(row_start.begin(), 0);
  std::vector<int32_t> lengths(fit.parts);
  data::place_parts(
      fit, std::span(row_start).subspan(1),
      [&](size_t place, size_t p) { lengths[place] = fitted.lengths()[p]; });
  auto costs = cost.rows(lengths, row_start);
  if (!costs) return costs.error();
  fitted.add_rows(fit, data::steps_of_like_cost(*costs, options, state),
                  packing);
  return {};
}

void add_fit(const Fitted& fitted, const PackOptions& options,
             const PackState& state, Packing& packing) {
  const auto fit_of = options.strategy == PackStrategy::first_fit
                          ? data::first_fit
                          : data::best_fit;
  const Fit fit = fit_of(fitted.lengths(), options.tokens);
  fitted.add_rows(fit, data::shuffled(fit.rows, options.seed, state.window),
                  packing);
}

// Accounts for the rows that the packing got after its first `rows` rows.
Result<void> add_to_account(Packing& packing, int64_t rows,
                            PackAccount account) {
  const auto from =
      static_cast<size_t>(packing.row_start[static_cast<size_t>(rows)]);
  for (size_t p = from; p < packing.parts.size(); ++p) {
    account.tokens_out += packing.parts[p].length;
  }
  account.parts = static_cast<int64_t>(packing.parts.size() - from);
  account.rows = packing.rows() - rows;
  account.padding = account.rows * packing.tokens - account.tokens_out;
  if (!account.sums(packing.tokens) || account.padding < 0) {
    return invalid("pack",
                   "tokens in must be tokens out and dropped, found {} for {} "
                   "and {}",
                   account.tokens_in, account.tokens_out,
                   account.tokens_dropped);
  }
  packing.account += account;
  return {};
}

Result<void> add_window(std::span<const int32_t> lengths, int64_t first,
                        const PackOptions& options, const RowCost* cost,
                        PackState& state, Packing& packing) {
  const int64_t rows = packing.rows();
  const bool by_cost = options.strategy == PackStrategy::by_cost;
  PackAccount account;
  if (options.strategy != PackStrategy::in_order &&
      std::ssize(lengths) <= kMaxWindowParts &&
      all_fit(lengths, options.tokens, account.tokens_in)) {
    account.documents = static_cast<int64_t>(lengths.size());
    const Fitted whole(lengths, first);
    if (!by_cost) {
      add_fit(whole, options, state, packing);
    } else if (auto e =
                   add_by_cost(whole, whole, *cost, options, state, packing);
               !e) {
      return e;
    }
  } else {
    if (auto e = check_window(lengths, options.tokens); !e) return e;
    account = {};
    auto parts = parts_of(lengths, first, options, false, account);
    if (!parts) return parts.error();
    if (options.strategy == PackStrategy::in_order) {
      add_in_order(*parts, packing);
    } else if (!by_cost) {
      add_fit(Fitted(std::move(*parts)), options, state, packing);
    } else {
      PackAccount same;
      auto alike = parts_of(lengths, first, options, true, same);
      if (!alike) return alike.error();
      if (auto e =
              add_by_cost(Fitted(std::move(*parts)), Fitted(std::move(*alike)),
                          *cost, options, state, packing);
          !e) {
        return e;
      }
    }
  }
  ++state.window;
  return add_to_account(packing, rows, account);
}

Result<std::optional<RowCost>> cost_of(const PackOptions& options) {
  if (options.strategy != PackStrategy::by_cost) return {std::nullopt};
  auto cost = RowCost::make(options);
  if (!cost) return cost.error();
  return {std::move(*cost)};
}

}  // namespace

std::string_view to_string(PackStrategy strategy) {
  return kStrategies[static_cast<size_t>(strategy)];
}
Result<PackStrategy> parse_pack_strategy(std::string_view text) {
  return parse_word<PackStrategy>(kStrategies, "a strategy", text);
}
std::string_view to_string(LongDocuments rule) {
  return kLongRules[static_cast<size_t>(rule)];
}
Result<LongDocuments> parse_long_documents(std::string_view text) {
  return parse_word<LongDocuments>(kLongRules, "the rule for long documents",
                                   text);
}

PackAccount& PackAccount::operator+=(const PackAccount& other) {
  documents += other.documents;
  empty_documents += other.empty_documents;
  long_documents += other.long_documents;
  dropped_documents += other.dropped_documents;
  parts += other.parts;
  tokens_in += other.tokens_in;
  tokens_out += other.tokens_out;
  tokens_dropped += other.tokens_dropped;
  rows += other.rows;
  padding += other.padding;
  return *this;
}

Result<int64_t> next_window(std::span<const int32_t> lengths,
                            const PackOptions& options) {
  if (auto e = check(options); !e) return e.error();
  const int64_t most = options.window_rows * options.tokens;
  int64_t tokens = 0;
  int64_t n = 0;
  for (const int32_t length : lengths) {
    if (length < 0) return negative_length(length, n);
    if (tokens >= most || n == kMaxWindowDocuments) break;
    tokens += length;
    ++n;
  }
  return n;
}

Result<void> pack_window(std::span<const int32_t> lengths, int64_t first,
                         const PackOptions& options, PackState& state,
                         Packing& packing) {
  if (auto e = check(options); !e) return e;
  if (packing.tokens == 0) packing.tokens = options.tokens;
  auto cost = cost_of(options);
  if (!cost) return cost.error();
  return add_window(lengths, first, options, *cost ? &**cost : nullptr, state,
                    packing);
}

Result<Packing> pack(std::span<const int32_t> lengths,
                     const PackOptions& options) {
  if (auto e = check(options); !e) return e.error();
  auto cost = cost_of(options);
  if (!cost) return cost.error();
  Packing packing;
  packing.tokens = options.tokens;
  packing.parts.reserve(lengths.size());
  PackState state;
  for (size_t at = 0; at < lengths.size();) {
    auto n = next_window(lengths.subspan(at), options);
    if (!n) return n.error();
    const auto window = lengths.subspan(at, static_cast<size_t>(*n));
    if (auto e = add_window(window, static_cast<int64_t>(at), options,
                            *cost ? &**cost : nullptr, state, packing);
        !e) {
      return e.error();
    }
    at += window.size();
  }
  return packing;
}

}  // namespace tessera
