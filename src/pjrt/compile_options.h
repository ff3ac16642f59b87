// pjrt/compile_options.h: XLA's CompileOptionsProto, as far as we set it.
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
  // The devices that a client's program is for, by their ids: one for each
  // partition. None: the client's first.
  std::vector<int64_t> devices = {};
  // Of XLA's CPU compiler: its plain scheduler, not the one that makes room for
  // ops at a time. With that one a plugin gave several devices wrong sums once
  // in a while (docs/train.md).
  bool in_order = false;
};

// The bytes in protobuf's wire format; a field at its default is left out.
std::string compile_options_bytes(const CompileOptions& options);

}  // namespace tessera::pjrt
