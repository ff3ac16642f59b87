// schedule/hlo.cc: reads the entry of a scheduled HLO module's text.
#include "schedule/hlo.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::schedule {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 48;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

// Finds the opcode: a word between a space and an opening bracket. Layouts have
// brackets too, but no space before them.
std::optional<std::pair<size_t, size_t>> find_opcode(std::string_view text) {
  for (size_t open = text.find('('); open != std::string_view::npos;
       open = text.find('(', open + 1)) {
    size_t begin = open;
    while (begin > 0 && is_word(text[begin - 1])) --begin;
    if (begin < open && begin > 0 && text[begin - 1] == ' ') {
      return std::pair(begin, open);
    }
  }
  return {};
}

int64_t type_bytes(std::string_view type) {
  for (const auto& [name, bytes] : {std::pair("pred", 1),
                                    {"s8", 1},
                                    {"u8", 1},
                                    {"bf16", 2},
                                    {"f16", 2},
                                    {"s16", 2},
                                    {"u16", 2},
                                    {"f32", 4},
                                    {"s32", 4},
                                    {"u32", 4},
                                    {"f64", 8},
                                    {"s64", 8},
                                    {"u64", 8}}) {
    if (type == name) return bytes;
  }
  return 0;
}

// An array such as "f32[32,8]{1,0:T(8,128)S(1)}": its bytes, and whether it is
// in HBM.
struct Array {
  int64_t bytes = 0;
  bool hbm = true;
};
Array array_of(std::string_view shape) {
  Array out;
  const size_t open = shape.find('[');
  const size_t close = shape.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos ||
      close < open) {
    return out;
  }
  out.hbm = shape.find("S(", close) == std::string_view::npos;
  out.bytes = type_bytes(shape.substr(0, open));
  std::string_view dims = shape.substr(open + 1, close - open - 1);
  while (!dims.empty()) {
    int64_t n = 0;
    const auto [end, error] =
        std::from_chars(dims.data(), dims.data() + dims.size(), n);
    if (error != std::errc() || n < 0) return {};
    if (n > 0 && out.bytes > kMaxBytes / n) return {};
    out.bytes *= n;
    dims.remove_prefix(static_cast<size_t>(end - dims.data()));
    if (dims.starts_with(',')) dims.remove_prefix(1);
  }
  return out;
}

// HBM bytes of a copy-start with the result "(to, from, ...)". Both arrays have
// the same size.
int64_t copied_bytes(std::string_view tuple) {
  if (!tuple.starts_with('(')) return 0;
  tuple.remove_prefix(1);
  // A comma inside brackets is followed by a number.
  const size_t comma = tuple.find(", ");
  if (comma == std::string_view::npos) return 0;
  const Array to = array_of(tuple.substr(0, comma));
  tuple.remove_prefix(comma + 2);
  const Array from = array_of(tuple.substr(0, tuple.find(", ")));
  return to.bytes * (int64_t{to.hbm} + int64_t{from.hbm});
}

// The names in "%copy.14, %fusion), metadata=...", up to the bracket.
std::vector<std::string> operands_of(std::string_view text) {
  std::vector<std::string> out;
  text = text.substr(0, text.find(')'));
  for (size_t at = text.find('%'); at != std::string_view::npos;
       at = text.find('%', at + 1)) {
    // No name contains another, so the total length is bounded by the line's.
    const size_t end = std::min(text.find_first_of(", %", at + 1), text.size());
    out.emplace_back(text.substr(at + 1, end - at - 1));
  }
  return out;
}

// The name after `word` in "..., body=%loop.1, ...".
std::string named_by(std::string_view word, std::string_view attributes) {
  const size_t at = attributes.find(word);
  if (at == std::string_view::npos) return {};
  attributes.remove_prefix(at + word.size());
  return std::string(attributes.substr(0, attributes.find_first_of(", ")));
}

// What calls need of the shape of an array they read. Cached, because a shape
// may be long and read often.
struct Shape {
  std::string digest;
  int64_t bytes = 0;
};

// Reads calls up to the bracket that ends the computation, and removes what was
// read.
std::vector<HloCall> take_calls(std::string_view& hlo) {
  std::vector<HloCall> out;
  std::unordered_map<std::string, Shape> shapes;
  hlo.remove_prefix(std::min(hlo.find('\n'), hlo.size()));
  while (!hlo.empty()) {
    hlo.remove_prefix(1);
    const size_t end = std::min(hlo.find('\n'), hlo.size());
    std::string_view line = hlo.substr(0, end);
    hlo.remove_prefix(end);
    if (line == "}") break;
    const size_t name = line.find('%');
    const size_t equals = line.find(" = ");
    if (name == std::string_view::npos || equals == std::string_view::npos ||
        equals < name) {
      continue;
    }
    HloCall call;
    call.name = line.substr(name + 1, equals - name - 1);
    line.remove_prefix(equals + 2);  // the space before the shape stays
    const auto opcode = find_opcode(line);
    if (!opcode) continue;
    const std::string shape(line.substr(1, opcode->first - 1));
    call.opcode = line.substr(opcode->first, opcode->second - opcode->first);
    const std::string_view rest = line.substr(opcode->second + 1);
    call.operands = operands_of(rest);
    Shape own = {digest_of(shape), array_of(shape).bytes};
    call.signature = call.opcode + " " + own.digest;
    for (const std::string& operand : call.operands) {
      call.signature += " " + shapes[operand].digest;
    }
    if (call.opcode == "copy-start") call.bytes = copied_bytes(shape);
    if (call.opcode == "while") call.body = named_by(", body=%", rest);
    if (call.opcode == "async-start") call.body = named_by(", calls=%", rest);
    if (!collective_of(call.opcode).empty() || call.opcode == "async-start") {
      for (const std::string& operand : call.operands) {
        call.sent.push_back(shapes[operand].bytes);
      }
    }
    shapes.emplace(call.name, std::move(own));
    out.push_back(std::move(call));
  }
  return out;
}

}  // namespace

std::string_view collective_of(std::string_view opcode) {
  constexpr std::string_view kStart = "-start";
  if (opcode.ends_with(kStart)) opcode.remove_suffix(kStart.size());
  for (const std::string_view known :
       {"collective-permute", "all-gather", "all-to-all", "ragged-all-to-all",
        "reduce-scatter", "all-reduce", "collective-broadcast"}) {
    if (opcode == known) return known;
  }
  return {};
}

Result<std::vector<HloCall>> parse_calls(std::string_view hlo) {
  const size_t at = hlo.find("\nENTRY ");
  if (at == std::string_view::npos) {
    return invalid("schedule", "a dump of HLO must have an entry, found none");
  }
  hlo.remove_prefix(at + 1);
  return take_calls(hlo);
}

HloBodies parse_bodies(std::string_view hlo) {
  HloBodies out;
  for (size_t at = hlo.find("\n%"); at != std::string_view::npos;
       at = hlo.find("\n%")) {
    hlo.remove_prefix(at + 2);
    std::string name(hlo.substr(0, hlo.find_first_of(" (\n")));
    out.emplace(std::move(name), take_calls(hlo));
  }
  return out;
}

}  // namespace tessera::schedule
