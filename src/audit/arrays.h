// audit/arrays.h: types and shardings in the syntax of a program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/tokens.h"
#include "tessera/shard.h"

namespace tessera::audit {

using Dims = std::vector<int64_t>;

// Nothing if the product overflows.
std::optional<int64_t> product(int64_t a, int64_t b);

struct Type {
  std::string dtype;
  Dims dims;
  int64_t bits = 0;  // of an element

  bool operator==(const Type&) const = default;
};
std::string to_string(const Type& type);
Result<int64_t> bytes_of(const Type& type, uint32_t line);

// Moves `at` past the type. Accepts tensors of static sizes, and tokens.
Result<Type> read_type(const Tokens& t, uint32_t& at);
// `(type, type) -> type`, or one list for both.
struct Signature {
  std::vector<Type> operands, results;
};
Result<Signature> read_signature(const Tokens& t, uint32_t at);
// An error that names the wanted text, the token found and its line.
Error unread(const Token& found, std::string_view wanted);

// An axis or, if `size` is not 0, a part of an axis: "x":(2)4.
struct AxisUse {
  std::string name;
  int64_t before = 1, size = 0;
};
struct Sharding {
  std::string mesh;  // name as written, with its @
  std::vector<std::vector<AxisUse>> dims;
  // `replicated` means the same as not naming the axis; a sum over the
  // `unreduced` axes is still pending.
  std::vector<AxisUse> replicated, unreduced;
  std::optional<size_t> open;  // first dimension left to the compiler
  uint32_t line = 0;
};

// `<["a"=2, "b"=4]>` at its bracket.
Result<AuditMesh> read_mesh(const Tokens& t, uint32_t at,
                            std::string_view name);
// `<@mesh, [{"a"}, {}]>` at its bracket.
Result<Sharding> read_sharding(const Tokens& t, uint32_t at);
// `{"a", "b"}` at its bracket.
Result<std::vector<AxisUse>> read_axes(const Tokens& t, uint32_t at);

std::string text_of(const Sharding& s);      // `[{"a"}, {}]`: one spelling
std::string text_of(const AuditMesh& mesh);  // a=2,b=4

}  // namespace tessera::audit
