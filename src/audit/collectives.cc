// audit/collectives.cc: which devices communicate, and how many bytes.
#include "audit/collectives.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

constexpr std::string_view kCollectives[] = {
    "all_gather",     "all_reduce",         "all_to_all",
    "reduce_scatter", "collective_permute", "collective_broadcast"};
constexpr std::string_view kCustomCall = "stablehlo.custom_call";
constexpr std::string_view kRagged = "ragged_all_to_all";

// "all_gather" of "stablehlo.all_gather"; "" of another operation.
std::string_view collective_of(std::string_view op_name) {
  constexpr std::string_view kDialect = "stablehlo.";
  if (!op_name.starts_with(kDialect)) return "";
  const std::string_view name = op_name.substr(kDialect.size());
  const auto* const at =
      std::find(std::begin(kCollectives), std::end(kCollectives), name);
  return at == std::end(kCollectives) ? "" : *at;
}

struct Groups {
  Dims dims;     // rows and columns
  Dims devices;  // devices, row by row
  uint32_t line = 0;
};

Error unread_groups(const Token& t) {
  return invalid("audit",
                 "devices of a collective must be listed as dense<[[0, 1]]> : "
                 "tensor<1x2xi64>, found {} on line {}",
                 in_quotes(t.text), t.line);
}

// Little-endian bytes, MLIR's form of long lists: "0x0000...".
bool add_hex(std::string_view text, Dims& out) {
  constexpr size_t kDigits = 16;
  if (!text.starts_with("0x") || (text.size() - 2) % kDigits != 0) return false;
  for (size_t at = 2; at < text.size(); at += kDigits) {
    uint64_t n = 0;
    for (size_t byte = kDigits / 2; byte-- > 0;) {
      const char* const begin = text.data() + at + 2 * byte;
      unsigned value = 0;
      const auto [end, error] = std::from_chars(begin, begin + 2, value, 16);
      if (error != std::errc{} || end != begin + 2) return false;
      n = n << 8 | value;
    }
    out.push_back(static_cast<int64_t>(n));
  }
  return true;
}

// `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`.
Result<Groups> read_groups(const Tokens& t, uint32_t at) {
  Groups out;
  out.line = t[at].line;
  if (!t[at].is_word("dense") || !t[at + 1].is('<'))
    return unread_groups(t[at]);
  const uint32_t close = t[at + 1].match;
  for (uint32_t i = at + 2; i < close; ++i) {
    if (t[i].kind == Kind::text) {
      if (!add_hex(t[i].text, out.devices)) return unread_groups(t[i]);
    } else if (t[i].kind == Kind::word) {
      int64_t n = 0;
      const char* const end = t[i].text.data() + t[i].text.size();
      const auto [stop, error] = std::from_chars(t[i].text.data(), end, n);
      if (error != std::errc{} || stop != end) return unread_groups(t[i]);
      out.devices.push_back(t[i - 1].is('-') ? -n : n);
    } else if (!t[i].is('[') && !t[i].is(']') && !t[i].is(',') &&
               !t[i].is('-')) {
      return unread_groups(t[i]);
    }
  }
  if (!t[close + 1].is(':')) return unread_groups(t[close + 1]);
  uint32_t type_at = close + 2;
  auto type = read_type(t, type_at);
  if (!type) return type.error();
  out.dims = type->dims;
  const auto count =
      out.dims.size() == 2 ? product(out.dims[0], out.dims[1]) : std::nullopt;
  const bool splat = count && *count == 1 && out.devices.size() == 1;
  if (!count || type->dtype != "i64" ||
      (!splat && *count != static_cast<int64_t>(out.devices.size()))) {
    return unread_groups(t[at]);
  }
  return out;
}

// Checks for valid, distinct devices; -1 is padding and allowed if `padded`.
Result<void> check_devices(Dims numbers, int64_t devices, bool padded,
                           uint32_t line) {
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int64_t n = numbers[i];
    if (padded && n == -1) continue;
    const bool again = i > 0 && numbers[i - 1] == n;
    if (n >= 0 && n < devices && !again) continue;
    return invalid("audit",
                   "devices of a collective must be among {} and stand once, "
                   "found {}{} on line {}",
                   devices, n, again ? " twice" : "", line);
  }
  return {};
}

// How often an operand crosses between devices in a group of n, in total.
int64_t crossings(std::string_view name, int64_t n) {
  if (name == "all_gather") return n * (n - 1);
  // First each device gets its part of the sum, then all get all parts.
  if (name == "all_reduce") return 2 * (n - 1);
  return n - 1;  // each device keeps 1/n, or one sends to all
}

// The number of pairs with different source and target.
Result<int64_t> count_hops(const Groups& pairs, int64_t devices) {
  if (pairs.dims[1] != 2) {
    return invalid("audit",
                   "source_target_pairs must have 2 devices each, found {} on "
                   "line {}",
                   pairs.dims[1], pairs.line);
  }
  Dims ends[2];
  int64_t out = 0;
  for (size_t i = 0; i + 1 < pairs.devices.size(); i += 2) {
    ends[0].push_back(pairs.devices[i]);
    ends[1].push_back(pairs.devices[i + 1]);
    out += pairs.devices[i] != pairs.devices[i + 1];
  }
  for (Dims& side : ends) {
    auto e = check_devices(std::move(side), devices, false, pairs.line);
    if (!e) return e.error();
  }
  return out;
}

Result<int64_t> count_crossings(std::string_view name, const Groups& groups,
                                int64_t devices) {
  auto e = check_devices(groups.devices, devices, true, groups.line);
  if (!e) return e.error();
  if (groups.devices.empty()) return crossings(name, devices);
  int64_t out = 0;
  const int64_t columns = groups.dims[1];
  for (int64_t row = 0; row < groups.dims[0]; ++row) {
    const auto begin = groups.devices.begin() + row * columns;
    const int64_t n = columns - std::count(begin, begin + columns, -1);
    if (n > 0) out += crossings(name, n);
  }
  return out;
}

Error too_many(uint32_t line) {
  return over_limit("audit",
                    "a collective must send at most 2^63 bytes, found more on "
                    "line {}",
                    line);
}

Result<int64_t> bytes_of_all(const std::vector<Type>& types, uint32_t line) {
  int64_t out = 0;
  for (const Type& type : types) {
    auto bytes = bytes_of(type, line);
    if (!bytes) return bytes.error();
    if (__builtin_add_overflow(out, *bytes, &out)) return too_many(line);
  }
  return out;
}

}  // namespace

bool is_collective(std::string_view op_name) {
  return !collective_of(op_name).empty();
}

Result<std::optional<AuditCollective>> read_collective(const Module& m,
                                                       const Op& op,
                                                       int64_t devices) {
  std::string_view name = collective_of(op.name);
  const bool ragged = op.name == kCustomCall && call_target(m, op) == kRagged;
  if (ragged) name = kRagged;
  if (name.empty()) return std::optional<AuditCollective>();
  const bool permutes = name == "collective_permute";
  const auto listed =
      find_key(m, op, permutes ? "source_target_pairs" : "replica_groups");
  const auto types = find_types(m, op);
  if (!listed || !types) {
    return invalid("audit",
                   "a collective must tell its {}, found none for {} on line "
                   "{}",
                   listed ? "types" : "devices", name, op.line);
  }
  auto groups = read_groups(m.tokens, *listed);
  if (!groups) return groups.error();
  auto signature = read_signature(m.tokens, *types + 1);
  if (!signature) return signature.error();
  if (signature->operands.empty()) {
    return invalid("audit",
                   "a collective must have an operand, found none for {} on "
                   "line {}",
                   name, op.line);
  }
  // A ragged all-to-all's other operands: destination, offsets, sizes.
  if (ragged) signature->operands.resize(1);
  auto bytes = bytes_of_all(signature->operands, op.line);
  if (!bytes) return bytes.error();
  auto times = permutes ? count_hops(*groups, devices)
                        : count_crossings(name, *groups, devices);
  if (!times) return times.error();
  const auto sent = product(*bytes, *times);
  if (!sent) return too_many(op.line);
  const bool all_talk = permutes || groups->devices.empty();
  AuditCollective out;
  out.op = name;
  out.line = op.line;
  out.dtype = signature->operands.front().dtype;
  out.shape = signature->operands.front().dims;
  out.groups = all_talk ? 1 : groups->dims[0];
  out.group_devices = all_talk ? devices : groups->dims[1];
  out.operand_bytes = *bytes;
  if (!ragged) out.sent_bytes = *sent;
  out.repeats = op.repeats;
  return std::optional(std::move(out));
}

}  // namespace tessera::audit
