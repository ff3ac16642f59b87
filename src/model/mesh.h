// model/mesh.h: a step on several devices: whose rows are whose, how arrays
// lie, and how what each found becomes the same sums on all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/program.h"
#include "tessera/shard.h"
#include "tessera/train.h"

namespace tessera::model {

// The axis that rows of a step are divided along.
inline constexpr std::string_view kDataAxis = "data";

// Its axes, and that it divides the rows.
Result<void> check_mesh(const TrainOptions& options);

// The facts of a device's rows, of those of all.
Facts facts_of(const Facts& all, int64_t device, int64_t devices);

// A program for the devices of the step: the arguments of its batch, which are
// the last, and results of these numbers are divided along dimension 0; all
// else is whole on each device. On one device nothing is said of it.
struct ProgramEnds {
  std::vector<xla::Argument> arguments;
  Values results;
  std::vector<size_t> divided;  // results
};
std::string write_module(const Writer& w, std::string_view name,
                         const StepShape& s, const ProgramEnds& ends,
                         const Writer::Reuse& reuse = {});

// How all arrays of a program for several devices lie, as a fingerprint; one
// that leaves anything open is an error. "" for one device.
Result<std::string> program_specs(const StepShape& s, std::string_view text);

// Over all devices, each element in the order of the devices: it is added up
// by one of them, which sends it to all, so that all have the same bits.
// `most` elements or an array travel at a time.
Values sum_over_devices(Writer& w, int64_t devices, const Values& terms,
                        int64_t most = int64_t{1} << 22);

}  // namespace tessera::model
