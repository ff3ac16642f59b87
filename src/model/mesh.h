// model/mesh.h: a step on several devices: which rows each device has, how
// arrays lie, and how sums over devices come out the same on all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/parameter_parts.h"
#include "model/program.h"
#include "tessera/shard.h"
#include "tessera/train.h"

namespace tessera::model {

// The axes that divide the rows of a step, and the tokens of a row. Heads are
// divided along kHeadAxis.
inline constexpr std::string_view kDataAxis = "data", kSeqAxis = "seq";

// Checks the axes' names, and that they divide rows, tokens and heads.
Result<void> check_mesh(const TrainOptions& options);

// A device's share of a step: for each dimension, which of how many parts.
struct Portion {
  int64_t row_part = 0, row_parts = 1;
  int64_t token_part = 0, token_parts = 1;
  int64_t head_part = 0, head_parts = 1;
};
// By the device's number; the last axis of the mesh varies fastest.
Portion portion_of(const Mesh& mesh, int64_t device);
// The first of the devices that have the same rows and tokens as this device.
int64_t first_of_heads(const Mesh& mesh, int64_t device);
// Groups of devices, by number, that differ along these axes alone.
Writer::Groups groups_along(const Mesh& mesh,
                            const std::vector<std::string_view>& axes);

// Sets in each attention place the groups of devices that share its rows.
void share_rows(StepShape& s);

// The model as one device sees it: its heads and its part of the MLP.
ModelConfig own_model(const ModelConfig& model, const Mesh& mesh);
// Groups of devices with the same rows and different heads; empty if heads are
// not divided.
Writer::Groups partners_of(const Mesh& mesh);

// The device's portion of an array [rows, tokens], row by row.
std::vector<int32_t> part_of(const std::vector<int32_t>& all, int64_t rows,
                             const Portion& portion);

// The inverse of part_of(), for an array [rows, tokens, ...].
void put_part(const std::vector<float>& part, int64_t rows,
              const Portion& portion, std::vector<float>& all);

// The facts of a device's part of the batch. Where tokens are divided, queries
// have ids and offsets apart from those of keys, which `kept` holds.
struct QueryFacts {
  std::vector<int32_t> ids, offsets;
};
Facts facts_of(const Facts& all, const Portion& portion, QueryFacts& kept);

// How an array of a batch lies on the mesh: divided along rows, or rows and
// tokens; or own: each device has its own array, joined along dimension 0.
enum class Lies : uint8_t { divided, own };
Axes axes_of(const Mesh& mesh, const xla::Type& type, Lies lies);

// Arguments and results of a program; placed only on several devices.
struct ProgramEnds {
  using Placed = std::map<size_t, Axes>;  // by number
  std::vector<xla::Argument> arguments;
  Values results;
  // Axes of arrays that are not whole on each device, without the batch's.
  Placed arguments_placed, results_placed;
};
std::string write_module(const Writer& w, std::string_view name,
                         const StepShape& s, const ProgramEnds& ends,
                         const Writer::Reuse& reuse = {});

// A fingerprint of how all arrays of a program for several devices lie; an
// error if the program leaves a placement open. "" for one device.
Result<std::string> program_specs(const StepShape& s, std::string_view text);

// Cuts `all` along the dimension into one part per device of a group, and gives
// each device the sum of its part over the group, added in the group's order.
Value sum_parts(Writer& w, const Value& all, int64_t along,
                const Writer::Groups& groups);

// Sums over the devices of each group. One device adds up an element in the
// group's order and sends the sum to all, so that all have the same bits. At
// most `most` elements, or one array, travel at a time. No groups: no change.
Values sum_over_devices(Writer& w, const Writer::Groups& groups,
                        const Values& terms, int64_t most = int64_t{1} << 22);

}  // namespace tessera::model
