// tests/fuzz/mask_fuzz.cc: any text is either a mask whose canonical text is
// the same mask, or gives an error with its position.
#include "tessera/mask.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Mask> mask = parse_mask(text);
  if (!mask) {
    must(mask.error().message.starts_with("[mask] "));
    must(mask.error().message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  const Result<Mask> again = parse_mask(to_string(*mask));
  must(again.ok());
  // Only the expressions are compared: a name that simplification drops remains
  // in `names`.
  must(again->expr == mask->expr);
  const Result<Expr> expr = parse_expr(text);
  must(expr.ok());
  must(*make_mask(*parse_expr(to_string(*expr))) == *mask);
  return 0;
}
