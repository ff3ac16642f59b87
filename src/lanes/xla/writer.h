// lanes/xla/writer.h: writes a StableHLO program as text, op by op.
//
// A value knows its type, so the writer fills in every type of the text and
// refuses (by assert) operands that do not fit: what it prints is meant to pass
// the verifier of any plugin as it stands.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::xla {

enum class Element : uint8_t { i1, i32, f16, bf16, f32, f64 };
using Dims = std::vector<int64_t>;

struct Type {
  Element element = Element::f32;
  Dims dims;  // none: a scalar

  int64_t elements() const;
  bool operator==(const Type&) const = default;
};
std::string to_string(const Type& type);

struct Value {
  std::string name;  // "%12"
  Type type;

  const Dims& dims() const { return type.dims; }
};

enum class Compare : uint8_t {
  equal,
  not_equal,
  less,
  less_or_equal,
  greater,
  greater_or_equal
};

struct Argument {
  std::string name;
  Type type;
};

// The program's one function. Ops are appended where the writer stands: at the
// top, or in the region that `loop` or `choose` is writing. A region may use
// values from around it.
class Writer {
 public:
  // Sums and scores are `wide`: float32, or float64 for what is to be exact.
  explicit Writer(std::vector<Argument> arguments, Element wide = Element::f32);
  Element wide() const { return wide_; }

  bool has_argument(std::string_view name) const;
  // The argument, or what was bound to its name last.
  const Value& argument(std::string_view name) const;
  void bind(std::string name, Value value);

  // Every element is the same.
  Value integer(int32_t value, Dims dims = {});
  Value real(double value, Dims dims = {});  // wide
  Value real(double value, Dims dims, Element element);
  Value reals(std::span<const double> values);  // [n], wide
  Value truth(bool value, Dims dims = {});
  // 0, 1, 2, ... along the dimension.
  Value iota(Dims dims, int64_t dimension);

  // Elementwise, both sides of one type.
  Value add(const Value& a, const Value& b);
  Value sub(const Value& a, const Value& b);
  Value mul(const Value& a, const Value& b);
  Value div(const Value& a, const Value& b);  // integers: toward zero
  Value max(const Value& a, const Value& b);  // of a NaN and a number: NaN
  Value both(const Value& a, const Value& b);
  Value either(const Value& a, const Value& b);
  Value compare(Compare how, const Value& a, const Value& b);
  // `condition` may be a scalar.
  Value select(const Value& condition, const Value& yes, const Value& no);
  Value negate(const Value& a);  // of truth values: not
  Value exp(const Value& a);
  Value log(const Value& a);
  Value tanh(const Value& a);
  Value sin(const Value& a);
  Value cos(const Value& a);
  Value sqrt(const Value& a);
  Value logistic(const Value& a);  // 1 / (1 + exp(-a))
  Value is_finite(const Value& a);
  Value convert(const Value& a, Element element);
  // Bits [low, low + width) of integers.
  Value bits(const Value& a, int32_t low, int32_t width);

  // Dimension i of `a` becomes dimension `at[i]` of the result.
  Value broadcast(const Value& a, Dims dims, const Dims& at);
  Value reshape(const Value& a, Dims dims);
  // Dimension i of the result is dimension `order[i]` of `a`.
  Value transpose(const Value& a, const Dims& order);
  // [begin, end) along one dimension.
  Value part(const Value& a, int64_t along, int64_t begin, int64_t end);
  // Rows of a table [rows, width] by their numbers [n], which must be in it.
  Value rows(const Value& table, const Value& numbers);
  // Adds [n, width] to such rows; one may get several.
  Value add_rows(const Value& table, const Value& numbers, const Value& more);
  // The same values, which the compiler may not take for what they were made
  // from: what is computed of them is computed again.
  std::vector<Value> barrier(const std::vector<Value>& values);
  // An op that the compiler knows by its name alone. `attributes` are all else
  // that it is told: `kernel_name = "f", ...`; its dumps show the label.
  std::vector<Value> call(std::string_view target, std::string_view label,
                          const std::vector<Value>& operands,
                          std::string_view attributes,
                          const std::vector<Type>& results);
  // A block of `dims` that begins at scalars `at`, one a dimension.
  Value slice(const Value& a, std::span<const Value> at, Dims dims);
  Value update(const Value& a, const Value& block, std::span<const Value> at);
  // One element of an array of one dimension, as a scalar.
  Value element(const Value& a, const Value& at);
  // One after the other along the dimension; their other sizes are equal.
  Value join(std::span<const Value> parts, int64_t along);
  // Between devices of a mesh, by their numbers: each source sends to its
  // target, once; a device that gets nothing has zeros.
  using Hops = std::vector<std::pair<int64_t, int64_t>>;
  Value permute(const Value& a, const Hops& hops);
  // Devices that talk to each other, by their numbers, in their order; groups
  // are of one size, and each device is in one.
  using Groups = std::vector<std::vector<int64_t>>;
  // The n-th of a group gets the n-th block along the dimension of each, one
  // after the other along dimension `into`.
  Value exchange(const Value& a, int64_t along, const Groups& groups,
                 int64_t into = 0);
  // What each of a group has, one after the other along the dimension.
  Value gather(const Value& a, int64_t along, const Groups& groups);
  // Slices along dimension 0 to and from each of a group, of sizes that are
  // told at run time; `into` keeps what none came for. CPUs have no such op.
  struct Slices {
    // [group]: of the operand for each device, and where it lies there; and how
    // much comes from each.
    Value begins, sizes, begins_there, sizes_here;
  };
  Value ragged_exchange(const Value& a, const Value& into, const Slices& slices,
                        const Groups& groups);
  // Over these dimensions, which go. An empty sum is 0.
  Value reduce_max(const Value& a, const Dims& over);
  Value reduce_sum(const Value& a, const Dims& over);
  Value reduce_any(const Value& a, const Dims& over);

  struct Contraction {
    Dims batch_a, batch_b, a, b;
  };
  // Float32 comes out, of float64 float64: batch dimensions, then what is left
  // of a, then of b.
  Value dot(const Value& a, const Value& b, const Contraction& over);

  using Values = std::vector<Value>;
  using Test = std::function<Value(const Values& carried)>;
  using Body = std::function<Values(const Values& carried)>;
  // While `test` holds.
  Values loop(const Values& start, const Test& test, const Body& body);
  // For i from `begin`, while it is below `end`; both are scalars.
  using CountedBody = std::function<Values(const Value& i, const Values&)>;
  Values count(const Value& begin, const Value& end, const Values& start,
               const CountedBody& body);
  using Branch = std::function<Values()>;
  Values choose(const Value& condition, const Branch& yes, const Branch& no);
  // The branch of that number; the last one where there is no such.
  Values choose(const Value& number, std::span<const Branch> branches);

  // Starts as a comment line of its own.
  void comment(std::string_view text);

  // An argument whose memory the result of that number may take: a caller that
  // donates it has it no more.
  using Reuse = std::vector<std::pair<std::string, size_t>>;
  // The whole module, returning these.
  std::string module(std::string_view name, const Values& results,
                     const Reuse& reuse = {}) const;

  // The same for all devices of a mesh: what was written is what each does
  // with its part of the arguments. Of each array that is handed in or out, the
  // axis that splits each dimension, or "", or several axes: "data,seq", the
  // last the fastest.
  struct Spread {
    std::vector<std::pair<std::string, int64_t>> sizes;  // of the mesh's axes
    std::vector<std::vector<std::string>> arguments, results;
  };
  std::string module(std::string_view name, const Values& results,
                     const Spread& spread, const Reuse& reuse = {}) const;

 private:
  Value fresh(Type type);
  void line(std::string_view text);
  Value constant(std::string_view text, Type type);
  Value op(std::string_view name, std::initializer_list<Value> operands,
           std::string_view attributes, Type result);
  Value same(std::string_view name, const Value& a, const Value& b);
  Value reduce(std::string_view kind, const Value& start, const Value& a,
               const Dims& over);
  // The region of two scalars, `kind` of which it returns.
  void combine(std::string_view kind, const Type& scalar);
  void region(const std::vector<Argument>& arguments,
              const std::function<Values()>& body);
  // What an op with regions gave: "%4#0", "%4#1".
  Values results_of(int number, const std::vector<Type>& types) const;

  std::vector<Value> arguments_;
  std::vector<std::pair<std::string, Value>> bound_;
  std::string text_;
  Element wide_ = Element::f32;
  int next_ = 0;
  int depth_ = 2;
};

}  // namespace tessera::xla
