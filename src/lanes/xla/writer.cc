// lanes/xla/writer.cc: one function per op, in MLIR's generic form.
#include "lanes/xla/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

namespace tessera::xla {
namespace {

using Values = Writer::Values;

std::string_view element_text(Element e) {
  constexpr std::string_view kTexts[] = {"i1", "i32", "f16", "bf16", "f32"};
  return kTexts[static_cast<size_t>(e)];
}

bool is_real(const Type& t) {
  return t.element != Element::i1 && t.element != Element::i32;
}

template <class Range, class Text>
std::string joined(const Range& range, Text text) {
  std::string out;
  for (const auto& each : range) {
    if (!out.empty()) out += ", ";
    out += text(each);
  }
  return out;
}

template <class Range>
std::string names_of(const Range& values) {
  return joined(values, [](const Value& v) { return v.name; });
}

template <class Range>
std::string types_of(const Range& values) {
  return joined(values, [](const Value& v) { return to_string(v.type); });
}

std::vector<Type> types(const Values& values) {
  std::vector<Type> out;
  for (const Value& v : values) out.push_back(v.type);
  return out;
}

std::string numbers(const Dims& dims) {
  return joined(dims, [](int64_t n) { return fmt::to_string(n); });
}

// MLIR has another form for an empty list.
std::string array_text(const Dims& dims) {
  return dims.empty() ? "array<i64>"
                      : fmt::format("array<i64: {}>", numbers(dims));
}

Dims without(const Dims& dims, const Dims& gone) {
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (std::find(gone.begin(), gone.end(), static_cast<int64_t>(i)) ==
        gone.end()) {
      out.push_back(dims[i]);
    }
  }
  return out;
}

}  // namespace

int64_t Type::elements() const {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

std::string to_string(const Type& type) {
  std::string out = "tensor<";
  for (int64_t n : type.dims) out += fmt::format("{}x", n);
  return out + std::string(element_text(type.element)) + ">";
}

Writer::Writer(std::vector<Argument> arguments) {
  for (Argument& a : arguments) {
    arguments_.push_back({"%" + a.name, std::move(a.type)});
  }
}

bool Writer::has_argument(std::string_view name) const {
  return std::any_of(arguments_.begin(), arguments_.end(), [&](const Value& v) {
    return std::string_view(v.name).substr(1) == name;
  });
}

void Writer::bind(std::string name, Value value) {
  bound_.emplace_back(std::move(name), std::move(value));
}

const Value& Writer::argument(std::string_view name) const {
  const auto last =
      std::find_if(bound_.rbegin(), bound_.rend(),
                   [&](const auto& b) { return b.first == name; });
  if (last != bound_.rend()) return last->second;
  const auto found =
      std::find_if(arguments_.begin(), arguments_.end(), [&](const Value& v) {
        return std::string_view(v.name).substr(1) == name;
      });
  assert(found != arguments_.end());
  return *found;
}

void Writer::line(std::string_view text) {
  text_ += fmt::format("{:{}}{}\n", "", 2 * depth_, text);
}

void Writer::comment(std::string_view text) {
  line(fmt::format("// {}", text));
}

Value Writer::fresh(Type type) {
  return {fmt::format("%{}", next_++), std::move(type)};
}

Value Writer::op(std::string_view name, std::initializer_list<Value> operands,
                 std::string_view attributes, Type result) {
  Value out = fresh(std::move(result));
  line(fmt::format("{} = \"stablehlo.{}\"({}){} : ({}) -> {}", out.name, name,
                   names_of(operands),
                   attributes.empty() ? "" : fmt::format(" {{{}}}", attributes),
                   types_of(operands), to_string(out.type)));
  return out;
}

Value Writer::same(std::string_view name, const Value& a, const Value& b) {
  assert(a.type == b.type);
  return op(name, {a, b}, "", a.type);
}

Value Writer::constant(std::string_view text, Type type) {
  const std::string attributes =
      fmt::format("value = dense<{}> : {}", text, to_string(type));
  return op("constant", {}, attributes, std::move(type));
}

Value Writer::integer(int32_t value, Dims dims) {
  return constant(fmt::to_string(value), {Element::i32, std::move(dims)});
}

Value Writer::real(float value, Dims dims, Element element) {
  if (element != Element::f32) {
    return convert(real(value, std::move(dims)), element);
  }
  // The bits, which the parser takes exactly; decimals would be rounded twice.
  return constant(fmt::format("0x{:08X}", std::bit_cast<uint32_t>(value)),
                  {element, std::move(dims)});
}

Value Writer::truth(bool value, Dims dims) {
  return constant(value ? "true" : "false", {Element::i1, std::move(dims)});
}

Value Writer::iota(Dims dims, int64_t dimension) {
  return op("iota", {}, fmt::format("iota_dimension = {} : i64", dimension),
            {Element::i32, std::move(dims)});
}

Value Writer::add(const Value& a, const Value& b) { return same("add", a, b); }

Value Writer::sub(const Value& a, const Value& b) {
  return same("subtract", a, b);
}

Value Writer::mul(const Value& a, const Value& b) {
  return same("multiply", a, b);
}

Value Writer::div(const Value& a, const Value& b) {
  return same("divide", a, b);
}

Value Writer::max(const Value& a, const Value& b) {
  return same("maximum", a, b);
}

Value Writer::both(const Value& a, const Value& b) {
  assert(a.type.element == Element::i1);
  return same("and", a, b);
}

Value Writer::either(const Value& a, const Value& b) {
  assert(a.type.element == Element::i1);
  return same("or", a, b);
}

Value Writer::compare(Compare how, const Value& a, const Value& b) {
  assert(a.type == b.type);
  constexpr std::string_view kHow[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  return op(
      "compare", {a, b},
      fmt::format("comparison_direction = #stablehlo<comparison_direction "
                  "{}>, compare_type = #stablehlo<comparison_type {}>",
                  kHow[static_cast<size_t>(how)],
                  is_real(a.type)                  ? "FLOAT"
                  : a.type.element == Element::i32 ? "SIGNED"
                                                   : "UNSIGNED"),
      {Element::i1, a.dims()});
}

Value Writer::select(const Value& condition, const Value& yes,
                     const Value& no) {
  assert(yes.type == no.type && condition.type.element == Element::i1);
  assert(condition.dims().empty() || condition.dims() == yes.dims());
  return op("select", {condition, yes, no}, "", yes.type);
}

Value Writer::negate(const Value& a) {
  return op(a.type.element == Element::i1 ? "not" : "negate", {a}, "", a.type);
}

Value Writer::exp(const Value& a) { return op("exponential", {a}, "", a.type); }

Value Writer::log(const Value& a) { return op("log", {a}, "", a.type); }

Value Writer::tanh(const Value& a) { return op("tanh", {a}, "", a.type); }

Value Writer::is_finite(const Value& a) {
  assert(is_real(a.type));
  return op("is_finite", {a}, "", {Element::i1, a.dims()});
}

Value Writer::convert(const Value& a, Element element) {
  if (a.type.element == element) return a;
  return op("convert", {a}, "", {element, a.dims()});
}

Value Writer::bits(const Value& a, int32_t low, int32_t width) {
  assert(a.type.element == Element::i32);
  const Value by = integer(low, a.dims());
  const Value mask =
      integer(static_cast<int32_t>((int64_t{1} << width) - 1), a.dims());
  const Value shifted = same("shift_right_logical", a, by);
  return same("and", shifted, mask);
}

Value Writer::broadcast(const Value& a, Dims dims, const Dims& at) {
  assert(at.size() == a.dims().size());
  for (size_t i = 0; i < at.size(); ++i) {
    assert(a.dims()[i] == dims[static_cast<size_t>(at[i])]);
  }
  return op("broadcast_in_dim", {a},
            fmt::format("broadcast_dimensions = {}", array_text(at)),
            {a.type.element, std::move(dims)});
}

Value Writer::reshape(const Value& a, Dims dims) {
  if (a.dims() == dims) return a;
  return op("reshape", {a}, "", {a.type.element, std::move(dims)});
}

Value Writer::slice(const Value& a, std::span<const Value> at, Dims dims) {
  assert(at.size() == dims.size() && at.size() == a.dims().size());
  const std::string sizes = array_text(dims);
  Value out = fresh({a.type.element, std::move(dims)});
  line(fmt::format(
      "{} = \"stablehlo.dynamic_slice\"({}, {}) {{slice_sizes = {}}} : ({}, "
      "{}) -> {}",
      out.name, a.name, names_of(at), sizes, to_string(a.type), types_of(at),
      to_string(out.type)));
  return out;
}

Value Writer::update(const Value& a, const Value& block,
                     std::span<const Value> at) {
  assert(at.size() == a.dims().size() && at.size() == block.dims().size());
  assert(a.type.element == block.type.element);
  Value out = fresh(a.type);
  line(fmt::format(
      "{} = \"stablehlo.dynamic_update_slice\"({}, {}, {}) : ({}, {}, {}) -> "
      "{}",
      out.name, a.name, block.name, names_of(at), to_string(a.type),
      to_string(block.type), types_of(at), to_string(out.type)));
  return out;
}

Value Writer::element(const Value& a, const Value& at) {
  return reshape(slice(a, std::array{at}, {1}), {});
}

Value Writer::reduce(std::string_view kind, const Value& start, const Value& a,
                     const Dims& over) {
  Value out = fresh({a.type.element, without(a.dims(), over)});
  const Type scalar{a.type.element, {}};
  const std::string t = to_string(scalar);
  line(fmt::format("{} = \"stablehlo.reduce\"({}, {}) ({{", out.name, a.name,
                   start.name));
  const Value left = fresh(scalar);
  const Value right = fresh(scalar);
  line(fmt::format("^bb0({}: {}, {}: {}):", left.name, t, right.name, t));
  ++depth_;
  const Value both_sides = same(kind, left, right);
  line(
      fmt::format("\"stablehlo.return\"({}) : ({}) -> ()", both_sides.name, t));
  --depth_;
  line(fmt::format("}}) {{dimensions = {}}} : ({}, {}) -> {}", array_text(over),
                   to_string(a.type), t, to_string(out.type)));
  return out;
}

Value Writer::reduce_max(const Value& a, const Dims& over) {
  const Value start =
      real(-std::numeric_limits<float>::infinity(), {}, a.type.element);
  return reduce("maximum", start, a, over);
}

Value Writer::reduce_sum(const Value& a, const Dims& over) {
  const Value start =
      is_real(a.type) ? real(0, {}, a.type.element) : integer(0);
  return reduce("add", start, a, over);
}

Value Writer::reduce_any(const Value& a, const Dims& over) {
  return reduce("or", truth(false), a, over);
}

Value Writer::dot(const Value& a, const Value& b, const Contraction& over) {
  assert(a.type.element == b.type.element && is_real(a.type));
  assert(over.a.size() == over.b.size());
  Dims dims;
  for (size_t i = 0; i < over.batch_a.size(); ++i) {
    dims.push_back(a.dims()[static_cast<size_t>(over.batch_a[i])]);
    assert(dims.back() == b.dims()[static_cast<size_t>(over.batch_b[i])]);
  }
  const auto add_free = [&](const Value& v, Dims gone, const Dims& more) {
    gone.insert(gone.end(), more.begin(), more.end());
    for (int64_t n : without(v.dims(), gone)) dims.push_back(n);
  };
  add_free(a, over.batch_a, over.a);
  add_free(b, over.batch_b, over.b);
  // TPUs would multiply float32 in one bfloat16 pass otherwise.
  const std::string attributes = fmt::format(
      "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], "
      "rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], "
      "rhs_contracting_dimensions = [{}]>, precision_config = "
      "[#stablehlo<precision {}>, #stablehlo<precision {}>]",
      numbers(over.batch_a), numbers(over.batch_b), numbers(over.a),
      numbers(over.b), a.type.element == Element::f32 ? "HIGHEST" : "DEFAULT",
      a.type.element == Element::f32 ? "HIGHEST" : "DEFAULT");
  return op("dot_general", {a, b}, attributes, {Element::f32, std::move(dims)});
}

// `({` and `})` are the caller's. Arguments may be none.
void Writer::region(const std::vector<Argument>& arguments,
                    const std::function<Values()>& body) {
  if (!arguments.empty()) {
    line(fmt::format("^bb0({}):", joined(arguments, [](const Argument& a) {
                       return a.name + ": " + to_string(a.type);
                     })));
  }
  ++depth_;
  const Values out = body();
  line(fmt::format("\"stablehlo.return\"({}) : ({}) -> ()", names_of(out),
                   types_of(out)));
  --depth_;
}

Values Writer::results_of(int number, const std::vector<Type>& of) const {
  Values out;
  for (size_t i = 0; i < of.size(); ++i) {
    out.push_back({of.size() == 1 ? fmt::format("%{}", number)
                                  : fmt::format("%{}#{}", number, i),
                   of[i]});
  }
  return out;
}

Values Writer::loop(const Values& start, const Test& test, const Body& body) {
  const int number = next_++;
  line(fmt::format("%{}{} = \"stablehlo.while\"({}) ({{", number,
                   start.size() == 1 ? "" : fmt::format(":{}", start.size()),
                   names_of(start)));
  for (const bool is_test : {true, false}) {
    Values carried;
    std::vector<Argument> arguments;
    for (const Value& v : start) {
      carried.push_back(fresh(v.type));
      arguments.push_back({carried.back().name, v.type});
    }
    region(arguments, [&] {
      if (is_test) return Values{test(carried)};
      Values out = body(carried);
      assert(types(out) == types(start));
      return out;
    });
    if (is_test) line("}, {");
  }
  line(fmt::format("}}) : ({}) -> ({})", types_of(start), types_of(start)));
  return results_of(number, types(start));
}

Values Writer::count(const Value& begin, const Value& end, const Values& start,
                     const CountedBody& body) {
  Values carried = {begin};
  carried.insert(carried.end(), start.begin(), start.end());
  Values out = loop(
      carried,
      [&](const Values& c) { return compare(Compare::less, c[0], end); },
      [&](const Values& c) {
        Values next = body(c[0], Values(c.begin() + 1, c.end()));
        const Value one = integer(1);
        next.insert(next.begin(), add(c[0], one));
        return next;
      });
  return Values(out.begin() + 1, out.end());
}

Values Writer::choose(const Value& condition, const Branch& yes,
                      const Branch& no) {
  assert(condition.type.element == Element::i1);
  return choose(convert(condition, Element::i32), std::array{no, yes});
}

Values Writer::choose(const Value& number, std::span<const Branch> branches) {
  assert(number.type == (Type{Element::i32, {}}));
  const int name = next_++;
  // How many results there are is known when a branch is written, and stands
  // in front of it.
  const size_t at = text_.size();
  std::vector<Type> of;
  for (size_t i = 0; i < branches.size(); ++i) {
    if (i > 0) line("}, {");
    region({}, [&] {
      Values out = branches[i]();
      assert(i == 0 || types(out) == of);
      of = types(out);
      return out;
    });
  }
  text_.insert(
      at,
      fmt::format("{:{}}%{}{} = \"stablehlo.case\"({}) ({{\n", "", 2 * depth_,
                  name, of.size() == 1 ? "" : fmt::format(":{}", of.size()),
                  number.name));
  Values out = results_of(name, of);
  line(
      fmt::format("}}) : ({}) -> ({})", to_string(number.type), types_of(out)));
  return out;
}

Value Writer::join(std::span<const Value> parts, int64_t along) {
  if (parts.size() == 1) return parts.front();
  Type type = parts.front().type;
  int64_t& size = type.dims[static_cast<size_t>(along)];
  size = 0;
  for (const Value& p : parts) size += p.dims()[static_cast<size_t>(along)];
  Value out = fresh(type);
  line(fmt::format(
      "{} = \"stablehlo.concatenate\"({}) {{dimension = {} : i64}} "
      ": ({}) -> {}",
      out.name, names_of(parts), along, types_of(parts), to_string(out.type)));
  return out;
}

Value Writer::permute(const Value& a, const Hops& hops) {
  const std::string pairs = joined(hops, [](const auto& hop) {
    return fmt::format("[{}, {}]", hop.first, hop.second);
  });
  return op("collective_permute", {a},
            fmt::format("source_target_pairs = dense<[{}]> : "
                        "tensor<{}x2xi64>, channel_handle = "
                        "#stablehlo.channel_handle<handle = {}, type = 1>",
                        pairs, hops.size(), next_ + 1),
            a.type);
}

namespace {

std::string module_text(std::string_view name, int64_t partitions,
                        std::string_view above, std::string_view arguments,
                        std::string_view types, std::string_view body) {
  return fmt::format(
      "module @{} attributes {{mhlo.num_partitions = {} : i32, "
      "mhlo.num_replicas = 1 : i32}} {{\n"
      "{}"
      "  func.func public @main({}) -> ({}) {{\n"
      "{}"
      "  }}\n"
      "}}\n",
      name, partitions, above, arguments, types, body);
}

std::string typed(const Value& v) { return v.name + ": " + to_string(v.type); }

}  // namespace

std::string Writer::module(std::string_view name, const Values& results) const {
  return module_text(name, 1, "", joined(arguments_, typed), types_of(results),
                     fmt::format("{}    \"func.return\"({}) : ({}) -> ()\n",
                                 text_, names_of(results), types_of(results)));
}

namespace {

// What all devices hold together of an array that each has a part of.
Type whole(const Type& part, const std::vector<std::string>& axes,
           const Writer::Spread& spread) {
  assert(axes.size() == part.dims.size());
  Type out = part;
  for (size_t d = 0; d < axes.size(); ++d) {
    for (const auto& [axis, size] : spread.sizes) {
      if (axis == axes[d]) out.dims[d] *= size;
    }
  }
  return out;
}

// `[{"data"}, {}]`
std::string dims_text(const std::vector<std::string>& axes) {
  return "[" +
         joined(axes,
                [](const std::string& axis) {
                  return axis.empty() ? std::string("{}")
                                      : fmt::format("{{\"{}\"}}", axis);
                }) +
         "]";
}

std::string sharding_of(const std::vector<std::string>& axes) {
  return fmt::format("<@mesh, {}>", dims_text(axes));
}

}  // namespace

std::string Writer::module(std::string_view name, const Values& results,
                           const Spread& spread) const {
  assert(spread.arguments.size() == arguments_.size());
  assert(spread.results.size() == results.size());
  int64_t devices = 1;
  for (const auto& [axis, size] : spread.sizes) devices *= size;
  std::string outer;
  Values given;  // the arguments of the function, named apart from a device's
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Value& a = arguments_[i];
    const std::vector<std::string>& axes = spread.arguments[i];
    given.push_back({"%all_" + a.name.substr(1), whole(a.type, axes, spread)});
    outer +=
        fmt::format("{}{} {{sdy.sharding = #sdy.sharding{}}}",
                    i == 0 ? "" : ", ", typed(given.back()), sharding_of(axes));
  }
  Values taken;
  std::string types;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::vector<std::string>& axes = spread.results[i];
    taken.push_back({results.size() == 1 ? "%all" : fmt::format("%all#{}", i),
                     whole(results[i].type, axes, spread)});
    types += fmt::format("{}{} {{sdy.sharding = #sdy.sharding{}}}",
                         i == 0 ? "" : ", ", to_string(taken.back().type),
                         sharding_of(axes));
  }
  const std::string mesh = joined(spread.sizes, [](const auto& s) {
    return fmt::format("\"{}\"={}", s.first, s.second);
  });
  const std::string all_axes = joined(spread.sizes, [](const auto& s) {
    return fmt::format("\"{}\"", s.first);
  });
  const std::string body = fmt::format(
      "    %all{} = sdy.manual_computation({}) in_shardings=[{}] "
      "out_shardings=[{}] manual_axes={{{}}} ({}) {{\n"
      "{}"
      "    sdy.return {} : {}\n"
      "    }} : ({}) -> ({})\n"
      "    \"func.return\"({}) : ({}) -> ()\n",
      results.size() == 1 ? "" : fmt::format(":{}", results.size()),
      names_of(given), joined(spread.arguments, sharding_of),
      joined(spread.results, sharding_of), all_axes, joined(arguments_, typed),
      text_, names_of(results), types_of(results), types_of(given),
      types_of(taken), names_of(taken), types_of(taken));
  return module_text(name, devices,
                     fmt::format("  sdy.mesh @mesh = <[{}]>\n", mesh), outer,
                     types, body);
}

}  // namespace tessera::xla
