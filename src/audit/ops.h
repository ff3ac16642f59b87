// audit/ops.h: the operations of an MLIR text, in both forms: `%0 =
// stablehlo.add %a, %b : ...` and `%0 = "stablehlo.add"(%a, %b) ...`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/tokens.h"

namespace tessera::audit {

inline constexpr uint32_t kNone = UINT32_MAX;

struct Op {
  std::string_view name;  // without quotes
  bool quoted = false;
  bool repeats = false;
  uint32_t line = 0;
  uint32_t head = 0;        // the token of its name
  uint32_t end = 0;         // one past its last token
  uint32_t parent = kNone;  // the operation around it
};

struct Module {
  Tokens tokens;
  std::vector<Op> ops;  // an operation comes before those in its regions
  // `#name = ...` at the top level: the first token of the value.
  std::map<std::string_view, uint32_t> aliases;
};

Result<Module> read_module(std::string_view text);

// The token after `key =` among the operation's own attributes, not those of
// operations inside it.
std::optional<uint32_t> find_key(const Module& m, const Op& op,
                                 std::string_view key);
// The last `:` of the operation itself; its types follow.
std::optional<uint32_t> find_types(const Module& m, const Op& op);
// The target of a custom call, in either form.
std::string call_target(const Module& m, const Op& op);

}  // namespace tessera::audit
