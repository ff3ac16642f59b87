// tessera/audit.h: what a program for many devices says of itself: how every
// array that goes in or out lies on the mesh, and what its devices send.
//
//   auto audit = audit_program(text);  // StableHLO as text, ours or another's
//   audit->arguments[0].sharding;      // [{"data"}, {}]
//
// A program that leaves a choice to the compiler is refused by the name of the
// array and its line: nothing is ever spread by propagation. docs/shard.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera {

struct AuditMesh {
  std::string name;
  std::vector<MeshAxis> axes;
  int64_t devices = 1;
  std::string order;  // device numbers where they are not 0, 1, 2, ...
};

struct AuditArray {
  std::string name;            // "q", "result 0", "in 2"
  std::string dtype;           // "bf16"
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> part;   // of one device
  std::string sharding;        // in one spelling, whoever wrote it
  int64_t part_bytes = 0;
};

// Where arrays change hands within the program.
struct AuditBoundary {
  std::string op;  // "sdy.manual_computation"
  int64_t line = 0;
  std::vector<AuditArray> arrays;
};

struct AuditCollective {
  std::string op;  // "all_gather"
  int64_t line = 0;
  std::string dtype;           // of its first operand
  std::vector<int64_t> shape;  // on one device
  // Devices that talk to each other; a permutation has one group.
  int64_t groups = 0, group_devices = 0;
  int64_t operand_bytes = 0;  // on one device
  // Over all devices, where each sends once what it must. Nothing where sizes
  // are known at run time only.
  std::optional<int64_t> sent_bytes;
  // In a loop, or in a function that is called: it runs as often as these do,
  // and counts once here.
  bool repeats = false;
};

struct Audit {
  int64_t partitions = 1;
  std::vector<AuditMesh> meshes;
  std::vector<AuditArray> arguments, results;  // of the function main
  std::vector<AuditBoundary> boundaries;
  std::vector<AuditCollective> collectives;
  // Of meshes, and of names, dtypes, shapes and shardings of arguments and
  // results, in their order: 32 hex digits.
  std::string fingerprint;
};

Result<Audit> audit_program(std::string_view text);

}  // namespace tessera
