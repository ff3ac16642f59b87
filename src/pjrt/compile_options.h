// pjrt/compile_options.h: the part of XLA's CompileOptionsProto that we set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::pjrt {

struct CompileOptions {
  int64_t replicas = 1;
  int64_t partitions = 1;
  bool use_spmd = false;
  bool use_shardy = false;  // for a program with `sdy` operations
  // The ids of the devices that a client's program is for, one per partition.
  // Empty: the client's first.
  std::vector<int64_t> devices = {};
  // Selects the plain scheduler of XLA's CPU compiler over the one that makes
  // ops run concurrently. With the latter, a plugin computed wrong sums on
  // several devices once in a while (docs/train.md).
  bool in_order = false;
};

// The bytes in protobuf's wire format; a field at its default is left out.
std::string compile_options_bytes(const CompileOptions& options);

}  // namespace tessera::pjrt
