// bench/harness/cases.cc: the tables of cases, goals and document boundaries.
#include "bench/harness/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera::bench {
namespace {

constexpr AttentionCase kCases[] = {
    {.name = "full", .mask = "full"},
    {.name = "causal", .mask = "causal"},
    {.name = "softcap", .mask = "causal", .softcap = 30},
    {.name = "window", .mask = "causal & window(1023, 0)"},
    {.name = "documents", .mask = "causal & documents", .documents = true},
    {.name = "both",
     .mask = "causal & window(1023, 0) & documents",
     .documents = true},
    {.name = "decode", .mask = "full", .decode = true},
};

struct GoalRow {
  std::string_view name;
  Dtype dtype;
  Direction direction;
  Goal goal;
};
constexpr Direction kForward = Direction::forward;
constexpr Direction kBackward = Direction::backward;
constexpr GoalRow kGoals[] = {
    {"full", Dtype::f32, kForward, {1.0, 0.85}},
    {"causal", Dtype::f32, kForward, {1.15, 0}},
    {"softcap", Dtype::f32, kForward, {1.6, 0}},
    {"window", Dtype::f32, kForward, {1.35, 0}},
    {"documents", Dtype::f32, kForward, {1.3, 0}},
    {"both", Dtype::f32, kForward, {1.4, 0}},
    {"full", Dtype::bf16, kForward, {1.0, 0}},
    {"causal", Dtype::bf16, kForward, {1.8, 0}},
    {"window", Dtype::bf16, kForward, {1.6, 0}},
    {"documents", Dtype::bf16, kForward, {1.6, 0}},
    {"both", Dtype::bf16, kForward, {2.0, 0}},
    {"causal", Dtype::f32, kBackward, {1.15, 0}},
    {"window", Dtype::f32, kBackward, {1.3, 0}},
    {"documents", Dtype::f32, kBackward, {1.3, 0}},
    {"both", Dtype::f32, kBackward, {1.35, 0}},
    {"causal", Dtype::bf16, kBackward, {1.5, 0}},
    {"window", Dtype::bf16, kBackward, {1.8, 0}},
    {"documents", Dtype::bf16, kBackward, {1.6, 0}},
    {"both", Dtype::bf16, kBackward, {1.9, 0}},
    {"decode", Dtype::bf16, kForward, {0, 0.8}},
};

// The starts of documents 1 to 7, from bench/packed_documents.py.
struct Boundaries {
  int64_t tokens;
  std::array<int32_t, 7> starts;
};
constexpr Boundaries kBoundaries[] = {
    {1024, {586, 628, 686, 775, 832, 890, 933}},
    {4096, {2347, 2525, 2752, 3105, 3329, 3570, 3750}},
    {8192, {4696, 5053, 5507, 6212, 6658, 7143, 7507}},
    {65536, {37577, 40450, 44081, 49705, 53267, 57170, 60097}},
};

}  // namespace

std::span<const AttentionCase> attention_cases() { return kCases; }

const AttentionCase* find_case(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kCases), std::end(kCases),
                   [&](const AttentionCase& c) { return c.name == name; });
  return at == std::end(kCases) ? nullptr : at;
}

std::string case_names() {
  std::string out;
  for (const AttentionCase& c : kCases) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", c.name);
  }
  return out;
}

CaseShape shape_of(const AttentionCase& c, int64_t tokens) {
  if (c.decode) return {1, 32768, 32, 8};
  return {tokens, tokens, 8, 8};
}

std::string_view to_string(Direction d) {
  return d == Direction::forward ? "forward" : "forward+backward";
}

double operations_per_pair(Direction d, int64_t head_dim) {
  // Two matrix products forward; five more for forward+backward.
  return (d == Direction::forward ? 4.0 : 14.0) * static_cast<double>(head_dim);
}

Goal goal_of(const AttentionCase& c, Dtype dtype, Direction d) {
  for (const GoalRow& row : kGoals) {
    if (row.name == c.name && row.dtype == dtype && row.direction == d) {
      return row.goal;
    }
  }
  return {};
}

std::vector<int32_t> packed_ids(int64_t tokens) {
  std::array<int64_t, 7> starts = {};
  const Boundaries* table = std::end(kBoundaries) - 1;
  for (const Boundaries& b : kBoundaries) {
    if (b.tokens == tokens) table = &b;
  }
  // A length without a table scales the last table.
  for (size_t i = 0; i < starts.size(); ++i) {
    starts[i] = table->starts[i] * tokens / table->tokens;
  }
  std::vector<int32_t> ids(static_cast<size_t>(tokens), 0);
  for (const int64_t start : starts) {
    for (auto at = ids.begin() + start; at != ids.end(); ++at) ++*at;
  }
  return ids;
}

}  // namespace tessera::bench
