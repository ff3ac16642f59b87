// tests/mosaic_compiler.h: a fixture for tests that compile classes of kernels
// with libtpu. They are skipped without libtpu.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "pjrt/compile.h"
#include "tessera/mosaic.h"

namespace tessera::testing {

struct KernelClass {
  const char* mask;
  int64_t tokens;
  Tile tile;
  MosaicOptions options;
  int64_t heads, kv_heads;
  bool backward = false, dlse = false;
  double softcap = 0;
  int64_t dim = 128, v_dim = 128;
  bool sinks = false;
  Dtype dtype = Dtype::bf16;
  bool telemetry = false;
  std::string_view target = "v6e:1x1";
};

class MosaicCompiler : public ::testing::Test {
 protected:
  static Request request_of(const char* mask, int64_t tokens, Tile tile);
  static AttentionShape shape_of(int64_t heads, int64_t kv_heads);  // dims 128
  static AttentionCall call_of(const KernelClass& c);

  void SetUp() override;
  void take_target(std::string_view target);
  Result<pjrt::Executable> compile(const std::string& program) {
    return pjrt::compile(*topology_, program);
  }
  // Compiles the class if it is in this run's share of cases (TESSERA_CASES).
  void check(const KernelClass& c);
  void compile_class(const KernelClass& c);

 private:
  std::optional<pjrt::Topology> topology_;
  size_t checks_ = 0;
};

}  // namespace tessera::testing
