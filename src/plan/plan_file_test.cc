// plan/plan_file_test.cc: plan files are read back unchanged; any other file is
// refused, even with a valid checksum.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "tessera/batch.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/files.h"
#include "base/json_read.h"
#include "plan/make_plan.h"
#include "tests/random_case.h"

namespace tessera::plan {
namespace {

// The parts of a file, read by an independent reader of the format.
struct Parts {
  Json header;
  std::vector<std::pair<std::string, std::vector<uint32_t>>> sections;

  std::vector<uint32_t>& section(const std::string& name) {
    for (auto& [n, words] : sections) {
      if (n == name) return words;
    }
    ADD_FAILURE() << "no section " << name;
    return sections.front().second;
  }
};

Parts take_apart(const std::string& file) {
  Parts p;
  const auto size = static_cast<size_t>(load<uint64_t>(file, 24));
  p.header = Json::parse(file.substr(32, size));
  size_t at = 32 + size;
  for (const Json& s : p.header["sections"]) {
    const size_t words = s["words"];
    p.sections.emplace_back(
        s["name"],
        load_array<uint32_t>(std::string_view(file).substr(at, 4 * words)));
    at += 4 * words;
  }
  EXPECT_EQ(at + 16, file.size());
  return p;
}

std::string seal(std::string file) {
  const uint64_t length = file.size() + 16;
  std::memcpy(file.data() + 16, &length, 8);
  const XXH128_hash_t h = XXH3_128bits(file.data(), file.size());
  for (const uint64_t half : {h.high64, h.low64}) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      file += static_cast<char>(half >> shift);
    }
  }
  return file;
}

std::string with_text(std::string text, const std::string& data) {
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out("TESSERA\0plan", 12);
  append(out, uint32_t{0});
  append(out, uint64_t{0});
  append(out, uint64_t{text.size()});
  return seal(out + text + data);
}

// Builds a file with a valid checksum; `retable` updates the section table.
std::string put_together(Parts p, bool retable = true) {
  std::string data;
  if (retable) p.header["sections"] = Json::array();
  for (const auto& [name, words] : p.sections) {
    if (retable) {
      p.header["sections"].push_back({{"name", name}, {"words", words.size()}});
    }
    data += bytes_of(std::span<const uint32_t>(words));
  }
  return with_text(p.header.dump(), data);
}

std::string message(const std::string& file, const DecodeLimits& limits = {}) {
  const auto r = decode_plan(file, limits);
  return r.ok() ? "no error" : r.error().message;
}

// Two batch rows of 64 tokens, tiles of 16: rows of 1 to 3 tiles.
struct Example {
  Request request;
  std::vector<int32_t> ids, counts;
  Facts facts;
  Plan plan;
  std::string file;

  explicit Example(const std::string& mask = "causal & documents") {
    request.masks = {*parse_mask(mask)};
    request.batch = 2;
    request.q_len = request.kv_len = 64;
    request.tile = {16, 16};
    for (int i = 0; i < 128; ++i) ids.push_back(i < 40 ? 0 : i < 100 ? 1 : 2);
    counts = {64, 50};
    facts.doc_ids = ids;
    facts.valid_token_counts = counts;
    plan = *make_plan(request, facts);
    auto bytes = encode_plan(*BorrowedBatch::make(request, facts));
    EXPECT_TRUE(bytes.ok()) << bytes.error().message;
    if (bytes) file = *bytes;
  }
};

TEST(PlanFile, ComesBackAsItWas) {
  const Example e;
  const auto r = decode_plan(e.file);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->request(), e.request);
  EXPECT_EQ(r->plan(), e.plan);
  EXPECT_EQ(own_facts(r->facts()), own_facts(e.facts));
  // The property tests would not notice an accidental change of format.
  EXPECT_EQ(put_together(take_apart(e.file)), e.file);
  EXPECT_EQ(take_apart(e.file).section("doc_ids"),
            (std::vector<uint32_t>{0, 40, 1, 24, 1, 36, 2, 28}));
}

TEST(PlanFile, AbsentAndEmptyFactsStayApart) {
  Request r;
  r.masks = {*parse_mask("full")};
  r.q_len = r.kv_len = 8;
  r.tile = {8, 8};
  const Facts none;
  const std::vector<int32_t> zero = {0};
  Facts some;
  some.q_offsets = zero;
  for (const Facts& f : {none, some}) {
    const auto bytes = encode_plan(*BorrowedBatch::make(r, f));
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    const auto again = decode_plan(*bytes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->facts().q_offsets.has_value(), f.q_offsets.has_value());
  }
}

TEST(PlanFile, ANameThatSimplificationDropsComesBack) {
  const Example e("full | documents");
  const auto r = decode_plan(e.file);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(to_string(r->request().masks[0]), "full");
  EXPECT_TRUE(r->request().masks[0].names.documents);
  EXPECT_EQ(r->plan(), e.plan);
}

// For picks that a mask names, a file keeps the blocks but not their slots.
OwnedFacts in_order(OwnedFacts f, const Plan& plan) {
  if (!plan.meaning) return f;
  const auto k = static_cast<size_t>(f.picks_k);
  for (size_t at = 0; at < f.picks->size(); at += k) {
    std::set<int32_t> blocks;
    for (size_t i = 0; i < k; ++i) blocks.insert((*f.picks)[at + i]);
    blocks.erase(-1);
    const auto first = f.picks->begin() + static_cast<std::ptrdiff_t>(at);
    std::fill(std::copy(blocks.begin(), blocks.end(), first),
              first + static_cast<std::ptrdiff_t>(k), -1);
  }
  return f;
}

TEST(PlanFile, RandomRequestsComeBack) {
  int planned = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const testing::RandomCase c = testing::random_case(seed);
    const auto request = c.request();
    if (!request) continue;
    const Facts facts = c.facts();
    const auto plan = make_plan(*request, facts);
    if (!plan) continue;
    ++planned;
    const auto bytes = encode_plan(*BorrowedBatch::make(*request, facts));
    ASSERT_TRUE(bytes.ok())
        << "seed " << seed << ": " << bytes.error().message << "\n"
        << testing::describe(c);
    const auto again = decode_plan(*bytes);
    ASSERT_TRUE(again.ok())
        << "seed " << seed << ": " << again.error().message << "\n"
        << testing::describe(c);
    ASSERT_EQ(again->request(), *request) << "seed " << seed;
    ASSERT_EQ(again->plan(), *plan) << "seed " << seed;
    ASSERT_EQ(own_facts(again->facts()), in_order(own_facts(facts), *plan))
        << "seed " << seed;
    const auto twice = encode_plan(*again);
    ASSERT_TRUE(twice.ok());
    ASSERT_EQ(*twice, *bytes) << "seed " << seed;
  }
  EXPECT_GT(planned, 500);
}

TEST(PlanFile, EveryFlippedByteIsFound) {
  const Example e;
  for (size_t i = 0; i < e.file.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bad = e.file;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      ASSERT_FALSE(decode_plan(bad).ok()) << "byte " << i << " ^ " << flip;
    }
  }
}

TEST(PlanFile, EveryTruncationIsFound) {
  const Example e;
  for (size_t n = 0; n < e.file.size(); ++n) {
    const std::string cut = e.file.substr(0, n);
    const std::string found = message(cut);
    if (n < 12) {
      EXPECT_EQ(found.rfind("[plan file] the first bytes must be "
                            "'TESSERA\\x00plan', found ",
                            0),
                0u);
    } else if (n < 48) {
      EXPECT_EQ(found, "[plan file] a file must be at least 48 bytes, found " +
                           std::to_string(n));
    } else {
      EXPECT_EQ(found, "[plan file] a file must be as long as it says, found " +
                           std::to_string(n) + " bytes for " +
                           std::to_string(e.file.size()));
    }
  }
  EXPECT_FALSE(decode_plan(e.file + "x").ok());
}

// A change to the parts, and the file's error with a valid checksum.
struct Case {
  std::string want;
  std::function<void(Parts&)> change;
  bool retable = true;
};

TEST(PlanFile, EnvelopeErrors) {
  const Example e;
  EXPECT_EQ(message("PK\x03\x04 no plan at all"),
            "[plan file] the first bytes must be 'TESSERA\\x00plan', found "
            "'PK\\x03\\x04 no plan'");
  std::string newer = e.file;
  newer[12] = 7;
  EXPECT_EQ(message(newer),
            "[plan file] this build reads version 0 only, found 7 for the "
            "file");
  std::string flipped = e.file;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  EXPECT_EQ(message(flipped).substr(0, 53),
            "[plan file] the bytes must match their checksum, foun");
  EXPECT_EQ(message(e.file, DecodeLimits{100, 1 << 20, 1 << 20}),
            "[plan file] a file must be at most 100 bytes, found " +
                std::to_string(e.file.size()));

  std::string body = e.file.substr(0, e.file.size() - 16);
  const uint64_t huge = UINT64_MAX - 7;
  std::memcpy(body.data() + 24, &huge, 8);
  EXPECT_EQ(message(seal(body)), "[plan file] a header must be at most " +
                                     std::to_string(body.size() - 32) +
                                     " bytes, found 18446744073709551608");
  EXPECT_EQ(message(with_text("", "")),
            "[plan file] text must be valid JSON, found the end of the text "
            "for line 1, column 1");
  EXPECT_EQ(message(with_text("{}              ", "")),
            "[plan file] a header must be padded to 8 bytes and no further, "
            "found 16 bytes for 8");
  EXPECT_EQ(message(with_text(std::string(10000, '['), "")),
            "[plan file] JSON must nest at most 16 deep, found 17 for a "
            "value");
  EXPECT_EQ(message(with_text("{\"heads\": 1, \"heads\": 2}", "")),
            "[plan file] a key must appear once, found it twice for 'heads'");
  EXPECT_EQ(message(with_text(" " + take_apart(e.file).header.dump(), "")),
            "[plan file] the header must be in canonical form, found other "
            "text that means the same");
  EXPECT_EQ(message(put_together(take_apart(e.file))), "no error");
}

std::function<void(Parts&)> set(const char* pointer, Json value) {
  return [=](Parts& p) { p.header[Json::json_pointer(pointer)] = value; };
}
std::function<void(Parts&)> words(const char* name, std::vector<uint32_t> v) {
  return [=](Parts& p) { p.section(name) = v; };
}
std::function<void(Parts&)> drop(const char* name) {
  return [=](Parts& p) {
    std::erase_if(p.sections, [&](const auto& s) { return s.first == name; });
  };
}

void expect_refused(const std::vector<Case>& cases) {
  const Example e;
  for (const Case& c : cases) {
    Parts p = take_apart(e.file);
    c.change(p);
    // put_together must keep header changes to `sections`.
    EXPECT_EQ(message(put_together(p, c.retable)), "[plan file] " + c.want);
  }
}

TEST(PlanFile, EveryFieldOfTheHeaderIsChecked) {
  expect_refused({
      {"the header must have the field 'facts', found none for it",
       [](Parts& p) { p.header.erase("facts"); }},
      {"the header must have no other field, found 'more' for one",
       set("/more", 1)},
      {"heads must be an integer of 1 to 1099511627776, found the integer 0 "
       "for it",
       set("/heads", 0)},
      {"request must be an object, found an array of 0 for it",
       set("/request", Json::array())},
      {"request.masks must be an array of one or more, found an array of 0 for "
       "it",
       set("/request/masks", Json::array())},
      {"request.masks must be an array of one or more, found an object for it",
       set("/request/masks", Json::object())},
      {"request.masks[0] must be an object, found the string 'causal' for it",
       set("/request/masks/0", "causal")},
      {"request.masks[0] must have no other field, found 'x' for one",
       set("/request/masks/0/x", 1)},
      {"request.masks[0].expr must be a mask, found \"[mask] expected an atom, "
       "'!' or '(', found the end at column 9\" for 'causal &'",
       set("/request/masks/0/expr", "causal &")},
      {"request.masks[0].expr must be in canonical form, found 'documents & "
       "causal' for 'causal & documents'",
       set("/request/masks/0/expr", "documents & causal")},
      {"request.masks[0].expr must be a string, found null for it",
       set("/request/masks/0/expr", nullptr)},
      {"request.masks[0] must name what its expr names, found less for 'causal "
       "& documents'",
       set("/request/masks/0/documents", false)},
      {"request.masks[0].prefix must be true or false, found the integer 1 for "
       "it",
       set("/request/masks/0/prefix", 1)},
      {"request.masks[0].picks_block must be an integer of 0 to 2147483647, "
       "found the integer -1 for it",
       set("/request/masks/0/picks_block", -1)},
      {"request.batch must be an integer of 1 to 1048576, found the integer 0 "
       "for it",
       set("/request/batch", 0)},
      {"request.batch must be an integer of 1 to 1048576, found the float 2.0 "
       "for it",
       set("/request/batch", 2.0)},
      {"request.q_len must be an integer of 1 to 1073741824, found the integer "
       "-64 for it",
       set("/request/q_len", -64)},
      {"request.kv_len must be an integer of 1 to 1073741824, found the "
       "integer "
       "18446744073709551615 for it",
       set("/request/kv_len", UINT64_MAX)},
      {"request.tile must be an integer of 8 to 4096, found the integer 0 for "
       "it",
       set("/request/tile/0", 0)},
      {"request.tile must be an array of 2, found an array of 1 for it",
       set("/request/tile", {16})},
      {"request.max_width must be an integer of 0 to 1099511627776, found the "
       "integer -1 for it",
       set("/request/max_width", -1)},
      {"facts.picks_k must be an integer of 0 to 1073741824, found the integer "
       "-1 for it",
       set("/facts/picks_k", -1)},
      {"facts.picks_meaning must be exact or union, found 'any'",
       set("/facts/picks_meaning", "any")},
      {"facts.picks_query_tile must be an integer of 0 to 1073741824, found "
       "the integer -1 for it",
       set("/facts/picks_query_tile", -1)},
      {"request.max_union must be an integer of 0 to 1099511627776, found the "
       "integer -1 for it",
       set("/request/max_union", -1)},
      {"picks_heads, picks_k, picks_meaning and picks_query_tile must be 1, 0, "
       "exact and 0 without picks, found 2, 0, exact and 0",
       set("/facts/picks_heads", 2)},
      {"picks_heads, picks_k, picks_meaning and picks_query_tile must be 1, 0, "
       "exact and 0 without picks, found 1, 0, union and 0",
       set("/facts/picks_meaning", "union")},
      {"the request and facts must be valid, found \"[facts] prefix needs "
       "prefix_lengths, found none for the mask\" for them",
       set("/request/masks/0/prefix", true)},
  });
}

TEST(PlanFile, TheTableOfSectionsIsChecked) {
  expect_refused({
      {"sections must be an array, found null for it",
       set("/sections", nullptr), false},
      {"sections[0].words must be an integer of 0 to 1099511627776, found the "
       "integer -1 for it",
       set("/sections/0/words", -1), false},
      {"a section must lie within the file, found 1099511627776 words where "
       "136 bytes are left for 'doc_ids'",
       set("/sections/0/words", int64_t{1} << 40), false},
      {"a section must lie within the file, found 17 words where 64 bytes are "
       "left for 'entries'",
       set("/sections/3/words", 17), false},
      {"sections must fill the file, found 4 bytes more for the last",
       set("/sections/3/words", 15), false},
      {"sections must be known ones, found 'docs' for one",
       [](Parts& p) { p.sections[0].first = "docs"; }},
      {"sections must keep their order and appear once, found 'doc_ids' after "
       "'valid_token_counts'",
       [](Parts& p) { std::swap(p.sections[0], p.sections[1]); }},
      {"sections must keep their order and appear once, found 'doc_ids' after "
       "'doc_ids'",
       [](Parts& p) { p.sections.insert(p.sections.begin(), p.sections[0]); }},
      {"a file must hold its lists, found no section 'row_counts'",
       drop("row_counts")},
      {"a file must hold its lists, found no section 'entries'",
       drop("entries")},
      {"the request and facts must be valid, found \"[facts] documents needs "
       "doc_ids, found none for the mask\" for them",
       drop("doc_ids")},
  });
}

TEST(PlanFile, FactsAreChecked) {
  expect_refused({
      {"runs must be pairs of words, found 3 words for doc_ids",
       words("doc_ids", {0, 64, 1})},
      {"a run must be of 1 to 64 ids, found 0 for run 0 of doc_ids",
       words("doc_ids", {0, 0, 0, 64, 0, 64})},
      {"a run must be of 1 to 64 ids, found 65 for run 0 of doc_ids",
       words("doc_ids", {0, 65, 0, 63})},
      {"a run must be of 1 to 64 ids, found 4294967295 for run 1 of doc_ids",
       words("doc_ids", {0, 64, 0, UINT32_MAX})},
      {"a run must be of 1 to 24 ids, found 25 for run 1 of doc_ids",
       words("doc_ids", {0, 40, 1, 25, 0, 63})},
      {"neighbouring runs must differ, found id 5 twice for run 1 of doc_ids",
       words("doc_ids", {5, 40, 5, 24, 0, 64})},
      {"runs must fill 2 rows of 64 ids, found 1 rows and 63 ids for doc_ids",
       words("doc_ids", {0, 64, 0, 63})},
      {"runs must fill 2 rows of 64 ids, found 3 rows and 0 ids for doc_ids",
       words("doc_ids", {0, 64, 0, 64, 0, 64})},
      {"runs must fill 2 rows of 64 ids, found 0 rows and 0 ids for doc_ids",
       words("doc_ids", {})},
      {"the request and facts must be valid, found \"[facts] "
       "valid_token_counts must hold [batch] = 2 values, found 1\" for them",
       words("valid_token_counts", {64})},
      {"the request and facts must be valid, found \"[facts] "
       "valid_token_counts must be from 0 to 64, found -1 for row 1\" for "
       "them",
       words("valid_token_counts", {64, UINT32_MAX})},
  });
}

// 8 rows of up to 4 tiles, 16 tiles in all.
TEST(PlanFile, ListsAreChecked) {
  expect_refused({
      {"row_counts must hold 8 rows, found 7",
       words("row_counts", {1, 2, 3, 2, 1, 2, 3})},
      {"row_counts must hold 16 rows, found 8", set("/heads", 2)},
      {"a row must hold at most 4 tiles, found 5 for row 2 of row_counts",
       words("row_counts", {1, 2, 5, 0, 0, 0, 0, 0})},
      {"a row must hold at most 4 tiles, found 4294967295 for row 0 of "
       "row_counts",
       words("row_counts", {UINT32_MAX, 2, 3, 2, 1, 2, 3, 0})},
      {"row_counts must add up to 16 entries, found 7",
       words("row_counts", {1, 1, 1, 1, 1, 1, 1, 0})},
      {"columns must ascend below 4, found 4 after -1 for row 0",
       [](Parts& p) { p.section("entries")[0] = 4 << 2 | 1; }},
      {"columns must ascend below 4, found 1073741823 after -1 for row 0",
       [](Parts& p) { p.section("entries")[0] = UINT32_MAX; }},
      {"columns must ascend below 4, found 0 after 0 for row 1",
       [](Parts& p) { p.section("entries")[2] = 0 << 2 | 1; }},
      {"columns must ascend below 4, found 0 after 1 for row 1",
       [](Parts& p) {
         std::swap(p.section("entries")[1], p.section("entries")[2]);
       }},
      {"classes in a list must be 1 or 2, found 0 for row 0",
       [](Parts& p) { p.section("entries")[0] = 0; }},
      {"classes in a list must be 1 or 2, found 3 for row 0",
       [](Parts& p) { p.section("entries")[0] = 3; }},
  });
}

TEST(PlanFile, ListsOfAnotherPlanAreRefused) {
  expect_refused({
      {"lists must be those that the request and facts plan to, found column 0 "
       "full where column 0 partial is due, in tile row 0 of batch row 0, head "
       "0",
       [](Parts& p) { p.section("entries")[0] = 2; }},
      {"lists must be those that the request and facts plan to, found column 1 "
       "partial where column 0 partial is due, in tile row 0 of batch row 0, "
       "head 0",
       [](Parts& p) { p.section("entries")[0] = 1 << 2 | 1; }},
      {"lists must be those that the request and facts plan to, found no tile "
       "where column 0 partial is due, in tile row 0 of batch row 0, head 0",
       [](Parts& p) {
         p.section("entries") = {};
         p.section("row_counts") = std::vector<uint32_t>(8, 0);
       }},
      {"lists must be those that the request and facts plan to, found column 3 "
       "partial where no tile is due, in tile row 0 of batch row 0, head 0",
       [](Parts& p) {
         auto& entries = p.section("entries");
         entries.insert(entries.begin() + 1, 3 << 2 | 1);
         ++p.section("row_counts")[0];
       }},
      {"lists must be those that the request and facts plan to, found column 0 "
       "partial where column 0 full is due, in tile row 2 of batch row 0, head "
       "0",
       set("/request/masks/0/expr", "causal"), true},
  });
}

TEST(PlanFile, GrowthHasCeilings) {
  Request r;
  r.masks = {*parse_mask("full")};
  r.q_len = 8;
  r.kv_len = 4096;
  r.tile = {8, 8};
  const std::vector<int32_t> ids(4096, 0);
  Facts f;
  f.doc_ids = ids;
  const auto file = encode_plan(*BorrowedBatch::make(r, f));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(message(*file, {1 << 20, 4096, 513}), "no error");
  EXPECT_EQ(message(*file, {1 << 20, 4095, 513}),
            "[plan file] doc_ids and q_doc_ids must hold at most 4095 ids, "
            "found 4096 for the file (raise the ceiling to read it)");
  EXPECT_EQ(message(*file, {1 << 20, 4096, 512}),
            "[plan file] rows and columns of all lists must be at most 512, "
            "found 1 heads of 1 batch rows of 1 + 512 for the file (raise the "
            "ceiling to read it)");

  // A billion tokens in one run are refused before they are expanded.
  Parts p = take_apart(*file);
  p.header["request"]["kv_len"] = int64_t{1} << 30;
  p.header["request"]["tile"][1] = 4096;
  p.section("doc_ids") = {0, 1u << 30};
  EXPECT_EQ(message(put_together(p)),
            "[plan file] doc_ids and q_doc_ids must hold at most 67108864 ids, "
            "found 1073741824 for the file (raise the ceiling to read it)");
  // The mask is full, but the file holds one tile. Reading stops at the first
  // row that differs, though the whole plan would hold 2^28 tiles or more.
  p = take_apart(*file);
  p.header["request"]["kv_len"] = int64_t{1} << 26;
  p.header["request"]["tile"][1] = 8;
  p.sections = {{"row_counts", {1}}, {"entries", {2}}};
  EXPECT_EQ(message(put_together(p)),
            "[plan file] lists must be those that the request and facts plan "
            "to, found no tile where column 1 full is due, in tile row 0 of "
            "batch row 0, head 0");
}

TEST(PlanFile, EncodeRefusesAMaskThatIsNotCanonical) {
  const Example e;
  Request odd = e.request;
  odd.masks[0].expr = documents() & causal();  // not as make_mask makes it
  const auto r = encode_plan(*BorrowedBatch::make(odd, e.facts));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "[plan file] request.masks[0].expr must be in canonical form, "
            "found 'documents & causal' for 'causal & documents'");
}

// 64 queries and keys in tiles of 16 and blocks of 8. Each query picks its own
// block and that of its tile row's first query; the third query of row 1 picks
// block 0.
struct Picked {
  Request request;
  std::vector<int32_t> picks;
  Facts facts;
  Plan plan;
  std::string file;

  explicit Picked(RouteMeaning meaning) {
    request.masks = {*parse_mask("causal & routed(2, 8)")};
    request.q_len = request.kv_len = 64;
    request.tile = {16, 16};
    request.ceilings.max_union = 4;
    for (int32_t q = 0; q < 64; ++q) {
      const int32_t first = q / 16 * 2;
      std::vector<int32_t> own = {first, q / 8 == first ? -1 : q / 8, -1};
      if (q == 18) own = {0, first, -1};
      if (meaning == RouteMeaning::tile_union) own = {first, first + 1, -1};
      picks.insert(picks.end(), own.begin(), own.end());
    }
    facts.picks = Picks{picks, 1, 3, meaning, 16};
    plan = *make_plan(request, facts);
    auto bytes = encode_plan(*BorrowedBatch::make(request, facts));
    EXPECT_TRUE(bytes.ok()) << bytes.error().message;
    if (bytes) file = *bytes;
  }
};

TEST(PlanFile, PicksAreBitsOverUnionsAndTheMeaningIsTold) {
  for (const RouteMeaning meaning :
       {RouteMeaning::exact, RouteMeaning::tile_union}) {
    const Picked e(meaning);
    const auto r = decode_plan(e.file);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(r->request(), e.request);
    EXPECT_EQ(own_facts(r->facts()), own_facts(e.facts));
    EXPECT_EQ(r->plan(), e.plan);
    EXPECT_EQ(r->plan().meaning, meaning);
    EXPECT_EQ(r->facts().picks->meaning, meaning);
    EXPECT_EQ(r->facts().picks->query_tile, 16);
  }
  Parts p = take_apart(Picked(RouteMeaning::exact).file);
  EXPECT_EQ(p.header["facts"]["picks_meaning"], "exact");
  EXPECT_EQ(p.header["request"]["max_union"], 4);
  EXPECT_EQ(p.section("union_counts"), (std::vector<uint32_t>{2, 3, 2, 2}));
  EXPECT_EQ(p.section("union_blocks"),
            (std::vector<uint32_t>{0, 1, 0, 2, 3, 4, 5, 6, 7}));
  ASSERT_EQ(p.section("pick_bits").size(), 64U);
  EXPECT_EQ(p.section("pick_bits")[0], 1U);
  EXPECT_EQ(p.section("pick_bits")[8], 3U);
  EXPECT_EQ(p.section("pick_bits")[18], 3U);  // 0 and 2 of 0, 2, 3
  EXPECT_EQ(p.section("pick_bits")[24], 6U);  // 2 and 3
  // Tiles of 16 keys hold two blocks; the slot is that of the first block.
  EXPECT_EQ(p.section("union_slots"), (std::vector<uint32_t>{0, 0, 1, 0, 0}));
  EXPECT_EQ(put_together(p), Picked(RouteMeaning::exact).file);
}

TEST(PlanFile, ForgedPicksAreRefused) {
  const Picked e(RouteMeaning::exact);
  const auto set = [](const char* pointer, Json value) {
    return [=](Parts& p) { p.header[Json::json_pointer(pointer)] = value; };
  };
  const auto word = [](const char* name, size_t at, uint32_t v) {
    return [=](Parts& p) { p.section(name).at(at) = v; };
  };
  const std::vector<Case> cases = {
      {"the request and facts must be valid, found \"[facts] picks of the "
       "meaning union must be equal for all queries of a tile row, found "
       "others for query 8 of batch row 0, head 0\" for them",
       set("/facts/picks_meaning", "union")},
      {"union_counts must hold 8 tile rows, found 4",
       set("/facts/picks_heads", 2)},
      {"picks must be of 1 to 268435456 slots, found [1, 1, 64, 0] for the "
       "file (raise the ceiling to read it)",
       set("/facts/picks_k", 0)},
      {"picks must be of 1 to 268435456 slots, found [1, 1, 64, 1073741824] "
       "for the file (raise the ceiling to read it)",
       set("/facts/picks_k", int64_t{1} << 30)},
      {"a query must pick at most 1 of its union's 2 blocks, found more for "
       "query 8 of tile row 0 of the picks",
       set("/facts/picks_k", 1)},
      {"a union must be at most 8 blocks, found 9 for tile row 0 of the picks",
       word("union_counts", 0, 9)},
      {"a union must be at most 8 blocks, found 4294967295 for tile row 0 of "
       "the picks",
       word("union_counts", 0, UINT32_MAX)},
      {"blocks of a union must ascend below 8, found 8 for tile row 0 of the "
       "picks",
       word("union_blocks", 1, 8)},
      {"blocks of a union must ascend below 8, found 0 for tile row 0 of the "
       "picks",
       word("union_blocks", 1, 0)},
      {"a query must pick at most 3 of its union's 2 blocks, found more for "
       "query 0 of tile row 0 of the picks",
       word("pick_bits", 0, 4)},
      {"each block of a union must be a query's, found 0 for tile row 1 of the "
       "picks",
       word("pick_bits", 18, 2)},
      {"pick_bits must hold 16 words for tile row 3 of the picks, found 15",
       [](Parts& p) { p.section("pick_bits").pop_back(); }},
      {"unions must fill their sections, found 0 blocks and 1 words of bits "
       "more",
       [](Parts& p) { p.section("pick_bits").push_back(0); }},
      {"unions must fill their sections, found 1 blocks and 0 words of bits "
       "more",
       [](Parts& p) { p.section("union_blocks").push_back(7); }},
      {"union_slots must be those of the tiles, found 1 where 0 is due, for "
       "tile 0",
       word("union_slots", 0, 1)},
      {"union_slots must hold 5 tiles, found 4",
       [](Parts& p) { p.section("union_slots").pop_back(); }},
      {"union_slots must be there where a mask names picks and only there, "
       "found none",
       [](Parts& p) { p.sections.pop_back(); }},
      {"picks that a mask names must be bits over unions, found the section "
       "'picks'",
       [](Parts& p) {
         p.sections.insert(p.sections.begin(), {"picks", {}});
       }},
      // Different picks give a different plan.
      {"lists must be those that the request and facts plan to, found column 2 "
       "partial where column 1 partial is due, in tile row 2 of batch row 0, "
       "head 0",
       [](Parts& p) { p.section("union_blocks")[5] = 3; }},
  };
  for (const Case& c : cases) {
    Parts p = take_apart(e.file);
    c.change(p);
    EXPECT_EQ(message(put_together(p)), "[plan file] " + c.want);
  }
  for (size_t i = 0; i < e.file.size(); ++i) {
    std::string bad = e.file.substr(0, e.file.size() - 16);
    if (i >= bad.size()) break;
    bad[i] = static_cast<char>(bad[i] ^ 0x11);
    const auto r = decode_plan(seal(bad));
    if (r) {  // a file that is still valid must round-trip
      const auto again = encode_plan(*r);
      ASSERT_TRUE(again.ok()) << "byte " << i;
      EXPECT_EQ(*again, seal(bad)) << "byte " << i;
    }
  }
}

// Picks that no mask names are kept unchanged.
TEST(PlanFile, UnnamedPicksComeBackAsTheyWere) {
  Example e("causal");
  const std::vector<int32_t> picks(128, 1 << 20);
  e.facts.picks = Picks{picks, 1, 1};
  const auto bytes = encode_plan(*BorrowedBatch::make(e.request, e.facts));
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto r = decode_plan(*bytes);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(own_facts(r->facts()), own_facts(e.facts));
  EXPECT_FALSE(r->plan().meaning);
}

TEST(PlanFile, SavesAndLoads) {
  const Example e;
  std::string name =
      std::filesystem::temp_directory_path() / "tessera-plan-XXXXXX";
  const int fd = ::mkstemp(name.data());
  ASSERT_GE(fd, 0);
  ::close(fd);
  ASSERT_TRUE(save_plan(name, *BorrowedBatch::make(e.request, e.facts)).ok());
  EXPECT_EQ(*read_file(name, 1 << 20), e.file);
  const auto r = load_plan(name);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->plan(), e.plan);
  EXPECT_EQ(load_plan(name, {100, 1, 1}).error().kind, ErrorKind::limit);
  ASSERT_TRUE(write_file(name, "hello"));
  EXPECT_EQ(load_plan(name).error().message,
            "[plan file] the first bytes must be 'TESSERA\\x00plan', found "
            "'hello' (in '" +
                name + "')");
  std::filesystem::remove(name);
  EXPECT_EQ(load_plan(name).error().message,
            "[file] input must exist, found no file for '" + name + "'");
  EXPECT_EQ(save_plan("/dev/full", *BorrowedBatch::make(e.request, e.facts))
                .error()
                .message,
            "[file] output must be writable, found \"No space left on "
            "device\" for '/dev/full'");
}

}  // namespace
}  // namespace tessera::plan
