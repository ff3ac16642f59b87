// bench/kernels/blocks.cc: `tessera-bench blocks`: makes both worklists of a
// block mask, from bytes and from bits, beside a plain read and PyTorch.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/fail.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/harness/times.h"
#include "bench/kernels/blocks_peer.h"
#include "bench/kernels/measure.h"
#include "cli/given_flags.h"
#include "cli/machine.h"
#include "kernels/blocks/block_mask.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "tessera/version.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> heads, blocks, active, seconds, peers, out,
      results;
  bool json = false;
};

// A random square mask for each head, all blocks with the same chance.
struct Drawn {
  int64_t heads = 0, blocks = 0;
  std::vector<uint8_t> bytes, bits;

  BlockMask by_bytes() const { return {bytes, heads, blocks, blocks}; }
  BlockMask by_bits() const { return {bits, heads, blocks, blocks, true}; }
};

Drawn draw(int64_t heads, int64_t blocks, double active) {
  Drawn out{heads, blocks, {}, {}};
  const auto rows = static_cast<size_t>(heads * blocks);
  const auto columns = static_cast<size_t>(blocks);
  const size_t row_bytes = (columns + 7) / 8;
  out.bytes.resize(rows * columns);
  out.bits.resize(rows * row_bytes);
  std::mt19937_64 random(0);
  for (size_t i = 0; i < out.bytes.size(); ++i) {
    const double drawn = static_cast<double>(random() >> 11) * 0x1p-53;
    if (drawn >= active) continue;
    out.bytes[i] = 1;
    out.bits[i / columns * row_bytes + i % columns / 8] |=
        static_cast<uint8_t>(1 << (i % columns % 8));
  }
  return out;
}

// Compares the lists to a scan of all cells; the transposed list is that scan
// after the library's counting sort.
bool is_right(const Drawn& d, const BlockLists& lists) {
  Worklist want{d.heads, d.blocks, d.blocks, {0}, {}};
  for (size_t i = 0; i < d.bytes.size(); ++i) {
    const auto column = static_cast<int64_t>(i) % d.blocks;
    if (d.bytes[i] != 0) {
      want.entries.push_back(Entry::of(column, TileClass::full));
    }
    if (column + 1 == d.blocks) {
      want.row_start.push_back(static_cast<uint32_t>(want.entries.size()));
    }
  }
  return lists.forward == want && lists.transposed == transpose(want);
}

struct Times {
  double bytes_us = 0, bits_us = 0;
};

// A goal of one door, for default sizes.
struct Goal {
  const char* door;
  double us;
  double Times::*time;

  bool met_by(const Times& t) const { return t.*time <= us; }
};
constexpr Goal kGoals[] = {{"bytes", 400, &Times::bytes_us},
                           {"bits", 200, &Times::bits_us}};

json goals_json(const Times& best) {
  json out = json::object();
  for (const Goal& g : kGoals) {
    out[g.door] = {{"us", g.us}, {"met", g.met_by(best)}};
  }
  return out;
}

// "Goals: from bytes 400 us, met; from bits 200 us, missed."
std::string goals_text(const Times& best) {
  std::string out;
  for (const Goal& g : kGoals) {
    out += fmt::format("{} from {} {:.0f} us, {}", out.empty() ? "Goals:" : ";",
                       g.door, g.us, g.met_by(best) ? "met" : "missed");
  }
  return out + ".";
}

Result<Times> measure(const kernels::BlockVariant& v, const Drawn& d,
                      double seconds, BlockLists& lists) {
  const auto time_of = [&](const BlockMask& mask) -> Result<double> {
    auto made = kernels::make_block_lists(mask, kMaxTiles, v, lists);
    if (!made) return made.error();
    const double us = best_us(
        [&] {
          // The same call succeeded before, so its result is ignored.
          (void)kernels::make_block_lists(mask, kMaxTiles, v, lists).ok();
        },
        seconds);
    if (!is_right(d, lists)) {
      return invalid("bench",
                     "lists must be those of the cells, found others "
                     "for {}",
                     v.name);
    }
    return us;
  };
  auto bytes = time_of(d.by_bytes());
  if (!bytes) return bytes.error();
  auto bits = time_of(d.by_bits());
  if (!bits) return bits.error();
  return Times{*bytes, *bits};
}

struct Sizes {
  int64_t heads = 0, blocks = 0;
  double active = 0, seconds = 0;
};

Result<Sizes> sizes_of(const Options& o) {
  auto heads = request::parse_int(o.heads.value_or("12"), "--heads", 1, 1024);
  if (!heads) return heads.error();
  auto blocks =
      request::parse_int(o.blocks.value_or("512"), "--blocks", 1, 8192);
  if (!blocks) return blocks.error();
  auto active = request::parse_positive(o.active.value_or("0.15"), "--active");
  if (!active) return active.error();
  auto seconds =
      request::parse_positive(o.seconds.value_or("0.5"), "--seconds");
  if (!seconds) return seconds.error();
  return Sizes{*heads, *blocks, *active, *seconds};
}

struct Ran {
  double read_us = 0;
  Times best;  // of the last variant
  json rows = json::array();
  std::optional<BlocksPeer> peer;
};

void print_head(const Sizes& s, double read_us) {
  fmt::print(
      "{} heads of {} x {} blocks, {} of them active, one thread of "
      "{}; us:\n{:<12} {:>10} {:>10}\n{:<12} {:>10.1f}\n",
      s.heads, s.blocks, s.blocks, s.active, receipt::cpu_model(), "", "bytes",
      "bits", "reading", read_us);
}

Result<Ran> measure_all(const Options& o, const Sizes& sizes) {
  const Drawn drawn = draw(sizes.heads, sizes.blocks, sizes.active);
  Ran out;
  const void* found = nullptr;  // no byte is 2, so memchr reads all bytes
  out.read_us = best_us(
      [&] { found = std::memchr(drawn.bytes.data(), 2, drawn.bytes.size()); },
      sizes.seconds);
  if (found != nullptr)
    return invalid("bench", "a byte must be 0 or 1, found 2");
  if (!o.json) print_head(sizes, out.read_us);
  BlockLists lists;
  for (const kernels::BlockVariant& v : kernels::block_variants()) {
    if (!kernels::runs_here(v)) continue;
    auto times = measure(v, drawn, sizes.seconds, lists);
    if (!times) return times.error();
    out.best = *times;
    out.rows.push_back({{"variant", v.name},
                        {"bytes_us", times->bytes_us},
                        {"bits_us", times->bits_us}});
    if (!o.json) {
      fmt::print("{:<12} {:>10.1f} {:>10.1f}\n", v.name, times->bytes_us,
                 times->bits_us);
    }
  }
  if (!o.peers) return out;
  out.peer = run_blocks_peer(*o.peers, drawn.by_bytes(), lists, sizes.seconds);
  if (o.json) return out;
  if (out.peer->why.empty()) {
    fmt::print("{:<12} {:>10.1f}\n", "PyTorch", out.peer->us);
  } else {
    fmt::print("{:<12} {:>10}  {}\n", "PyTorch", "-", out.peer->why);
  }
  return out;
}

Result<int> run(const Options& o) {
  auto sizes = sizes_of(o);
  if (!sizes) return sizes.error();
  const auto own = cli::first_given({{"--heads", o.heads.has_value()},
                                     {"--blocks", o.blocks.has_value()},
                                     {"--active", o.active.has_value()}});
  if (o.results && !own.empty()) {
    return invalid("cli",
                   "--results is of the sizes that have goals, found {} beside "
                   "it",
                   own);
  }
  if (auto e = check_result(o.out); !e) return e.error();
  const cli::OtherCores others;
  auto ran = measure_all(o, *sizes);
  if (!ran) return ran.error();
  const double busy = others.so_far();
  json out = {{"bench", "blocks"},           {"version", kVersion},
              {"cpu", receipt::cpu_model()}, {"heads", sizes->heads},
              {"blocks", sizes->blocks},     {"active", sizes->active},
              {"busy_cores", busy},          {"read_us", ran->read_us},
              {"variants", ran->rows}};
  if (ran->peer) out["peer"] = to_json(*ran->peer);
  const bool has_goals = own.empty();
  if (has_goals) out["goals"] = goals_json(ran->best);
  if (o.json) fmt::print("{}\n", out.dump());
  if (!o.json && has_goals) fmt::print("{}\n", goals_text(ran->best));
  if (!o.json && busy > kQuietCores) {
    fmt::print("Others kept {:.1f} cores busy: provisional.\n", busy);
  }
  if (auto e = save_result(o.out, o.results, out, o.json); !e) return e.error();
  return cli::kOk;
}

}  // namespace

cli::Command blocks_command() {
  auto o = std::make_shared<Options>();
  cli::Command command{
      "blocks", "A block mask to both worklists, from bytes and from bits"};
  cli::add_flags(
      command,
      {{"--heads", &o->heads, "N", "Heads, a list each [12]"},
       {"--blocks", &o->blocks, "N", "Rows and columns of each list [512]"},
       {"--active", &o->active, "X", "Chance that a block is active [0.15]"},
       {"--seconds", &o->seconds, "S",
        "Seconds for each variant and door [0.5]"},
       {"--peers", &o->peers, "FOLDER",
        "PyTorch's planner on the same mask: the script of this "
        "folder (bench/peers) in the interpreter that "
        "TESSERA_TORCH_PYTHON names"},
       {"--json", &o->json, "", "One JSON object on stdout"},
       {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
       {"--results", &o->results, "FOLDER",
        "Write the JSON as FOLDER/<this CPU>/blocks.json too "
        "(bench/results)"}});
  command.footer =
      "A row a variant of src/kernels/blocks, the best of many runs into "
      "memory\n"
      "that is reused; `reading` looks at every byte once. PyTorch's lists "
      "are\n"
      "held to ours, all of them.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
