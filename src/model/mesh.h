// model/mesh.h: a step on several devices: whose rows are whose, how arrays
// lie, and how what each found becomes the same sums on all.
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

// The axes that rows of a step, and their tokens, are divided along; heads are
// along kHeadAxis.
inline constexpr std::string_view kDataAxis = "data", kSeqAxis = "seq";

// Its axes, and that they divide rows, tokens and heads.
Result<void> check_mesh(const TrainOptions& options);

// What a device has of a step: the n-th of so many parts.
struct Portion {
  int64_t row_part = 0, row_parts = 1;
  int64_t token_part = 0, token_parts = 1;
  int64_t head_part = 0, head_parts = 1;
};
// Of a device by its number; of a mesh the last axis is the fastest.
Portion portion_of(const Mesh& mesh, int64_t device);
// The first of the devices that have its rows and tokens.
int64_t first_of_heads(const Mesh& mesh, int64_t device);
// Devices that differ along these axes alone, by their numbers.
Writer::Groups groups_along(const Mesh& mesh,
                            const std::vector<std::string_view>& axes);

// Says to each place of attention who shares its rows.
void share_rows(StepShape& s);

// A device's heads and its part of the MLP: a model of its own.
ModelConfig own_model(const ModelConfig& model, const Mesh& mesh);
// Of that who has the others; none where heads are not divided.
Writer::Groups partners_of(const Mesh& mesh);

// A part of [rows, tokens], row by row.
std::vector<int32_t> part_of(const std::vector<int32_t>& all, int64_t rows,
                             const Portion& portion);

// The way back: a device's numbers of [rows, tokens, ...] to where they belong.
void put_part(const std::vector<float>& part, int64_t rows,
              const Portion& portion, std::vector<float>& all);

// The facts of a device's part of the batch, of those of all rows. Where tokens
// are divided its queries have ids and positions apart from keys, in `kept`.
struct QueryFacts {
  std::vector<int32_t> ids, offsets;
};
Facts facts_of(const Facts& all, const Portion& portion, QueryFacts& kept);

// How an array of a batch lies on the mesh: rows, or rows and tokens, divided;
// or each device has its own, all of them along dimension 0.
enum class Lies : uint8_t { divided, own };
Axes axes_of(const Mesh& mesh, const xla::Type& type, Lies lies);

// A program for the devices of the step. On one device nothing is said of it.
struct ProgramEnds {
  using Placed = std::map<size_t, Axes>;  // by number
  std::vector<xla::Argument> arguments;
  Values results;
  // Those that are not whole on each device; of arguments, before the batch.
  Placed arguments_placed, results_placed;
};
std::string write_module(const Writer& w, std::string_view name,
                         const StepShape& s, const ProgramEnds& ends,
                         const Writer::Reuse& reuse = {});

// How all arrays of a program for several devices lie, as a fingerprint; one
// that leaves anything open is an error. "" for one device.
Result<std::string> program_specs(const StepShape& s, std::string_view text);

// Of each of a group's parts along the dimension the sum over the group, in its
// order, for the one whose part it is.
Value sum_parts(Writer& w, const Value& all, int64_t along,
                const Writer::Groups& groups);

// Over the devices of each group, each element in their order: it is added up
// by one of them, which sends it to all, so that all have the same bits.
// `most` elements or an array travel at a time. No groups: each is alone.
Values sum_over_devices(Writer& w, const Writer::Groups& groups,
                        const Values& terms, int64_t most = int64_t{1} << 22);

}  // namespace tessera::model
