// lanes/xla/writer.h: writes a StableHLO program as text, op by op.
//
// A value knows its type, so the writer fills in every type of the text and
// asserts that operands fit. The text should pass the verifier of any plugin.
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

// Writes the program's one function. An op is appended at the top level, or in
// the region that `loop` or `choose` writes. A region may use outside values.
class Writer {
 public:
  // `wide`: the type of sums and scores, float32, or float64 to be exact.
  explicit Writer(std::vector<Argument> arguments, Element wide = Element::f32);
  Element wide() const { return wide_; }

  bool has_argument(std::string_view name) const;
  // The value bound to the name last, or the argument.
  const Value& argument(std::string_view name) const;
  void bind(std::string name, Value value);

  // Constants whose elements are all equal.
  Value integer(int32_t value, Dims dims = {});
  Value real(double value, Dims dims = {});  // wide
  Value real(double value, Dims dims, Element element);
  Value reals(std::span<const double> values);  // [n], wide
  Value truth(bool value, Dims dims = {});
  // 0, 1, 2, ... along the dimension.
  Value iota(Dims dims, int64_t dimension);

  // Elementwise; both operands have one type.
  Value add(const Value& a, const Value& b);
  Value sub(const Value& a, const Value& b);
  Value mul(const Value& a, const Value& b);
  Value div(const Value& a, const Value& b);  // integers: toward zero
  Value max(const Value& a, const Value& b);  // NaN if either is NaN
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
  // Rows of a table [rows, width] by number, [n]; numbers must be in range.
  Value rows(const Value& table, const Value& numbers);
  // Adds `more`, [n, width], to rows by number. A number may occur repeatedly.
  Value add_rows(const Value& table, const Value& numbers, const Value& more);
  // An optimization barrier: the same values, but the compiler cannot merge ops
  // on them with ops on the originals.
  std::vector<Value> barrier(const std::vector<Value>& values);
  // A custom call of `target`. `attributes`: its other attributes, as in
  // `kernel_name = "f", ...`. Compiler dumps show `label`.
  std::vector<Value> call(std::string_view target, std::string_view label,
                          const std::vector<Value>& operands,
                          std::string_view attributes,
                          const std::vector<Type>& results);
  // A block of `dims` that begins at `at`, one scalar for each dimension.
  Value slice(const Value& a, std::span<const Value> at, Dims dims);
  Value update(const Value& a, const Value& block, std::span<const Value> at);
  // One element of an array of one dimension, as a scalar.
  Value element(const Value& a, const Value& at);
  // Concatenates along one dimension; the other sizes must be equal.
  Value join(std::span<const Value> parts, int64_t along);
  // Collective permute. Each hop is (source, target), as device numbers of the
  // mesh; a device that receives nothing has zeros.
  using Hops = std::vector<std::pair<int64_t, int64_t>>;
  Value permute(const Value& a, const Hops& hops);
  // Groups of devices that communicate, as ordered device numbers. All groups
  // have one size, and each device is in exactly one.
  using Groups = std::vector<std::vector<int64_t>>;
  // All-to-all: the n-th device of a group gets the n-th block along `along` of
  // each device, concatenated along `into`.
  Value exchange(const Value& a, int64_t along, const Groups& groups,
                 int64_t into = 0);
  // All-gather: the arrays of a group, concatenated along `along`.
  Value gather(const Value& a, int64_t along, const Groups& groups);
  // Ragged all-to-all: slices along dimension 0, to and from each device of a
  // group, with sizes read at run time. Elements of `into` that receive nothing
  // stay. CPUs have no such op.
  struct Slices {
    // [group] each: begin and size of the slice for each device, where the
    // slice begins at that device, and the size of what comes from each.
    Value begins, sizes, begins_there, sizes_here;
  };
  Value ragged_exchange(const Value& a, const Value& into, const Slices& slices,
                        const Groups& groups);
  // Reduce over dimensions, which are removed. An empty sum is 0.
  Value reduce_max(const Value& a, const Dims& over);
  Value reduce_sum(const Value& a, const Dims& over);
  Value reduce_any(const Value& a, const Dims& over);

  struct Contraction {
    Dims batch_a, batch_b, a, b;
  };
  // The result is float32 (float64 for float64): batch dimensions, then the
  // free dimensions of a, then those of b.
  Value dot(const Value& a, const Value& b, const Contraction& over);

  using Values = std::vector<Value>;
  using Test = std::function<Value(const Values& carried)>;
  using Body = std::function<Values(const Values& carried)>;
  // Repeats `body` while `test` holds.
  Values loop(const Values& start, const Test& test, const Body& body);
  // For i in [begin, end); both are scalars.
  using CountedBody = std::function<Values(const Value& i, const Values&)>;
  Values count(const Value& begin, const Value& end, const Values& start,
               const CountedBody& body);
  using Branch = std::function<Values()>;
  Values choose(const Value& condition, const Branch& yes, const Branch& no);
  // Runs the branch of that number, or the last if the number is out of range.
  Values choose(const Value& number, std::span<const Branch> branches);

  // Writes a comment line into the text.
  void comment(std::string_view text);

  // (argument, result number): the result may reuse the argument's memory. A
  // caller that donates the argument loses it.
  using Reuse = std::vector<std::pair<std::string, size_t>>;
  // The text of the whole module, which returns `results`.
  std::string module(std::string_view name, const Values& results,
                     const Reuse& reuse = {}) const;

  // The same for all devices of a mesh: each device runs what was written on
  // its part of the arguments. For each dimension of each argument and result:
  // the axis that splits it, "", or several ("data,seq": the last is fastest).
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
  // Writes a region of two scalars that returns `kind` of them.
  void combine(std::string_view kind, const Type& scalar);
  void region(const std::vector<Argument>& arguments,
              const std::function<Values()>& body);
  // The results of an op with regions: "%4#0", "%4#1".
  Values results_of(int number, const std::vector<Type>& types) const;

  std::vector<Value> arguments_;
  std::vector<std::pair<std::string, Value>> bound_;
  std::string text_;
  Element wide_ = Element::f32;
  int next_ = 0;
  int depth_ = 2;
};

}  // namespace tessera::xla
