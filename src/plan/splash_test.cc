// plan/splash_test.cc: MaskInfo arrays against golden files from JAX Splash and
// against plain loops over the dense mask, and replayed in the kernel's order.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "plan/make_plan.h"
#include "tessera/layouts.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::plan {
namespace {

using Json = nlohmann::json;

// A request with facts that own their arrays.
struct Problem {
  Request request;
  std::vector<Expr> as_written;
  std::vector<int32_t> doc_ids, prefix, valid, offsets, picks;
  int64_t picks_heads = 1;
  int64_t picks_k = 0;

  Facts facts() const {
    Facts f;
    if (!doc_ids.empty()) f.doc_ids = doc_ids;
    if (!prefix.empty()) f.prefix_lengths = prefix;
    if (!valid.empty()) f.valid_token_counts = valid;
    if (!offsets.empty()) f.q_offsets = offsets;
    if (!picks.empty()) f.picks = Picks{picks, picks_heads, picks_k};
    return f;
  }
};

Problem problem_of(const std::vector<std::string>& masks, int64_t q_len,
                   int64_t kv_len, Tile tile) {
  Problem p;
  for (const std::string& text : masks) {
    auto expr = parse_expr(text);
    auto mask = parse_mask(text);
    EXPECT_TRUE(expr.ok() && mask.ok()) << text;
    if (!expr || !mask) continue;
    p.as_written.push_back(*expr);
    p.request.masks.push_back(*mask);
  }
  p.request.q_len = q_len;
  p.request.kv_len = kv_len;
  p.request.tile = tile;
  return p;
}

// Parses runs: "7*3" is 7 7 7, "4..6" is 4 5 6.
std::vector<int32_t> read_runs(const std::string& text) {
  std::vector<int32_t> out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const int32_t value = std::stoi(word);
    if (const auto star = word.find('*'); star != std::string::npos) {
      out.insert(out.end(), std::stoul(word.substr(star + 1)), value);
    } else if (const auto dots = word.find(".."); dots != std::string::npos) {
      for (int32_t v = value; v <= std::stoi(word.substr(dots + 2)); ++v) {
        out.push_back(v);
      }
    } else {
      out.push_back(value);
    }
  }
  return out;
}

SplashArray pack(const std::vector<int32_t>& values, std::vector<int64_t> shape,
                 SplashType type) {
  SplashArray a;
  a.type = type;
  a.shape = std::move(shape);
  for (int32_t v : values) {
    for (int64_t b = 0; b < a.item_bytes(); ++b) {  // little end first
      a.bytes.push_back(static_cast<uint8_t>(v >> (8 * b) & 0xff));
    }
  }
  return a;
}

SplashArray read_array(const Json& json) {
  const std::map<std::string, SplashType> types = {
      {"bool", SplashType::boolean},
      {"int8", SplashType::int8},
      {"int16", SplashType::int16},
      {"int32", SplashType::int32}};
  const auto shape = json["shape"].get<std::vector<int64_t>>();
  const auto data = json["data"].get<std::string>();
  const SplashType type = types.at(json["dtype"].get<std::string>());
  if (type != SplashType::boolean) return pack(read_runs(data), shape, type);
  std::vector<int32_t> bits;
  for (char c : data) {
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    for (int b = 3; b >= 0; --b) bits.push_back(digit >> b & 1);
  }
  size_t count = 1;
  for (int64_t n : shape) count *= static_cast<size_t>(n);
  bits.resize(count);
  return pack(bits, shape, type);
}

Problem read_problem(const Json& json) {
  Problem p = problem_of(
      json["masks"].get<std::vector<std::string>>(),
      json["q_len"].get<int64_t>(), json["kv_len"].get<int64_t>(),
      {json["tile"][0].get<int64_t>(), json["tile"][1].get<int64_t>()});
  const auto runs = [&](const char* name) {
    return json.contains(name) ? read_runs(json[name].get<std::string>())
                               : std::vector<int32_t>();
  };
  p.doc_ids = runs("doc_ids");
  p.prefix = runs("prefix_lengths");
  p.valid = runs("valid_token_counts");
  p.offsets = {json["q_offset"].get<int32_t>()};
  if (json.contains("picks")) {
    p.picks = read_runs(json["picks"]["blocks"].get<std::string>());
    p.picks_heads = json["picks"]["heads"].get<int64_t>();
    p.picks_k = json["picks"]["k"].get<int64_t>();
  }
  return p;
}

// ---- Plain loops over the dense mask ----

// One query head's mask, row by row.
struct Dense {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<char> bits;

  char at(int64_t q, int64_t k) const {
    return bits[static_cast<size_t>(q * columns + k)];
  }
  bool operator==(const Dense&) const = default;
};

std::vector<Dense> dense_of(const Problem& p, int64_t batch_row,
                            int64_t heads) {
  const Facts facts = p.facts();
  const ::tessera::testing::Oracle oracle(p.as_written, p.request, facts);
  std::vector<Dense> plan_heads;
  for (int64_t h = 0; h < oracle.heads(); ++h) {
    Dense d{p.request.q_len, p.request.kv_len, {}};
    for (int64_t q = 0; q < d.rows; ++q) {
      for (int64_t k = 0; k < d.columns; ++k) {
        d.bits.push_back(oracle.legal(batch_row, h, q, k));
      }
    }
    plan_heads.push_back(std::move(d));
  }
  std::vector<Dense> out;
  for (int64_t h = 0; h < heads; ++h) {
    out.push_back(plan_heads[static_cast<size_t>(h * oracle.heads() / heads)]);
  }
  return out;
}

std::vector<int32_t> tile_bits(const Dense& d, Tile t, int64_t r, int64_t c,
                               bool turned) {
  std::vector<int32_t> bits;
  for (int64_t i = 0; i < (turned ? t.kv : t.q); ++i) {
    for (int64_t j = 0; j < (turned ? t.q : t.kv); ++j) {
      bits.push_back(
          d.at(r * t.q + (turned ? j : i), c * t.kv + (turned ? i : j)));
    }
  }
  return bits;
}

int class_of(const std::vector<int32_t>& bits) {
  const auto ones = std::count(bits.begin(), bits.end(), 1);
  if (ones == 0) return 0;
  return ones == static_cast<int64_t>(bits.size()) ? 2 : 1;
}

// The grid arrays as nested vectors, so that the loops below stay plain.
using Cells = std::vector<std::vector<std::vector<int32_t>>>;

Cells cells(size_t a, size_t b, size_t c) {
  return Cells(
      a, std::vector<std::vector<int32_t>>(b, std::vector<int32_t>(c, 0)));
}

SplashArray flatten(const Cells& x, bool downcast) {
  std::vector<int32_t> values;
  for (const auto& plane : x) {
    for (const auto& row : plane) {
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  const int32_t most = *std::max_element(values.begin(), values.end());
  const SplashType type = !downcast || most > 32767 ? SplashType::int32
                          : most > 127              ? SplashType::int16
                                                    : SplashType::int8;
  return pack(
      values,
      {static_cast<int64_t>(x.size()), static_cast<int64_t>(x[0].size()),
       static_cast<int64_t>(x[0][0].size())},
      type);
}

// The arrays by their definition.
class BruteForce {
 public:
  BruteForce(const std::vector<Dense>& masks, Tile tile, const SplashOptions& o)
      : masks_(masks),
        tile_(tile),
        o_(o),
        heads_(masks.size()),
        rows_(static_cast<size_t>(masks[0].rows / tile.q)),
        columns_(static_cast<size_t>(masks[0].columns / tile.kv)),
        q_shards_(static_cast<size_t>(o.q_shards)),
        head_shards_(static_cast<size_t>(o.head_shards)),
        shard_rows_(rows_ / q_shards_),
        per_shard_(heads_ / head_shards_) {}

  SplashMaskInfo info() {
    compare_masks();
    number_partial_tiles();
    fill_grid();
    if (o_.shrink && one_mask_) shrink_grid();
    return arrays();
  }

 private:
  struct Visit {
    size_t out, head, r, c;
  };

  void compare_masks() {
    std::vector<size_t> mask_of(heads_);  // first head with the same mask
    for (size_t h = 0; h < heads_; ++h) {
      while (masks_[mask_of[h]] != masks_[h]) ++mask_of[h];
    }
    for (size_t h = 0; h < heads_; ++h) {
      single_ &= mask_of[h] == mask_of[h / per_shard_ * per_shard_];
    }
    one_mask_ = std::count(mask_of.begin(), mask_of.end(), size_t{0}) ==
                static_cast<int64_t>(heads_);
  }

  // Classes of all tiles. Equal partial tiles have one number and are stored
  // once.
  void number_partial_tiles() {
    tile_class_ = block_ = cells(heads_, rows_, columns_);
    for (size_t h = 0; h < heads_; ++h) {
      for (size_t r = 0; r < rows_; ++r) {
        for (size_t c = 0; c < columns_; ++c) {
          const auto row = static_cast<int64_t>(r);
          const auto column = static_cast<int64_t>(c);
          const auto bits = tile_bits(masks_[h], tile_, row, column, false);
          tile_class_[h][r][c] = class_of(bits);
          if (tile_class_[h][r][c] != 1) continue;
          const auto [at, fresh] =
              numbers_.emplace(bits, static_cast<int32_t>(numbers_.size()));
          block_[h][r][c] = at->second;
          if (!fresh) continue;
          const auto stored = tile_bits(masks_[h], tile_, row, column, o_.dkv);
          blocks_.insert(blocks_.end(), stored.begin(), stored.end());
        }
      }
    }
  }

  // Each step names its own tile, or the next tile that the kernel needs.
  void fill_grid() {
    out_heads_ = single_ ? head_shards_ : heads_;
    data_ = mask_ = klass_ = cells(out_heads_, rows_, columns_);
    for (size_t hs = 0; hs < head_shards_; ++hs) {
      for (size_t qs = 0; qs < q_shards_; ++qs) {
        fill_steps(visits(hs, qs), qs * shard_rows_);
      }
    }
  }

  // The tiles of a shard in the kernel's order.
  std::vector<Visit> visits(size_t hs, size_t qs) const {
    const size_t step_heads = single_ ? 1 : per_shard_;
    std::vector<Visit> order;
    for (size_t a = 0; a < (o_.dkv ? columns_ : step_heads); ++a) {
      for (size_t b = 0; b < (o_.dkv ? step_heads : shard_rows_); ++b) {
        for (size_t d = 0; d < (o_.dkv ? shard_rows_ : columns_); ++d) {
          const size_t h = o_.dkv ? b : a;
          const size_t r = qs * shard_rows_ + (o_.dkv ? d : b);
          order.push_back(
              {hs * step_heads + h, hs * per_shard_ + h, r, o_.dkv ? a : d});
        }
      }
    }
    return order;
  }

  void fill_steps(const std::vector<Visit>& order, size_t first_row) {
    int32_t next_data = -1;
    int32_t next_mask = -1;
    for (int turn = 0; turn < 2; ++turn) {  // twice: it wraps around
      for (auto v = order.rbegin(); v != order.rend(); ++v) {
        const int32_t k = tile_class_[v->head][v->r][v->c];
        if (k != 0) {
          next_data = static_cast<int32_t>(o_.dkv ? v->r - first_row : v->c);
        }
        if (k == 1) next_mask = block_[v->head][v->r][v->c];
        klass_[v->out][v->r][v->c] = k;
        data_[v->out][v->r][v->c] = std::max(next_data, 0);
        mask_[v->out][v->r][v->c] = std::max(next_mask, 0);
      }
    }
  }

  // Lines along the shrunk dimension; each q shard has this many.
  size_t lines() const { return o_.dkv ? columns_ : shard_rows_; }

  // The live tiles of a line of a q shard, by row and column.
  std::vector<std::pair<size_t, size_t>> live_of(size_t shard, size_t l) const {
    std::vector<std::pair<size_t, size_t>> live;
    for (size_t i = 0; i < (o_.dkv ? shard_rows_ : columns_); ++i) {
      const size_t r = shard * shard_rows_ + (o_.dkv ? i : l);
      const size_t c = o_.dkv ? l : i;
      if (klass_[0][r][c] != 0) live.emplace_back(r, c);
    }
    return live;
  }

  // Leaves of each line its live tiles, then padding up to the widest line.
  void shrink_grid() {
    std::vector<size_t> widths(q_shards_, 0);
    for (size_t s = 0; s < q_shards_; ++s) {
      for (size_t l = 0; l < lines(); ++l) {
        widths[s] = std::max(widths[s], live_of(s, l).size());
      }
    }
    const size_t width =
        std::max<size_t>(1, *std::max_element(widths.begin(), widths.end()));
    Cells data = shrunk(data_, widths, width, true);
    Cells mask = shrunk(mask_, widths, width, true);
    klass_ = shrunk(klass_, widths, width, false);
    data_ = std::move(data);
    mask_ = std::move(mask);
  }

  // A shard's lines are padded with 0 to the shard's width, then to `width`
  // with the last value if it is `repeated`, else with 0.
  Cells shrunk(const Cells& from, const std::vector<size_t>& widths,
               size_t width, bool repeated) const {
    Cells out = o_.dkv ? cells(out_heads_, q_shards_ * width, columns_)
                       : cells(out_heads_, rows_, width);
    for (size_t h = 0; h < out_heads_; ++h) {
      for (size_t s = 0; s < q_shards_; ++s) {
        for (size_t l = 0; l < lines(); ++l) {
          std::vector<int32_t> slots;
          for (const auto& [r, c] : live_of(s, l)) {
            slots.push_back(from[h][r][c]);
          }
          while (slots.size() < widths[s]) {
            slots.insert(o_.dkv ? slots.begin() : slots.end(), 0);
          }
          while (slots.size() < width) {
            slots.push_back(slots.empty() || !repeated ? 0 : slots.back());
          }
          for (size_t i = 0; i < width; ++i) {
            if (o_.dkv) {
              out[h][s * width + i][l] = slots[i];
            } else {
              out[h][s * shard_rows_ + l][i] = slots[i];
            }
          }
        }
      }
    }
    return out;
  }

  SplashMaskInfo arrays() const {
    SplashMaskInfo info;
    info.data_next = flatten(data_, o_.downcast);
    info.block_mask = flatten(klass_, o_.downcast);
    if (o_.computable && one_mask_) {
      std::vector<int32_t> positions;
      for (int64_t q = 0; q < masks_[0].rows; ++q) {
        positions.push_back(static_cast<int32_t>(q));
      }
      info.q_sequence = pack(positions, {masks_[0].rows}, SplashType::int32);
    } else if (!numbers_.empty()) {
      info.mask_next = flatten(mask_, o_.downcast);
      info.partial_mask_blocks =
          pack(blocks_,
               {static_cast<int64_t>(numbers_.size()),
                o_.dkv ? tile_.kv : tile_.q, o_.dkv ? tile_.q : tile_.kv},
               SplashType::boolean);
    }
    return info;
  }

  const std::vector<Dense>& masks_;
  Tile tile_;
  const SplashOptions& o_;
  size_t heads_, rows_, columns_, q_shards_, head_shards_;
  size_t shard_rows_, per_shard_;  // rows of a q shard, heads of a head shard
  bool single_ = true;             // the heads of each shard share one mask
  bool one_mask_ = false;          // all heads do
  size_t out_heads_ = 0;
  Cells tile_class_, block_;  // of each head's tiles: class, number if partial
  Cells data_, mask_, klass_;
  std::map<std::vector<int32_t>, int32_t> numbers_;  // of partial tiles
  std::vector<int32_t> blocks_;                      // their bits
};

SplashMaskInfo brute_force(const std::vector<Dense>& masks, Tile tile,
                           const SplashOptions& o) {
  return BruteForce(masks, tile, o).info();
}

std::string print(const SplashArray& a) {
  std::ostringstream out;
  out << "type " << static_cast<int>(a.type) << " shape";
  for (int64_t n : a.shape) out << ' ' << n;
  out << ':';
  for (int64_t i = 0; i < std::min<int64_t>(a.size(), 400); ++i) {
    out << ' ' << a.at(i);
  }
  return out.str();
}

::testing::AssertionResult same(const std::optional<SplashArray>& got,
                                const std::optional<SplashArray>& want,
                                const char* name) {
  if (got == want) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << name << "\ngot  " << (got ? print(*got) : "none") << "\nwant "
         << (want ? print(*want) : "none");
}

void expect_same(const SplashMaskInfo& got, const SplashMaskInfo& want) {
  EXPECT_TRUE(same(got.data_next, want.data_next, "data_next"));
  EXPECT_TRUE(same(got.mask_next, want.mask_next, "mask_next"));
  EXPECT_TRUE(same(got.block_mask, want.block_mask, "block_mask"));
  EXPECT_TRUE(same(got.partial_mask_blocks, want.partial_mask_blocks,
                   "partial_mask_blocks"));
  EXPECT_TRUE(same(got.q_sequence, want.q_sequence, "q_sequence"));
}

// Visits the grid in the kernel's order and compares the pairs that it allows
// with `masks`. If the kernel computes the mask, `masks` is its function.
void expect_replays(const SplashMaskInfo& info, const std::vector<Dense>& masks,
                    Tile tile, const SplashOptions& o) {
  const std::vector<int64_t>& shape = info.block_mask.shape;
  ASSERT_EQ(info.data_next.shape, shape);
  const int64_t rows = masks[0].rows / tile.q;
  const int64_t shard_rows = rows / o.q_shards;
  const auto heads = static_cast<int64_t>(masks.size());
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t plane = h * shape[0] / heads;
    const Dense& mask = masks[static_cast<size_t>(h)];
    Dense seen{mask.rows, mask.columns, std::vector<char>(mask.bits.size(), 0)};
    for (int64_t i = 0; i < shape[1]; ++i) {
      for (int64_t j = 0; j < shape[2]; ++j) {
        const int64_t at = (plane * shape[1] + i) * shape[2] + j;
        const int64_t next = info.data_next.at(at);
        // The number of grid rows of a q shard is that of its slots.
        const int64_t shard = i / (shape[1] / o.q_shards);
        const int64_t r = o.dkv ? shard * shard_rows + next : i;
        const int64_t c = o.dkv ? j : next;
        ASSERT_LT(r, rows);
        ASSERT_LT(c, mask.columns / tile.kv);
        const int64_t klass = info.block_mask.at(at);
        if (info.mask_next) {
          ASSERT_LT(info.mask_next->at(at), info.partial_mask_blocks->shape[0]);
        }
        if (klass == 0) continue;
        for (int64_t a = 0; a < tile.q; ++a) {
          for (int64_t b = 0; b < tile.kv; ++b) {
            char legal = 1;
            if (info.q_sequence) {
              legal = mask.at(r * tile.q + a, c * tile.kv + b);
            } else if (klass == 1) {
              const int64_t in_tile = o.dkv ? b * tile.q + a : a * tile.kv + b;
              legal = static_cast<char>(info.partial_mask_blocks->at(
                  info.mask_next->at(at) * tile.q * tile.kv + in_tile));
            }
            char& pair = seen.bits[static_cast<size_t>(
                (r * tile.q + a) * mask.columns + c * tile.kv + b)];
            ASSERT_EQ(pair, 0) << "tile " << r << ", " << c << " comes twice";
            pair = legal;
          }
        }
      }
    }
    EXPECT_EQ(seen.bits, mask.bits) << "head " << h;
  }
}

Result<SplashMaskInfo> run(const Problem& p, const SplashOptions& o,
                           int64_t batch_row = 0) {
  const Facts facts = p.facts();
  auto plan = make_plan(p.request, facts);
  if (!plan) return plan.error();
  return make_splash(*BorrowedBatch::make(p.request, facts), batch_row, o);
}

int64_t head_count(const Problem& p, const SplashOptions& o) {
  if (o.heads != 0) return o.heads;
  return std::max<int64_t>(static_cast<int64_t>(p.request.masks.size()),
                           p.picks_heads);
}

SplashMaskInfo expect_right(const Problem& p, const SplashOptions& o,
                            int64_t batch_row = 0) {
  auto got = run(p, o, batch_row);
  EXPECT_TRUE(got.ok()) << got.error().message;
  if (!got) return {};
  const std::vector<Dense> masks = dense_of(p, batch_row, head_count(p, o));
  expect_same(*got, brute_force(masks, p.request.tile, o));
  expect_replays(*got, masks, p.request.tile, o);
  return *got;
}

std::vector<int64_t> values(const SplashArray& a) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < a.size(); ++i) out.push_back(a.at(i));
  return out;
}

// ---- Golden files ----

std::filesystem::path golden_folder() {
  return "tests/golden/splash";  // tests run from the project's root
}

SplashOptions read_options(const Json& r) {
  SplashOptions o;
  o.dkv = r.value("dkv", false);
  o.shrink = r.value("shrink", true);
  o.downcast = r.value("downcast", true);
  o.q_shards = r.value("q_shards", int64_t{1});
  o.head_shards = r.value("head_shards", int64_t{1});
  o.heads = r.value("heads", int64_t{1});
  o.computable = r.value("computable", false);
  return o;
}

TEST(Splash, GoldenFiles) {
  int files = 0;
  int equal = 0;
  int crashes = 0;
  int refused = 0;
  size_t at = 0;
  const size_t stride = testing::case_stride();
  ASSERT_TRUE(std::filesystem::exists(golden_folder()));
  for (const auto& file :
       std::filesystem::directory_iterator(golden_folder())) {
    SCOPED_TRACE(file.path().filename().string());
    std::ifstream stream(file.path());
    const Json json = Json::parse(stream);
    ++files;
    EXPECT_TRUE(json["made_by"].contains("jax"));
    const Problem p = read_problem(json["request"]);
    const Facts facts = p.facts();
    auto plan = make_plan(p.request, facts);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    std::map<int64_t, std::vector<Dense>> dense;  // by query heads
    for (const Json& r : json["runs"]) {
      if (!testing::takes_case(at++)) continue;
      SCOPED_TRACE(r.dump());
      const SplashOptions o = read_options(r);
      auto got = make_splash(*BorrowedBatch::make(p.request, facts), 0, o);
      const std::string error = r.value("error", "");
      if (error.find("divide") != std::string::npos) {
        ASSERT_FALSE(got.ok());
        EXPECT_NE(got.error().message.find(" must divide "), std::string::npos)
            << got.error().message;
        ++refused;
        continue;
      }
      ASSERT_TRUE(got.ok()) << got.error().message;
      if (!dense.contains(o.heads)) dense[o.heads] = dense_of(p, 0, o.heads);
      const std::vector<Dense>& masks = dense[o.heads];
      expect_same(*got, brute_force(masks, p.request.tile, o));
      expect_replays(*got, masks, p.request.tile, o);
      if (!error.empty()) {
        // Splash raises an error: a shard has nothing live, or there is no
        // partial tile in several shards. expect_right has checked our arrays
        // against plain loops.
        const bool known =
            error == "AssertionError: " ||
            error == "ValueError: need at least one array to concatenate";
        EXPECT_TRUE(known) << error;
        ++crashes;
        continue;
      }
      SplashMaskInfo want;
      const auto array = [&](const char* name) -> std::optional<SplashArray> {
        if (!r.contains(name)) return std::nullopt;
        return read_array(json["arrays"][r[name].get<size_t>()]);
      };
      want.data_next = *array("data_next");
      want.mask_next = array("mask_next");
      want.block_mask = *array("block_mask");
      want.partial_mask_blocks = array("partial_mask_blocks");
      want.q_sequence = array("q_sequence");
      expect_same(*got, want);
      ++equal;
    }
    if (::testing::Test::HasFailure()) return;  // one file is enough to read
  }
  EXPECT_GE(files, 120);
  EXPECT_GE(equal, 2200 / static_cast<int>(stride) / 2);
  if (stride > 1) return;
  EXPECT_GE(equal, 2200);
  EXPECT_GE(crashes, 100);
  EXPECT_GE(refused, 16);
}

// ---- Cases that other implementations get wrong ----

// Splash has no mask_next here and raises when it joins the shards.
TEST(Splash, FullMaskWithQueryShards) {
  const Problem p = problem_of({"full"}, 64, 64, {16, 32});
  SplashOptions o;
  o.q_shards = 2;
  const SplashMaskInfo info = expect_right(p, o);
  EXPECT_EQ(info.block_mask.shape, (std::vector<int64_t>{1, 4, 2}));
  EXPECT_EQ(values(info.block_mask), std::vector<int64_t>(8, 2));
  EXPECT_EQ(values(info.data_next),
            (std::vector<int64_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_FALSE(info.mask_next);
  EXPECT_FALSE(info.partial_mask_blocks);
  EXPECT_FALSE(info.q_sequence);
  o.dkv = true;  // query tiles count from their shard
  const SplashMaskInfo dkv = expect_right(p, o);
  EXPECT_EQ(values(dkv.data_next),
            (std::vector<int64_t>{0, 0, 1, 1, 0, 0, 1, 1}));
}

// Splash raises here too, although a function computes the mask.
TEST(Splash, ComputableMaskThatIsFullEverywhere) {
  for (const char* mask : {"window(-1, -1)", "causal", "full"}) {
    Problem p = problem_of({mask}, 64, 64, {16, 16});
    p.offsets = {63};
    for (int64_t shards : {1, 2, 4}) {
      SplashOptions o;
      o.computable = true;
      o.q_shards = shards;
      const SplashMaskInfo info = expect_right(p, o);
      EXPECT_EQ(values(info.block_mask), std::vector<int64_t>(16, 2));
      EXPECT_FALSE(info.mask_next);
      EXPECT_FALSE(info.partial_mask_blocks);
      ASSERT_TRUE(info.q_sequence);
      EXPECT_EQ(info.q_sequence->shape, std::vector<int64_t>{64});
      EXPECT_EQ(info.q_sequence->at(63), 63);
    }
  }
}

// The tile stays partial: a masked row must not make it full or drop it. The
// stored mask row is zero.
TEST(Splash, FullyMaskedRowInsideLiveTile) {
  Problem p = problem_of({"documents"}, 32, 32, {16, 16});
  p.doc_ids.assign(32, 0);
  p.doc_ids[5] = -1;
  const SplashMaskInfo info = expect_right(p, {});
  EXPECT_EQ(values(info.block_mask), (std::vector<int64_t>{1, 1, 1, 2}));
  ASSERT_TRUE(info.partial_mask_blocks);
  for (int64_t k = 0; k < 16; ++k) {
    EXPECT_EQ(info.partial_mask_blocks->at(5 * 16 + k), 0);
  }
}

// Splash raises if a whole shard or the whole mask is empty.
TEST(Splash, TileRowWithNothingLive) {
  Problem p = problem_of({"causal & documents"}, 64, 64, {16, 16});
  p.doc_ids.assign(64, 3);
  std::fill(p.doc_ids.begin() + 16, p.doc_ids.begin() + 32, -1);
  for (bool dkv : {false, true}) {
    for (bool shrink : {false, true}) {
      for (int64_t shards : {1, 2, 4}) {
        SplashOptions o;
        o.dkv = dkv;
        o.shrink = shrink;
        o.q_shards = shards;
        expect_right(p, o);
      }
    }
  }
  SplashOptions o;
  o.q_shards = 4;
  const SplashMaskInfo info = expect_right(p, o);
  EXPECT_EQ(values(info.block_mask),
            (std::vector<int64_t>{1, 0, 0,  // row 0
                                  0, 0, 0,  // row 1: nothing
                                  2, 1, 0,  // row 2
                                  2, 2, 1}));
  // An empty mask has one inactive step a row, which writes its output.
  const Problem nothing = problem_of({"!full"}, 64, 64, {16, 16});
  const SplashMaskInfo none = expect_right(nothing, {});
  EXPECT_EQ(none.block_mask.shape, (std::vector<int64_t>{1, 4, 1}));
  EXPECT_EQ(values(none.block_mask), std::vector<int64_t>(4, 0));
  EXPECT_EQ(none.block_mask.type, SplashType::int8);
}

// Equal padding ids are not a document, unlike in Splash's segment ids.
TEST(Splash, PaddingIsNeverLegal) {
  Problem p = problem_of({"documents"}, 64, 64, {16, 16});
  p.doc_ids.assign(64, -1);
  std::fill(p.doc_ids.begin(), p.doc_ids.begin() + 16, 0);
  const SplashMaskInfo info = expect_right(p, {});
  EXPECT_EQ(values(info.block_mask), (std::vector<int64_t>{2, 0, 0, 0}));
  SplashOptions o;
  o.shrink = false;
  const SplashMaskInfo wide = expect_right(p, o);
  std::vector<int64_t> want(16, 0);
  want[0] = 2;
  EXPECT_EQ(values(wide.block_mask), want);
}

// ---- Heads, batches and random masks ----

TEST(Splash, HeadsAreComparedByMeaning) {
  const Problem p = problem_of({"causal", "window(-1, 0)"}, 64, 64, {16, 16});
  SplashOptions o;
  o.heads = 4;
  const SplashMaskInfo info = expect_right(p, o);
  EXPECT_EQ(info.block_mask.shape[0], 1);
}

TEST(Splash, PicksPerHead) {
  Problem p = problem_of({"blocks(16)"}, 32, 64, {16, 16});
  p.picks_heads = 2;
  p.picks_k = 1;
  p.picks.assign(64, 1);
  std::fill(p.picks.begin() + 32, p.picks.end(), 3);
  for (int64_t head_shards : {1, 2}) {
    SplashOptions o;
    o.heads = 4;
    o.head_shards = head_shards;
    const SplashMaskInfo info = expect_right(p, o);
    EXPECT_EQ(info.block_mask.shape[0], head_shards == 1 ? 4 : 2);
  }
}

// A random expression; `documents` only if the ids cover every query.
std::string random_mask(std::mt19937& random, int depth, bool ids) {
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  if (depth == 0 || pick(3) == 0) {
    switch (pick(ids ? 8 : 6)) {
      case 0:
        return "causal";
      case 1:
        return "window(" + std::to_string(pick(60) - 1) + ", " +
               std::to_string(pick(40) - 1) + ")";
      case 2:
        return "chunk(" + std::to_string(1 + pick(70)) + ")";
      case 3:
        return "prefix";
      case 4:
        return "full";
      case 5:
        return "sink(" + std::to_string(1 + pick(20)) + ")";
      case 6:
        return "segments";
      default:
        return "documents";
    }
  }
  const std::string left = random_mask(random, depth - 1, ids);
  if (pick(4) == 0) return "!(" + left + ")";
  return "(" + left + (pick(3) == 0 ? " | " : " & ") +
         random_mask(random, depth - 1, ids) + ")";
}

TEST(Splash, RandomMasks) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % n); };
    const Tile tile{8 * (1 + pick(3)), 8 * (1 + pick(3))};
    const int64_t q_shards = int64_t{1} << pick(3);
    const int64_t q_len = tile.q * q_shards * (1 + pick(3));
    const bool ids = pick(2) == 0;
    const int64_t columns = 1 + pick(6);
    const int64_t kv_len =
        ids ? std::max(columns * tile.kv,
                       (q_len + tile.kv - 1) / tile.kv * tile.kv)
            : columns * tile.kv;
    std::vector<std::string> masks;
    const int groups = 1 << pick(3);
    for (int g = 0; g < groups; ++g) {
      if (g > 0 && pick(2) == 0) {
        masks.push_back(masks[static_cast<size_t>(pick(g))]);
      } else {
        masks.push_back(random_mask(random, 3, ids));
      }
    }
    Problem p = problem_of(masks, q_len, kv_len, tile);
    const int64_t batch = 1 + pick(2);
    p.request.batch = batch;
    for (int64_t b = 0; b < batch; ++b) {
      p.prefix.push_back(pick(static_cast<int>(kv_len) / 2));
      if (!ids) p.offsets.push_back(pick(120) - 60);
    }
    if (pick(3) == 0) {
      for (int64_t b = 0; b < batch; ++b) {
        p.valid.push_back(static_cast<int32_t>(kv_len) -
                          pick(static_cast<int>(kv_len) / 2));
      }
    }
    if (ids) {
      int32_t id = 0;
      for (int64_t i = 0; i < batch * kv_len; ++i) {
        if (pick(15) == 0) id = pick(6) - 1;
        p.doc_ids.push_back(id);
      }
    }
    SplashOptions o;
    o.dkv = pick(2) == 0;
    o.shrink = pick(3) != 0;
    o.downcast = pick(4) != 0;
    o.q_shards = q_shards;
    o.heads = groups * (1 + pick(2));
    o.head_shards = int64_t{1} << pick(3);
    while (o.heads % o.head_shards != 0) o.head_shards /= 2;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + masks[0]);
    expect_right(p, o, pick(static_cast<int>(batch)));
    if (::testing::Test::HasFailure()) return;
  }
}

// ---- Refusals ----

TEST(Splash, RefusesBadOptions) {
  struct Row {
    const char* name;
    std::function<void(Problem&, SplashOptions&, int64_t&)> change;
    const char* message;
  };
  const Row table[] = {
      {"q_len",
       [](Problem& p, SplashOptions&, int64_t&) { p.request.q_len = 60; },
       "[splash] tile q must divide q_len, found 16 for 60"},
      {"kv_len",
       [](Problem& p, SplashOptions&, int64_t&) { p.request.kv_len = 70; },
       "[splash] tile kv must divide kv_len, found 16 for 70"},
      {"q_shards", [](Problem&, SplashOptions& o, int64_t&) { o.q_shards = 3; },
       "[splash] q_shards must divide q_len, found 3 for 64"},
      {"shard", [](Problem&, SplashOptions& o, int64_t&) { o.q_shards = 8; },
       "[splash] tile q must divide the q_len of a shard, found 16 for 8"},
      {"no q_shards",
       [](Problem&, SplashOptions& o, int64_t&) { o.q_shards = 0; },
       "[splash] q_shards must be from 1 to 1048576, found 0"},
      {"head_shards",
       [](Problem&, SplashOptions& o, int64_t&) { o.head_shards = 3; },
       "[splash] head_shards must divide heads, found 3 for 2"},
      {"negative head_shards",
       [](Problem&, SplashOptions& o, int64_t&) { o.head_shards = -2; },
       "[splash] head_shards must be from 1 to 1048576, found -2"},
      {"heads", [](Problem&, SplashOptions& o, int64_t&) { o.heads = 3; },
       "[splash] the plan's heads must divide heads, found 2 for 3"},
      {"negative heads",
       [](Problem&, SplashOptions& o, int64_t&) { o.heads = -1; },
       "[splash] heads must be from 1 to 1048576, found -1"},
      {"many heads",
       [](Problem&, SplashOptions& o, int64_t&) { o.heads = int64_t{1} << 40; },
       "[splash] heads must be from 1 to 1048576, found 1099511627776"},
      {"batch_row", [](Problem&, SplashOptions&, int64_t& b) { b = 1; },
       "[splash] batch_row must be from 0 to 0, found 1"},
      {"negative batch_row",
       [](Problem&, SplashOptions&, int64_t& b) { b = -1; },
       "[splash] batch_row must be from 0 to 0, found -1"},
      {"computable documents",
       [](Problem& p, SplashOptions& o, int64_t&) {
         p.request.masks[1] = *parse_mask("causal & documents");
         p.doc_ids.assign(64, 0);
         o.computable = true;
       },
       "[splash] a mask that the kernel computes must depend on positions "
       "alone, found documents"},
      {"computable prefix",
       [](Problem& p, SplashOptions& o, int64_t&) {
         p.request.masks[0] = *parse_mask("causal | prefix");
         p.prefix = {3};
         o.computable = true;
       },
       "[splash] a mask that the kernel computes must depend on positions "
       "alone, found prefix"},
      {"computable counts",
       [](Problem& p, SplashOptions& o, int64_t&) {
         p.valid = {50};
         o.computable = true;
       },
       "[splash] a mask that the kernel computes must depend on positions "
       "alone, found valid_token_counts"},
      {"too large",
       [](Problem& p, SplashOptions& o, int64_t&) {
         p.request.masks = {*parse_mask("window(3, 0)"),
                            *parse_mask("window(9, 0)")};
         p.request.q_len = p.request.kv_len = 16 * 16384;
         p.request.tile = {16, 16};
         o.heads = 1 << 20;
         o.computable = true;
       },
       "[splash] the arrays must fit 2147483648 bytes, found more"},
  };
  for (const Row& row : table) {
    SCOPED_TRACE(row.name);
    Problem p = problem_of({"causal", "window(9, 0)"}, 64, 64, {16, 16});
    SplashOptions o;
    int64_t batch_row = 0;
    row.change(p, o, batch_row);
    auto got = run(p, o, batch_row);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().message, row.message);
  }
}

}  // namespace
}  // namespace tessera::plan
