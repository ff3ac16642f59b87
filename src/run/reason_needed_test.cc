// run/reason_needed_test.cc: tests that reason_needed() says beforehand what
// the lane refuses without a reason.
#include "run/reason_needed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lanes/mosaic/kernel.h"
#include "lanes/xla/planned.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"

namespace tessera::run {
namespace {

constexpr const char* kReason = "a test of few tokens";
// Whole tiles and parts of one, a decoded token, a chunk of a long prompt.
constexpr int64_t kQueries[] = {1, 5, 64, 100, 200, 300, 4096};
constexpr int64_t kKeys[] = {300, 8192};

Request request_of(int64_t q_len, int64_t kv_len, const Tile& tile,
                   const Tile& logical_block) {
  Request out;
  out.masks = {*parse_mask("full")};
  out.q_len = q_len;
  out.kv_len = kv_len;
  out.tile = tile;
  out.logical_block = logical_block;
  return out;
}

std::string needed(LaneId lane, XlaMethod method, const Request& request,
                   const Chip& chip) {
  const Machine machine = {
      "A CPU", 8,    {},
      true,    true, {{"libtpu", "tpu", 1, std::string(chip.name)}}};
  Choice choice;
  choice.lane = lane;
  choice.plugin = "libtpu";
  choice.method = method;
  return reason_needed(choice, request, machine).value_or("");
}

TEST(ReasonNeeded, IsWhatTheXlaLaneRefuses) {
  int asked = 0, free = 0;
  const auto judge = [&](const Request& request, const PlanContract& contract,
                         XlaMethod method, Dtype dtype, const Chip& chip) {
    AttentionCall call;
    call.shape = {8, 8, 128, 128, {}, 0};
    call.dtype = dtype;
    // The lane knows a TPU by the kind of its device.
    xla::MadeFor made_for = {std::string(chip.name), std::string(chip.kind)};
    const auto plan = [&](bool backward) {
      return xla::plan_call(request, {}, contract, call, backward, method,
                            made_for);
    };
    const std::string due = needed(LaneId::xla, method, request, chip);
    for (const bool backward : {false, true}) {
      const auto planned = plan(backward);
      EXPECT_EQ(due, planned ? "" : planned.error().message);
    }
    ++(due.empty() ? free : asked);
    // With a reason the lane accepts the call if one is needed and refuses it
    // if not. The dense program has no tiles; `run` refuses a reason for it.
    made_for.lowering_reason = kReason;
    EXPECT_EQ(plan(false).ok(), !due.empty() || method == XlaMethod::dense);
  };
  const std::pair<Tile, Tile> kTiles[] = {
      {{64, 64}, {}},   {{64, 256}, {}},  {{128, 128}, {}},
      {{256, 256}, {}}, {{512, 256}, {}}, {{256, 256}, {64, 64}}};
  for (const auto& [tile, logical_block] : kTiles) {
    for (const int64_t q_len : kQueries) {
      for (const int64_t kv_len : kKeys) {
        const Request request =
            request_of(q_len, std::max(q_len, kv_len), tile, logical_block);
        const auto contract = make_ceiling_contract(request, {});
        ASSERT_TRUE(contract.ok()) << contract.error().message;
        for (const XlaMethod method :
             {XlaMethod::worklist, XlaMethod::chunked, XlaMethod::dense}) {
          for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
            for (const Chip& chip : chips()) {
              SCOPED_TRACE(std::string(chip.name) + ", " +
                           std::string(to_string(method)) + ", " +
                           std::to_string(q_len) + " x " +
                           std::to_string(kv_len) + " in tiles of " +
                           std::to_string(tile.q) + " x " +
                           std::to_string(tile.kv));
              judge(request, *contract, method, dtype, chip);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(asked, 500);
  EXPECT_GT(free, 500);
}

TEST(ReasonNeeded, IsWhatTheMosaicLaneRefuses) {
  int asked = 0, free = 0;
  const std::pair<Tile, Tile> kTiles[] = {{{128, 128}, {}},
                                          {{128, 256}, {}},
                                          {{256, 256}, {}},
                                          {{256, 256}, {64, 64}}};
  for (const auto& [tile, logical_block] : kTiles) {
    for (const int64_t q_len : kQueries) {
      const Request request = request_of(q_len, 8192, tile, logical_block);
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        for (const Chip& chip : chips()) {
          AttentionCall call;
          call.shape = {8, 8, 128, 128, {}, 0};
          call.dtype = dtype;
          const auto planned = mosaic::plan_kernel(
              request, {}, call, std::string(chip.name), MosaicOptions());
          const std::string why = planned ? "" : planned.error().message;
          // The lane may also refuse for its memory, which reason_needed() does
          // not check.
          const bool reason = why.find("with a lowering reason") != why.npos;
          EXPECT_EQ(needed(LaneId::mosaic, {}, request, chip),
                    reason ? why : "")
              << chip.name;
          ++(reason ? asked : free);
        }
      }
    }
  }
  EXPECT_GT(asked, 50);
  EXPECT_GT(free, 50);
}

}  // namespace
}  // namespace tessera::run
