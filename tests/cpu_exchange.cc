// tests/cpu_exchange.cc: replaces a line of the program by many: the tiles of
// all devices are gathered, and each device selects those that were sent to it.
#include "tests/cpu_exchange.h"

#include <fmt/format.h>

#include <cstdint>
#include <regex>
#include <utility>
#include <vector>

namespace tessera::testing {
namespace {

// One line of the program: `%9 = ...(%1, ..., %6) {...} : (...) -> (...)`.
struct Call {
  std::string name;                   // "9"
  std::vector<std::string> operands;  // "%1"
  std::string groups;                 // "replica_groups = ..."
  int64_t devices = 0;                // of a group
  int64_t tiles = 0;
  std::string tile;     // "2x128x64"
  std::string element;  // "bf16"
};

std::vector<std::string> split(const std::string& text, const char* by) {
  std::vector<std::string> out;
  size_t at = 0;
  const std::string_view separator = by;
  for (;;) {
    const size_t end = text.find(separator, at);
    out.push_back(text.substr(at, end - at));
    if (end == std::string::npos) return out;
    at = end + separator.size();
  }
}

class Plain {
 public:
  explicit Plain(const Call& call) : c_(call) {}

  std::string text() {
    const std::string begins = to_receivers(c_.operands[2]);
    const std::string sizes = to_receivers(c_.operands[3]);
    const std::string begins_here = to_receivers(c_.operands[4]);
    const std::string all = op("all_gather", c_.operands[0],
                               fmt::format("all_gather_dim = 0 : i64, {}, {}, "
                                           "use_global_device_ids",
                                           c_.groups, channel()),
                               array(), tensor(c_.devices * c_.tiles));
    const std::string lane =
        op("iota", "", "iota_dimension = 0 : i64", "", ints(c_.tiles));
    std::string got = c_.operands[1];
    for (int64_t from = 0; from < c_.devices; ++from) {
      const std::string sent =
          op("slice", all, bounds(from * c_.tiles, (from + 1) * c_.tiles, true),
             tensor(c_.devices * c_.tiles), array());
      const std::string here = scalar(begins_here, from);
      const std::string end =
          both("add", here, scalar(sizes, from), "tensor<i32>");
      const std::string mask =
          both("and", compare("GE", lane, spread(here)),
               compare("LT", lane, spread(end)), tests(c_.tiles));
      const std::string where =
          op("broadcast_in_dim", mask, "broadcast_dimensions = array<i64: 0>",
             tests(c_.tiles), mask_type());
      got = select(where, shifted(sent, scalar(begins, from), here), got);
    }
    // Each device must have been told the size that it receives.
    const std::string told = compare("EQ", sizes, c_.operands[5], c_.devices);
    std::string right = constant("true", "tensor<i1>");
    for (int64_t from = 0; from < c_.devices; ++from) {
      right = both("and", right, scalar(told, from, "i1"), "tensor<i1>");
    }
    const std::string whole =
        op("broadcast_in_dim", right, "broadcast_dimensions = array<i64>",
           "tensor<i1>", mask_type());
    const char* const nan = c_.element == "f32" ? "0x7FC00000" : "0x7FC0";
    select(whole, got, constant(nan, array()), "%" + c_.name);
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  std::string next() { return fmt::format("%x{}_{}", c_.name, next_++); }
  std::string tensor(int64_t tiles) const {
    return fmt::format("tensor<{}x{}x{}>", tiles, c_.tile, c_.element);
  }
  std::string array() const { return tensor(c_.tiles); }
  static std::string ints(int64_t n) {
    return fmt::format("tensor<{}xi32>", n);
  }
  static std::string tests(int64_t n) {
    return fmt::format("tensor<{}xi1>", n);
  }
  std::string mask_type() const {
    return fmt::format("tensor<{}x{}xi1>", c_.tiles, c_.tile);
  }
  std::string channel() {
    return fmt::format(
        "channel_handle = #stablehlo.channel_handle<handle = {}{}, type = 1>",
        c_.name, 1000 + next_);
  }
  // An op with one operand, or with none.
  std::string op(const char* name, const std::string& operand,
                 const std::string& attributes, const std::string& from,
                 const std::string& to) {
    std::string out = next();
    line("{} = \"stablehlo.{}\"({}) {{{}}} : ({}) -> {}", out, name, operand,
         attributes, from, to);
    return out;
  }
  std::string constant(const std::string& value, const std::string& type) {
    return op("constant", "",
              fmt::format("value = dense<{}> : {}", of_type(value, type), type),
              "", type);
  }
  static std::string of_type(const std::string& value,
                             const std::string& type) {
    return value == "0" && type.find("i32") == std::string::npos ? "0.0"
                                                                 : value;
  }
  std::string both(const char* name, const std::string& a, const std::string& b,
                   const std::string& type) {
    std::string out = next();
    line("{} = \"stablehlo.{}\"({}, {}) : ({}, {}) -> {}", out, name, a, b,
         type, type, type);
    return out;
  }
  std::string compare(const char* how, const std::string& a,
                      const std::string& b, int64_t n = 0) {
    if (n == 0) n = c_.tiles;
    std::string out = next();
    line(
        "{} = \"stablehlo.compare\"({}, {}) {{comparison_direction = "
        "#stablehlo<comparison_direction {}>}} : ({}, {}) -> {}",
        out, a, b, how, ints(n), ints(n), tests(n));
    return out;
  }
  std::string select(const std::string& where, const std::string& yes,
                     const std::string& no, std::string name = "") {
    if (name.empty()) name = next();
    line("{} = \"stablehlo.select\"({}, {}, {}) : ({}, {}, {}) -> {}", name,
         where, yes, no, mask_type(), array(), array(), array());
    return name;
  }
  std::string spread(const std::string& number) {
    return op("broadcast_in_dim", number, "broadcast_dimensions = array<i64>",
              "tensor<i32>", ints(c_.tiles));
  }
  // Bounds of a slice: [begin, end) of dimension 0, and all of the tile's
  // dimensions if the array has them.
  std::string bounds(int64_t begin, int64_t end, bool with_tile) const {
    std::string low = std::to_string(begin);
    std::string high = std::to_string(end);
    std::string steps = "1";
    if (with_tile) {
      for (const std::string& n : split(c_.tile, "x")) {
        low += ", 0";
        high += ", " + n;
        steps += ", 1";
      }
    }
    return fmt::format(
        "start_indices = array<i64: {}>, limit_indices = array<i64: {}>, "
        "strides = array<i64: {}>",
        low, high, steps);
  }
  std::string scalar(const std::string& list, int64_t at,
                     const char* element = "i32") {
    const std::string one = fmt::format("tensor<1x{}>", element);
    return op("reshape",
              op("slice", list, bounds(at, at + 1, false),
                 fmt::format("tensor<{}x{}>", c_.devices, element), one),
              "", one, fmt::format("tensor<{}>", element));
  }
  // Moves the tile at `there` to `here`.
  std::string shifted(const std::string& tiles, const std::string& there,
                      const std::string& here) {
    const std::string none = constant("0", array());
    const std::string slab = next();
    line(
        "{} = \"stablehlo.concatenate\"({}, {}, {}) {{dimension = 0 : i64}} : "
        "({}, {}, {}) -> {}",
        slab, none, tiles, none, array(), array(), array(),
        tensor(3 * c_.tiles));
    std::string starts =
        both("add", both("subtract", there, here, "tensor<i32>"),
             constant(std::to_string(c_.tiles), "tensor<i32>"), "tensor<i32>");
    std::string types = "tensor<i32>";
    std::string sizes = std::to_string(c_.tiles);
    const std::string zero = constant("0", "tensor<i32>");
    for (const std::string& n : split(c_.tile, "x")) {
      starts += ", " + zero;
      types += ", tensor<i32>";
      sizes += ", " + n;
    }
    std::string out = next();
    line(
        "{} = \"stablehlo.dynamic_slice\"({}, {}) {{slice_sizes = array<i64: "
        "{}>}} : ({}, {}) -> {}",
        out, slab, starts, sizes, tensor(3 * c_.tiles), types, array());
    return out;
  }
  // The numbers that each device of the group has for this one.
  std::string to_receivers(const std::string& numbers) {
    return op("all_to_all", numbers,
              fmt::format("split_dimension = 0 : i64, concat_dimension = 0 : "
                          "i64, split_count = {} : i64, {}, {}",
                          c_.devices, c_.groups, channel()),
              ints(c_.devices), ints(c_.devices));
  }

  const Call& c_;
  std::string text_;
  int next_ = 0;
};

}  // namespace

int64_t capacity_of(const Audit& audit) {
  int64_t out = 0;
  for (const AuditCollective& c : audit.collectives) {
    out += c.sent_bytes.value_or(c.operand_bytes * c.groups * c.group_devices);
  }
  return out;
}

std::string with_cpu_exchanges(std::string_view program) {
  static const std::regex call(
      "^ *%([0-9]+) = \"stablehlo.custom_call\"\\(([^)]*)\\) "
      "\\{call_target_name = \"ragged_all_to_all\", .*"
      "(replica_groups = dense<[^>]*> : tensor<[0-9]+x([0-9]+)xi64>)\\}\\} : "
      "\\(tensor<([0-9]+)x([0-9x]+)x([a-z0-9]+)>,.*");
  std::string out;
  for (const std::string& line : split(std::string(program), "\n")) {
    std::smatch m;
    if (line.find("ragged_all_to_all") != std::string::npos &&
        std::regex_match(line, m, call)) {
      out += Plain({m[1], split(m[2], ", "), m[3], std::stoll(m[4]),
                    std::stoll(m[5]), m[6], m[7]})
                 .text();
    } else {
      out += line + "\n";
    }
  }
  return out;
}

}  // namespace tessera::testing
