// lanes/mosaic/writer.h: writes one Mosaic kernel as text, op by op.
//
// A value knows its type, so the writer fills in every type of the text and
// refuses (by assert) operands that do not fit: what it prints is meant to pass
// the verifiers of jaxlib and libtpu as it stands.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::mosaic {

enum class Element : uint8_t { i1, i32, index, f32, bf16, semaphore };
// Memory that a memref lies in; `none`: a scalar or, with a shape, a vector.
enum class Space : uint8_t { none, smem, vmem, any, semaphore };

struct Type {
  Element element = Element::i32;
  Space space = Space::none;
  std::vector<int64_t> shape;

  bool operator==(const Type&) const = default;
  bool is_memref() const { return space != Space::none; }
};

Type scalar(Element e);
Type vector_of(Element e, std::vector<int64_t> shape);
Type memref(Space space, Element e, std::vector<int64_t> shape);
std::string to_string(const Type& type);

struct Value {
  std::string name;  // "%12", "%c4_i32"
  Type type;
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
  // The shape is [..., dim, tokens], in the program [..., tokens, dim].
  bool tokens_last = false;
};

// Writes the function of a kernel. Ops are appended at the top level, or inside
// the body that if_then, if_else or for_each is writing.
class Writer {
 public:
  explicit Writer(std::vector<Argument> arguments);

  const Value& argument(std::string_view name) const;

  // Ops from here on belong to this region of the kernel: each carries the
  // name as its location, which the compiler's dumps show. Lasts for the scope.
  class Region {
   public:
    Region(Writer& w, std::string_view name);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

   private:
    Writer& w_;
    std::string before_;
  };
  void comment(std::string_view text);

  // Each constant is written once, at the top of the function.
  Value constant(int32_t value);
  Value index(int64_t value);
  Value real(float value);
  Value splat(const Value& scalar, std::vector<int64_t> shape);
  Value zeros(const Type& vector);

  // Integer or float, scalar or vector, both sides of one type.
  Value add(const Value& a, const Value& b);
  Value sub(const Value& a, const Value& b);
  Value mul(const Value& a, const Value& b);
  Value div(const Value& a, const Value& b);  // integers: toward zero
  Value max(const Value& a, const Value& b);
  Value min(const Value& a, const Value& b);
  Value bit_and(const Value& a, const Value& b);
  Value bit_or(const Value& a, const Value& b);
  Value shift_right(const Value& a, int32_t bits);  // zeros come in
  Value compare(Compare how, const Value& a, const Value& b);
  Value invert(const Value& condition);
  Value select(const Value& condition, const Value& yes, const Value& no);
  Value exp2(const Value& a);
  Value log(const Value& a);
  Value tanh(const Value& a);
  Value to_bf16(const Value& a);
  Value to_f32(const Value& a);
  Value to_index(const Value& a);
  // Bits of a two-dimensional vector as int32; a word has two rows of bf16.
  Value as_words(const Value& a);

  // Vectors.
  Value broadcast(const Value& a, std::vector<int64_t> shape);
  Value iota(std::vector<int64_t> shape, int32_t dimension);
  Value reshape(const Value& a, std::vector<int64_t> shape);
  Value transpose(const Value& a);  // of two dimensions
  Value join(std::span<const Value> parts, int32_t dimension);
  Value first_row(const Value& a);  // [n, m] -> [1, m]
  Value reduce_max(const Value& a, int32_t dimension);
  Value reduce_sum(const Value& a, int32_t dimension);
  Value total(const Value& a);  // [n, m] -> scalar
  // Contracts dimension `of_a` of a with `of_b` of b. The result is float32;
  // float32 operands are multiplied in full precision.
  Value matmul(const Value& a, int32_t of_a, const Value& b, int32_t of_b);

  // Memory. A slice keeps its rank until `drop` leading dimensions of size 1
  // are squeezed away.
  Value load(const Value& ref, std::span<const Value> at,
             std::vector<int64_t> shape);
  Value load(const Value& ref);  // all of it
  Value load_scalar(const Value& ref, const Value& at);
  void store(const Value& value, const Value& ref, std::span<const Value> at);
  void store(const Value& value, const Value& ref);  // all of it
  void store_scalar(const Value& value, const Value& ref, const Value& at);
  Value slice(const Value& ref, std::span<const Value> at,
              std::vector<int64_t> shape, int drop);
  void start_copy(const Value& from, const Value& to, const Value& semaphore);
  // Waits for as many bytes as `like` has.
  void wait_copy(const Value& semaphore, const Value& like);

  // Control.
  void if_then(const Value& condition, const std::function<void()>& then);
  void if_else(const Value& condition, const std::function<void()>& then,
               const std::function<void()>& otherwise);
  using Body = std::function<std::vector<Value>(
      const Value& i, std::span<const Value> carried)>;
  std::vector<Value> for_each(const Value& begin, const Value& end,
                              std::vector<Value> carried, const Body& body);

  // The whole module: one function that runs for each of `grid` rows. Its
  // arguments: the row, arrays in scalar memory, arrays in HBM, scratch.
  std::string kernel(std::string_view name, int64_t grid) const;

 private:
  Value fresh(Type type);
  std::string call(std::string_view name, std::span<const Value> operands,
                   std::string_view attributes);
  Value op(std::string_view name, std::span<const Value> operands,
           std::string_view attributes, Type result);
  void effect(std::string_view name, std::span<const Value> operands,
              std::string_view attributes);
  void line(std::string_view text);
  std::string location() const;
  void yield(std::span<const Value> values);
  Value same(std::string_view integer, std::string_view real, const Value& a,
             const Value& b);
  Value reduce(std::string_view kind, float start, const Value& a,
               int32_t dimension);

  std::vector<Value> arguments_;
  struct Constant {
    Value value;
    std::string text;
  };
  std::map<std::string, Constant> constants_;  // by name: a fixed order
  std::string text_;
  std::string region_ = "kernel";
  std::vector<std::string> regions_;  // in order of first use
  int next_ = 0;
  int depth_ = 2;
};

}  // namespace tessera::mosaic
