// tests/sample_receipts.h: made-up receipts, for tests of their form.
#pragma once

#include <string>

#include "receipt/receipt.h"

namespace tessera::testing {

// A receipt as `tessera bridge` writes it; `digits` is used for every digest.
inline receipt::Receipt sample_operation(const std::string& digits) {
  receipt::Receipt r;
  r.kind = receipt::Kind::operation;
  r.version = "0.1.0";
  r.lane = {"jax_bridge", "command", "jax_bridge", "jax_bridge", "tpu/jax",
            "executed",   {}};
  r.operation = "rms_norm";
  r.name = "norm";
  r.plugin = receipt::Receipt::Plugin{"a.so", "0.81", "cpu", "v", "cpu 0", 1};
  r.artifact = {"norm.mlirbc", "norm.json", digits, 900, "0.7.2", 9, {"cpu"}};
  r.inputs = {7, "", {{"x", digits}}, {"x"}, {{"x", "F32", {2, 3}}}};
  r.outputs = {{"y", "F32", {2, 3}}};
  r.key = {digits, true, "all", "{\"artifact\":\"" + digits + "\"}"};
  r.compiles = 1;
  r.run_ms = 2;
  r.output_digest = digits;
  return r;
}

}  // namespace tessera::testing
