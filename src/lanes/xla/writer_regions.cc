// lanes/xla/writer_regions.cc: ops with regions: reductions, scatters, loops
// and branches.
#include <fmt/format.h>

#include <array>
#include <cassert>
#include <limits>

#include "lanes/xla/writer_text.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

std::vector<Type> types(const Values& values) {
  std::vector<Type> out;
  for (const Value& v : values) out.push_back(v.type);
  return out;
}

}  // namespace

void Writer::combine(std::string_view kind, const Type& scalar) {
  const Value left = fresh(scalar);
  const Value right = fresh(scalar);
  region({{left.name, scalar}, {right.name, scalar}},
         [&] { return Values{same(kind, left, right)}; });
}

Value Writer::add_rows(const Value& table, const Value& numbers,
                       const Value& more) {
  assert(table.dims().size() == 2 && numbers.dims().size() == 1);
  assert(more.type.element == table.type.element);
  const Value at = reshape(numbers, {numbers.dims()[0], 1});
  Value out = fresh(table.type);
  line(fmt::format("{} = \"stablehlo.scatter\"({}, {}, {}) ({{", out.name,
                   table.name, at.name, more.name));
  combine("add", {table.type.element, {}});
  line(fmt::format(
      "}}) {{scatter_dimension_numbers = #stablehlo.scatter<"
      "update_window_dims = [1], inserted_window_dims = [0], "
      "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
      "indices_are_sorted = false, unique_indices = false}} : ({}, {}, {}) -> "
      "{}",
      to_string(table.type), to_string(at.type), to_string(more.type),
      to_string(out.type)));
  return out;
}

Value Writer::reduce(std::string_view kind, const Value& start, const Value& a,
                     const Dims& over) {
  Value out = fresh({a.type.element, without(a.dims(), over)});
  const Type scalar{a.type.element, {}};
  const std::string t = to_string(scalar);
  line(fmt::format("{} = \"stablehlo.reduce\"({}, {}) ({{", out.name, a.name,
                   start.name));
  combine(kind, scalar);
  line(fmt::format("}}) {{dimensions = {}}} : ({}, {}) -> {}", array_text(over),
                   to_string(a.type), t, to_string(out.type)));
  return out;
}

Value Writer::reduce_max(const Value& a, const Dims& over) {
  const Value start =
      is_real(a.type)
          ? real(-std::numeric_limits<float>::infinity(), {}, a.type.element)
          : integer(std::numeric_limits<int32_t>::min());
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

// The caller writes `({` and `})`. There may be no arguments.
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
  // The number of results is written before the branches but known only after
  // one, so it is inserted at `at` later.
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

}  // namespace tessera::xla
