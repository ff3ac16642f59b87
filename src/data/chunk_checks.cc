// data/chunk_checks.cc: checks of a document's chunks and edges.
#include "data/chunk_checks.h"

#include "base/fail.h"
#include "base/text.h"

namespace tessera::data {
namespace {

Result<void> check_lengths(const ChunkColumns& c, std::string_view place) {
  if (c.starts.size() != c.ends.size()) {
    return invalid(
        "data",
        "chunk_starts and chunk_ends must be of one length, found {} "
        "and {} for {}",
        c.starts.size(), c.ends.size(), place);
  }
  if (!c.kinds.empty() && c.kinds.size() != c.starts.size()) {
    return invalid("data",
                   "chunk_kinds must be as long as the chunks, {}, found {} "
                   "for {}",
                   c.starts.size(), c.kinds.size(), place);
  }
  return {};
}

// Begins must not fall, nor ends, or a chunk would not be a run of tokens.
// Spans may overlap, since byte tokens may share a character.
Result<void> check_spans(std::span<const int32_t> spans, int64_t tokens,
                         std::string_view place) {
  if (static_cast<int64_t>(spans.size()) != 2 * tokens) {
    return invalid(
        "data",
        "token_spans must be as long as the tokens, {}, found {} for "
        "{}",
        tokens, spans.size() / 2, place);
  }
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool is_end = i % 2 == 1;
    if (is_end && spans[i] < spans[i - 1]) {
      return invalid("data",
                     "a token's span must end at or after its begin, found {} "
                     "to {} for element {} of token_spans of {}",
                     spans[i - 1], spans[i], i / 2, place);
    }
    if (i < 2 || spans[i] >= spans[i - 2]) continue;
    return invalid("data",
                   "token_spans must not fall, found {} {} after {} for "
                   "element {} of {}",
                   is_end ? "the end" : "the begin", spans[i], spans[i - 2],
                   i / 2, place);
  }
  return {};
}

// Replaces characters [start, end) by the tokens that they touch; the result is
// empty if they touch none.
void to_tokens(std::span<const int32_t> spans, int32_t& start, int32_t& end) {
  const auto tokens = static_cast<int32_t>(spans.size() / 2);
  int32_t low = 0, high = tokens;
  while (low < high) {  // the first token that ends after `start`
    const int32_t at = low + (high - low) / 2;
    if (spans[2 * static_cast<size_t>(at) + 1] > start) {
      high = at;
    } else {
      low = at + 1;
    }
  }
  const int32_t first = low;
  high = tokens;
  while (low < high) {  // the first token that begins at or after `end`
    const int32_t at = low + (high - low) / 2;
    if (spans[2 * static_cast<size_t>(at)] >= end) {
      high = at;
    } else {
      low = at + 1;
    }
  }
  start = first;
  end = low;
}

Result<void> characters_to_tokens(ChunkColumns& c, std::string_view place) {
  if (!c.token_spans) {
    return invalid(
        "data",
        "chunks of characters must come with the exact characters of "
        "each token in token_spans, found none for {}",
        place);
  }
  for (size_t i = 0; i < c.starts.size(); ++i) {
    const int32_t start = c.starts[i], end = c.ends[i];
    if (end > start) to_tokens(*c.token_spans, c.starts[i], c.ends[i]);
    if (end > start && c.ends[i] > c.starts[i]) continue;
    return invalid(
        "data",
        "chunk_starts and chunk_ends of characters must hold some of a "
        "token, found {} to {} for element {} of {}",
        start, end, i, place);
  }
  return {};
}

}  // namespace

Result<void> add_chunks(ChunkColumns chunks, int64_t tokens,
                        std::string_view place, Documents& into) {
  if (auto e = check_lengths(chunks, place); !e) return e;
  if (chunks.token_spans) {
    if (auto e = check_spans(*chunks.token_spans, tokens, place); !e) return e;
  }
  if (chunks.unit == "character") {
    if (auto e = characters_to_tokens(chunks, place); !e) return e;
  } else if (chunks.unit != "token") {
    return invalid("data",
                   "chunk_unit must be token or character, found {} for "
                   "{}",
                   in_quotes(chunks.unit), place);
  }
  for (size_t i = 0; i < chunks.starts.size(); ++i) {
    const int32_t start = chunks.starts[i], end = chunks.ends[i];
    if (start >= 0 && start < end && end <= tokens) continue;
    return invalid(
        "data",
        "chunk_starts and chunk_ends must hold some of the document's "
        "{} tokens, found {} to {} for element {} of {}",
        tokens, start, end, i, place);
  }
  const auto add = [](std::vector<int32_t>& to, const std::vector<int32_t>& v) {
    to.insert(to.end(), v.begin(), v.end());
  };
  chunks.kinds.resize(chunks.starts.size(), 0);
  add(into.chunk_starts, chunks.starts);
  add(into.chunk_ends, chunks.ends);
  add(into.chunk_kinds, chunks.kinds);
  return {};
}

Result<void> add_edges(std::span<const int32_t> ends, size_t kind,
                       std::string_view column, std::string_view place,
                       Documents& into) {
  const int64_t chunks =
      static_cast<int64_t>(into.chunk_starts.size()) - into.chunk_start.back();
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] >= 0 && ends[i] < chunks) continue;
    return invalid(
        "data",
        "{} must join the document's {} chunks, found {} for element "
        "{} of {}",
        column, chunks, ends[i], i / 2, place);
  }
  into.edges[kind].insert(into.edges[kind].end(), ends.begin(), ends.end());
  return {};
}

}  // namespace tessera::data
