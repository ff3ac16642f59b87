// lanes/xla/writer.cc: one function per op, in MLIR's generic form.
#include "lanes/xla/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/shape.h"
#include "lanes/xla/writer_text.h"

namespace tessera::xla {
namespace {

std::string_view element_text(Element e) {
  constexpr std::string_view kTexts[] = {"i1",   "i32", "f16",
                                         "bf16", "f32", "f64"};
  return kTexts[static_cast<size_t>(e)];
}

// The bits, which parse exactly; decimals would be rounded again when parsed.
std::string bits_text(double value, Element e) {
  return e == Element::f64
             ? fmt::format("0x{:016X}", std::bit_cast<uint64_t>(value))
             : fmt::format("0x{:08X}",
                           std::bit_cast<uint32_t>(static_cast<float>(value)));
}

}  // namespace

bool is_real(const Type& t) {
  return t.element != Element::i1 && t.element != Element::i32;
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

int64_t Type::elements() const { return elements_of(dims); }

std::string to_string(const Type& type) {
  std::string out = "tensor<";
  for (int64_t n : type.dims) out += fmt::format("{}x", n);
  return out + std::string(element_text(type.element)) + ">";
}

Writer::Writer(std::vector<Argument> arguments, Element wide) : wide_(wide) {
  for (Argument& a : arguments) {
    arguments_.push_back({"%" + a.name, std::move(a.type)});
  }
}

bool Writer::has_argument(std::string_view name) const {
  const auto is_bound = [&](const auto& b) { return b.first == name; };
  const auto is_argument = [&](const Value& v) {
    return std::string_view(v.name).substr(1) == name;
  };
  return std::any_of(bound_.begin(), bound_.end(), is_bound) ||
         std::any_of(arguments_.begin(), arguments_.end(), is_argument);
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

Value Writer::real(double value, Dims dims) {
  return real(value, std::move(dims), wide_);
}

Value Writer::real(double value, Dims dims, Element element) {
  if (element != Element::f32 && element != Element::f64) {
    return convert(real(value, std::move(dims), Element::f32), element);
  }
  return constant(bits_text(value, element), {element, std::move(dims)});
}

Value Writer::reals(std::span<const double> values) {
  const std::string text =
      joined(values, [&](double value) { return bits_text(value, wide_); });
  return constant("[" + text + "]",
                  {wide_, {static_cast<int64_t>(values.size())}});
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

Value Writer::sin(const Value& a) { return op("sine", {a}, "", a.type); }

Value Writer::cos(const Value& a) { return op("cosine", {a}, "", a.type); }

Value Writer::sqrt(const Value& a) { return op("sqrt", {a}, "", a.type); }

Value Writer::logistic(const Value& a) {
  return op("logistic", {a}, "", a.type);
}

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

Value Writer::transpose(const Value& a, const Dims& order) {
  assert(order.size() == a.dims().size());
  Dims dims;
  for (const int64_t d : order)
    dims.push_back(a.dims()[static_cast<size_t>(d)]);
  return op("transpose", {a}, "permutation = " + array_text(order),
            {a.type.element, std::move(dims)});
}

Value Writer::part(const Value& a, int64_t along, int64_t begin, int64_t end) {
  const auto at = static_cast<size_t>(along);
  assert(0 <= begin && begin < end && end <= a.dims()[at]);
  if (end - begin == a.dims()[at]) return a;
  Dims from(a.dims().size(), 0), to = a.dims(), dims = a.dims();
  from[at] = begin;
  to[at] = end;
  dims[at] = end - begin;
  const std::string attributes = fmt::format(
      "start_indices = {}, limit_indices = {}, strides = {}", array_text(from),
      array_text(to), array_text(Dims(from.size(), 1)));
  return op("slice", {a}, attributes, {a.type.element, std::move(dims)});
}

Value Writer::rows(const Value& table, const Value& numbers) {
  assert(table.dims().size() == 2 && numbers.dims().size() == 1);
  const int64_t n = numbers.dims()[0], width = table.dims()[1];
  return op(
      "gather", {table, reshape(numbers, {n, 1})},
      fmt::format("dimension_numbers = #stablehlo.gather<offset_dims = [1], "
                  "collapsed_slice_dims = [0], start_index_map = [0], "
                  "index_vector_dim = 1>, indices_are_sorted = false, "
                  "slice_sizes = {}",
                  array_text({1, width})),
      {table.type.element, {n, width}});
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
  // Without HIGHEST, TPUs multiply float32 in one bfloat16 pass.
  const std::string attributes = fmt::format(
      "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [{}], "
      "rhs_batching_dimensions = [{}], lhs_contracting_dimensions = [{}], "
      "rhs_contracting_dimensions = [{}]>, precision_config = "
      "[#stablehlo<precision {}>, #stablehlo<precision {}>]",
      numbers(over.batch_a), numbers(over.batch_b), numbers(over.a),
      numbers(over.b), a.type.element == Element::f32 ? "HIGHEST" : "DEFAULT",
      a.type.element == Element::f32 ? "HIGHEST" : "DEFAULT");
  return op("dot_general", {a, b}, attributes,
            {a.type.element == Element::f64 ? Element::f64 : Element::f32,
             std::move(dims)});
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

Writer::Values Writer::call(std::string_view target, std::string_view label,
                            const Values& operands, std::string_view attributes,
                            const std::vector<Type>& results) {
  const int number = next_++;
  Values out = results_of(number, results);
  line(fmt::format(
      "%{}{} = \"stablehlo.custom_call\"({}) {{call_target_name = \"{}\", {}}} "
      ": ({}) -> ({}) loc(\"{}\")",
      number, results.size() == 1 ? "" : fmt::format(":{}", results.size()),
      names_of(operands), target, attributes, types_of(operands), types_of(out),
      label));
  return out;
}

Writer::Values Writer::barrier(const Values& values) {
  std::vector<Type> of;
  for (const Value& v : values) of.push_back(v.type);
  const int number = next_++;
  line(
      fmt::format("%{}{} = \"stablehlo.optimization_barrier\"({}) : ({}) -> "
                  "({})",
                  number, of.size() == 1 ? "" : fmt::format(":{}", of.size()),
                  names_of(values), types_of(values), types_of(values)));
  return results_of(number, of);
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

std::string groups_text(const Writer::Groups& groups) {
  const std::string rows =
      joined(groups, [](const Dims& g) { return "[" + numbers(g) + "]"; });
  return fmt::format("replica_groups = dense<[{}]> : tensor<{}x{}xi64>", rows,
                     groups.size(), groups.front().size());
}

std::string groups_text(const Writer::Groups& groups, int channel) {
  return fmt::format(
      "{}, channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>",
      groups_text(groups), channel);
}

int64_t size_of(const Writer::Groups& groups) {
  return static_cast<int64_t>(groups.front().size());
}

}  // namespace

Value Writer::exchange(const Value& a, int64_t along, const Groups& groups,
                       int64_t into) {
  const int64_t n = size_of(groups);
  Type out = a.type;
  int64_t& divided = out.dims[static_cast<size_t>(along)];
  assert(divided % n == 0);
  divided /= n;
  out.dims[static_cast<size_t>(into)] *= n;
  return op("all_to_all", {a},
            fmt::format("split_dimension = {} : i64, concat_dimension = {} : "
                        "i64, split_count = {} : i64, {}",
                        along, into, n, groups_text(groups, next_ + 1)),
            std::move(out));
}

Value Writer::gather(const Value& a, int64_t along, const Groups& groups) {
  Type all = a.type;
  all.dims[static_cast<size_t>(along)] *= size_of(groups);
  return op("all_gather", {a},
            fmt::format("all_gather_dim = {} : i64, {}, use_global_device_ids",
                        along, groups_text(groups, next_ + 1)),
            std::move(all));
}

Value Writer::ragged_exchange(const Value& a, const Value& into,
                              const Slices& slices, const Groups& groups) {
  const std::string attributes = fmt::format(
      "api_version = 4 : i32, backend_config = {{channel_id = {} : i64, {}}}",
      next_ + 1, groups_text(groups));
  return call("ragged_all_to_all", "exchange",
              {a, into, slices.begins, slices.sizes, slices.begins_there,
               slices.sizes_here},
              attributes, {into.type})
      .front();
}

}  // namespace tessera::xla
