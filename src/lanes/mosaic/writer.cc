// lanes/mosaic/writer.cc: one function per op, in MLIR's generic form.
#include "lanes/mosaic/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <utility>

namespace tessera::mosaic {
namespace {

constexpr std::string_view kNoWrap = "overflowFlags = #arith.overflow<none>";
constexpr std::string_view kExactMath = "fastmath = #arith.fastmath<none>";

std::string_view element_text(Element e) {
  constexpr std::string_view kTexts[] = {"i1",  "i32",  "index",
                                         "f32", "bf16", "!tpu.dma_semaphore"};
  return kTexts[static_cast<size_t>(e)];
}

std::string_view space_text(Space s) {
  constexpr std::string_view kTexts[] = {"", "smem", "vmem", "any",
                                         "semaphore_mem"};
  return kTexts[static_cast<size_t>(s)];
}

bool is_real(const Type& t) {
  return t.element == Element::f32 || t.element == Element::bf16;
}

std::string names_of(std::span<const Value> values) {
  std::string out;
  for (const Value& v : values) out += (out.empty() ? "" : ", ") + v.name;
  return out;
}

std::string types_of(std::span<const Value> values) {
  std::string out;
  for (const Value& v : values) {
    out += (out.empty() ? "" : ", ") + to_string(v.type);
  }
  return out;
}

// Bits, which the parser takes exactly; decimals would be rounded twice.
std::string real_text(float value) {
  return fmt::format("0x{:08X}", std::bit_cast<uint32_t>(value));
}

}  // namespace

Type scalar(Element e) { return {e, Space::none, {}}; }

Type vector_of(Element e, std::vector<int64_t> shape) {
  return {e, Space::none, std::move(shape)};
}

Type memref(Space space, Element e, std::vector<int64_t> shape) {
  return {e, space, std::move(shape)};
}

std::string to_string(const Type& type) {
  std::string inner;
  for (int64_t n : type.shape) inner += fmt::format("{}x", n);
  inner += element_text(type.element);
  if (type.is_memref()) {
    return fmt::format("memref<{}, #tpu.memory_space<{}>>", inner,
                       space_text(type.space));
  }
  return type.shape.empty() ? inner : fmt::format("vector<{}>", inner);
}

Writer::Writer(std::vector<Argument> arguments) {
  for (Argument& a : arguments) {
    arguments_.push_back({"%" + a.name, std::move(a.type)});
  }
}

const Value& Writer::argument(std::string_view name) const {
  const auto found =
      std::find_if(arguments_.begin(), arguments_.end(), [&](const Value& v) {
        return std::string_view(v.name).substr(1) == name;
      });
  assert(found != arguments_.end());
  return *found;
}

Writer::Region::Region(Writer& w, std::string_view name)
    : w_(w), before_(std::exchange(w.region_, std::string(name))) {}

Writer::Region::~Region() { w_.region_ = std::move(before_); }

void Writer::comment(std::string_view text) {
  text_ += fmt::format("{:{}}// {}\n", "", 2 * depth_, text);
}

std::string Writer::location() const {
  return fmt::format(" loc(#{})", region_);
}

void Writer::line(std::string_view text) {
  text_ += fmt::format("{:{}}{}\n", "", 2 * depth_, text);
}

Value Writer::fresh(Type type) {
  return {fmt::format("%{}", next_++), std::move(type)};
}

// The text `"op"(operands) {attributes} : (types) -> `. Lists the current
// region among those in use.
std::string Writer::call(std::string_view name, std::span<const Value> operands,
                         std::string_view attributes) {
  if (std::find(regions_.begin(), regions_.end(), region_) == regions_.end()) {
    regions_.push_back(region_);
  }
  return fmt::format(
      "\"stable_mosaic.{}\"({}){} : ({}) -> ", name, names_of(operands),
      attributes.empty() ? "" : fmt::format(" {{{}}}", attributes),
      types_of(operands));
}

Value Writer::op(std::string_view name, std::span<const Value> operands,
                 std::string_view attributes, Type result) {
  Value out = fresh(std::move(result));
  line(fmt::format("{} = {}{}{}", out.name, call(name, operands, attributes),
                   to_string(out.type), location()));
  return out;
}

void Writer::effect(std::string_view name, std::span<const Value> operands,
                    std::string_view attributes) {
  line(fmt::format("{}(){}", call(name, operands, attributes), location()));
}

Value Writer::constant(int32_t value) {
  std::string name = value < 0 ? fmt::format("%m{}", -int64_t{value})
                               : fmt::format("%c{}", value);
  const auto [at, added] =
      constants_.try_emplace(name, Constant{{name, scalar(Element::i32)}, {}});
  if (added) {
    at->second.text = fmt::format(
        "    {} = \"stable_mosaic.arith.constant\"() {{value = {} : i32}} : () "
        "-> i32 loc(#kernel)\n",
        name, value);
  }
  return at->second.value;
}

Value Writer::index(int64_t value) {
  std::string name = fmt::format("%i{}", value);
  const auto [at, added] = constants_.try_emplace(
      name, Constant{{name, scalar(Element::index)}, {}});
  if (added) {
    at->second.text = fmt::format(
        "    {} = \"stable_mosaic.arith.constant\"() {{value = {} : index}} : "
        "() -> index loc(#kernel)\n",
        name, value);
  }
  return at->second.value;
}

Value Writer::real(float value) {
  std::string name = fmt::format("%f{:08x}", std::bit_cast<uint32_t>(value));
  const auto [at, added] =
      constants_.try_emplace(name, Constant{{name, scalar(Element::f32)}, {}});
  if (added) {
    at->second.text = fmt::format(
        "    {} = \"stable_mosaic.arith.constant\"() {{value = {} : f32}} : () "
        "-> f32 loc(#kernel)  // {}\n",
        name, real_text(value), value);
  }
  return at->second.value;
}

Value Writer::splat(const Value& a, std::vector<int64_t> shape) {
  assert(a.type.shape.empty() && !a.type.is_memref());
  return broadcast(a, std::move(shape));
}

Value Writer::zeros(const Type& vector) {
  assert(is_real(vector) && !vector.is_memref());
  return op("arith.constant", {},
            fmt::format("value = dense<0.000000e+00> : {}", to_string(vector)),
            vector);
}

Value Writer::same(std::string_view integer, std::string_view real,
                   const Value& a, const Value& b) {
  assert(a.type == b.type && !a.type.is_memref());
  const bool wraps =
      integer == "addi" || integer == "subi" || integer == "muli";
  const Value both[] = {a, b};
  if (is_real(a.type)) {
    assert(!real.empty());
    return op(fmt::format("arith.{}", real), both, kExactMath, a.type);
  }
  return op(fmt::format("arith.{}", integer), both, wraps ? kNoWrap : "",
            a.type);
}

Value Writer::add(const Value& a, const Value& b) {
  return same("addi", "addf", a, b);
}
Value Writer::sub(const Value& a, const Value& b) {
  return same("subi", "subf", a, b);
}
Value Writer::mul(const Value& a, const Value& b) {
  return same("muli", "mulf", a, b);
}
Value Writer::div(const Value& a, const Value& b) {
  return same("divsi", "divf", a, b);
}
Value Writer::max(const Value& a, const Value& b) {
  return same("maxsi", "maximumf", a, b);
}
Value Writer::min(const Value& a, const Value& b) {
  return same("minsi", "minimumf", a, b);
}
Value Writer::bit_and(const Value& a, const Value& b) {
  return same("andi", "", a, b);
}
Value Writer::bit_or(const Value& a, const Value& b) {
  return same("ori", "", a, b);
}
Value Writer::shift_right(const Value& a, int32_t bits) {
  return same("shrui", "", a, constant(bits));
}

Value Writer::compare(Compare how, const Value& a, const Value& b) {
  assert(a.type == b.type && !a.type.is_memref());
  constexpr int kSigned[] = {0, 1, 2, 3, 4, 5};
  // The compiler takes no predicate that is true for NaN, so not_equal is the
  // inverse of equal.
  constexpr int kOrdered[] = {1, 1, 4, 5, 2, 3};
  const auto which = static_cast<size_t>(how);
  const Value both[] = {a, b};
  Type result = a.type;
  result.element = Element::i1;
  if (is_real(a.type)) {
    Value out =
        op("arith.cmpf", both,
           fmt::format("{}, predicate = {} : i64", kExactMath, kOrdered[which]),
           result);
    return how == Compare::not_equal ? invert(out) : out;
  }
  return op("arith.cmpi", both,
            fmt::format("predicate = {} : i64", kSigned[which]), result);
}

Value Writer::invert(const Value& condition) {
  const Type& type = condition.type;
  const Value yes =
      op("arith.constant", {},
         fmt::format("value = {}",
                     type.shape.empty()
                         ? "true"
                         : fmt::format("dense<true> : {}", to_string(type))),
         type);
  const Value both[] = {condition, yes};
  return op("arith.xori", both, "", type);
}

Value Writer::select(const Value& condition, const Value& yes,
                     const Value& no) {
  assert(yes.type == no.type && condition.type.element == Element::i1);
  assert(condition.type.shape.empty() ||
         condition.type.shape == yes.type.shape);
  const Value all[] = {condition, yes, no};
  return op("arith.select", all, "", yes.type);
}

Value Writer::exp2(const Value& a) {
  assert(is_real(a.type));
  return op("math.exp2", {&a, 1}, kExactMath, a.type);
}

Value Writer::log(const Value& a) {
  assert(is_real(a.type));
  return op("math.log", {&a, 1}, kExactMath, a.type);
}

Value Writer::tanh(const Value& a) {
  assert(is_real(a.type));
  return op("math.tanh", {&a, 1}, kExactMath, a.type);
}

Value Writer::to_bf16(const Value& a) {
  assert(a.type.element == Element::f32);
  return op("arith.truncf", {&a, 1}, "",
            vector_of(Element::bf16, a.type.shape));
}

Value Writer::to_f32(const Value& a) {
  assert(a.type.element == Element::bf16);
  return op("arith.extf", {&a, 1}, "", vector_of(Element::f32, a.type.shape));
}

Value Writer::to_index(const Value& a) {
  assert(a.type == scalar(Element::i32));
  return op("arith.index_cast", {&a, 1}, "", scalar(Element::index));
}

Value Writer::as_words(const Value& a) {
  assert(a.type.shape.size() == 2 && is_real(a.type));
  std::vector<int64_t> shape = a.type.shape;
  if (a.type.element == Element::bf16) shape[0] /= 2;
  return op("tpu.bitcast", {&a, 1}, "", vector_of(Element::i32, shape));
}

Value Writer::broadcast(const Value& a, std::vector<int64_t> shape) {
  return op("vector.broadcast", {&a, 1}, "",
            vector_of(a.type.element, std::move(shape)));
}

Value Writer::iota(std::vector<int64_t> shape, int32_t dimension) {
  return op("tpu.iota", {},
            fmt::format("dimensions = array<i32: {}>", dimension),
            vector_of(Element::i32, std::move(shape)));
}

Value Writer::reshape(const Value& a, std::vector<int64_t> shape) {
  return op("vector.shape_cast", {&a, 1}, "",
            vector_of(a.type.element, std::move(shape)));
}

Value Writer::transpose(const Value& a) {
  assert(a.type.shape.size() == 2);
  return op("tpu.transpose", {&a, 1}, "permutation = array<i64: 1, 0>",
            vector_of(a.type.element, {a.type.shape[1], a.type.shape[0]}));
}

Value Writer::join(std::span<const Value> parts, int32_t dimension) {
  assert(!parts.empty());
  if (parts.size() == 1) return parts[0];
  Type type = parts[0].type;
  const auto d = static_cast<size_t>(dimension);
  type.shape[d] = 0;
  for (const Value& v : parts) type.shape[d] += v.type.shape[d];
  return op("tpu.concatenate", parts,
            fmt::format("dimension = {} : i32", dimension), type);
}

Value Writer::first_row(const Value& a) {
  assert(a.type.shape.size() == 2);
  return op("vector.extract_strided_slice", {&a, 1},
            fmt::format("offsets = [0, 0], sizes = [1, {}], strides = [1, 1]",
                        a.type.shape[1]),
            vector_of(a.type.element, {1, a.type.shape[1]}));
}

Value Writer::reduce(std::string_view kind, float start, const Value& a,
                     int32_t dimension) {
  assert(a.type.element == Element::f32);
  std::vector<int64_t> shape = a.type.shape;
  shape.erase(shape.begin() + dimension);
  const Value both[] = {a, splat(real(start), shape)};
  return op("vector.multi_reduction", both,
            fmt::format("kind = #vector.kind<{}>, reduction_dims = array<i64: "
                        "{}>",
                        kind, dimension),
            vector_of(Element::f32, shape));
}

Value Writer::reduce_max(const Value& a, int32_t dimension) {
  return reduce("maximumf", -std::numeric_limits<float>::infinity(), a,
                dimension);
}

Value Writer::reduce_sum(const Value& a, int32_t dimension) {
  return reduce("add", 0, a, dimension);
}

Value Writer::total(const Value& a) {
  assert(a.type.shape.size() == 2 && a.type.element == Element::f32);
  const Value one = reshape(a, {1, a.type.shape[0], a.type.shape[1]});
  const Value both[] = {one, splat(real(0), {1})};
  const Value sum =
      op("vector.multi_reduction", both,
         "kind = #vector.kind<add>, reduction_dims = array<i64: 1, 2>",
         vector_of(Element::f32, {1}));
  const Value lone = reshape(sum, {1, 1, 1});
  return op("vector.extract", {&lone, 1},
            "static_position = array<i64: 0, 0, 0>", scalar(Element::f32));
}

Value Writer::matmul(const Value& a, int32_t of_a, const Value& b,
                     int32_t of_b) {
  assert(a.type.shape.size() == 2 && b.type.shape.size() == 2);
  assert(a.type.element == b.type.element);
  assert(a.type.shape[static_cast<size_t>(of_a)] ==
         b.type.shape[static_cast<size_t>(of_b)]);
  const std::vector<int64_t> shape = {
      a.type.shape[static_cast<size_t>(1 - of_a)],
      b.type.shape[static_cast<size_t>(1 - of_b)]};
  const Value all[] = {a, b, splat(real(0), shape)};
  // Without fp32 precision the matrix unit takes float32 operands as bf16.
  const bool is_exact = a.type.element == Element::f32;
  return op("tpu.matmul", all,
            fmt::format(
                "dimension_numbers = #tpu.dot_dimension_numbers<[{}], "
                "[{}], [{}], [{}], [0, {}, 1, {}], [], []>, "
                "{}transpose_lhs = false, transpose_rhs = false",
                of_a, of_b, 1 - of_a, 1 - of_b, 1 - of_a, 1 - of_b,
                is_exact ? "precision = #tpu.contract_precision<fp32>, " : ""),
            vector_of(Element::f32, shape));
}

Value Writer::load(const Value& ref, std::span<const Value> at,
                   std::vector<int64_t> shape) {
  assert(ref.type.space == Space::vmem && at.size() == ref.type.shape.size());
  assert(shape.size() == at.size());
  std::vector<Value> operands = {ref};
  operands.insert(operands.end(), at.begin(), at.end());
  return op("vector.load", operands, "",
            vector_of(ref.type.element, std::move(shape)));
}

Value Writer::load(const Value& ref) {
  const std::vector<Value> zeros(ref.type.shape.size(), index(0));
  return load(ref, zeros, ref.type.shape);
}

Value Writer::load_scalar(const Value& ref, const Value& at) {
  assert(ref.type.space == Space::smem && ref.type.shape.size() == 1);
  const Value both[] = {ref, to_index(at)};
  return op("memref.load", both, "", scalar(ref.type.element));
}

void Writer::store(const Value& value, const Value& ref,
                   std::span<const Value> at) {
  assert(ref.type.space == Space::vmem && at.size() == ref.type.shape.size());
  assert(value.type.element == ref.type.element);
  std::vector<Value> operands = {value, ref};
  operands.insert(operands.end(), at.begin(), at.end());
  effect("tpu.vector_store", operands,
         fmt::format("add = false, operandSegmentSizes = array<i32: 1, 1, {}, "
                     "0>, strides = array<i32>",
                     at.size()));
}

void Writer::store(const Value& value, const Value& ref) {
  assert(value.type.shape == ref.type.shape);
  const std::vector<Value> zeros(ref.type.shape.size(), index(0));
  store(value, ref, zeros);
}

void Writer::store_scalar(const Value& value, const Value& ref,
                          const Value& at) {
  assert(ref.type.space == Space::smem && ref.type.shape.size() == 1);
  assert(value.type == scalar(ref.type.element));
  const Value all[] = {value, ref, to_index(at)};
  effect("memref.store", all, "");
}

Value Writer::slice(const Value& ref, std::span<const Value> at,
                    std::vector<int64_t> shape, int drop) {
  assert(ref.type.is_memref() && at.size() == ref.type.shape.size());
  std::vector<Value> operands = {ref};
  operands.insert(operands.end(), at.begin(), at.end());
  Type type = ref.type;
  type.shape = std::move(shape);
  Value out =
      op("tpu.memref_slice", operands,
         fmt::format("operandSegmentSizes = array<i32: 1, {}, 0>", at.size()),
         type);
  if (drop == 0) return out;
  assert(std::all_of(type.shape.begin(), type.shape.begin() + drop,
                     [](int64_t n) { return n == 1; }));
  type.shape.erase(type.shape.begin(), type.shape.begin() + drop);
  return op("tpu.memref_squeeze", {&out, 1}, "", type);
}

void Writer::start_copy(const Value& from, const Value& to,
                        const Value& semaphore) {
  assert(from.type.shape == to.type.shape);
  assert(from.type.element == to.type.element);
  const Value all[] = {from, to, semaphore};
  effect("tpu.enqueue_dma", all,
         "operandSegmentSizes = array<i32: 1, 0, 1, 1, 0, 0>, priority = 0 : "
         "i32, strict_ordering = false");
}

void Writer::wait_copy(const Value& semaphore, const Value& like) {
  const Value all[] = {semaphore, like, like};
  effect("tpu.wait_dma2", all,
         "operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, strict_ordering = "
         "false");
}

void Writer::yield(std::span<const Value> values) {
  effect("scf.yield", values, "");
}

void Writer::if_then(const Value& condition,
                     const std::function<void()>& then) {
  if_else(condition, then, [] {});
}

void Writer::if_else(const Value& condition, const std::function<void()>& then,
                     const std::function<void()>& otherwise) {
  assert(condition.type == scalar(Element::i1));
  const std::string where = location();
  line(fmt::format("\"stable_mosaic.scf.if\"({}) ({{", condition.name));
  ++depth_;
  then();
  yield({});
  --depth_;
  line("}, {");
  ++depth_;
  otherwise();
  yield({});
  --depth_;
  line(fmt::format("}}) : (i1) -> (){}", where));
}

std::vector<Value> Writer::for_each(const Value& begin, const Value& end,
                                    std::vector<Value> carried,
                                    const Body& body) {
  const std::string where = location();
  std::vector<Value> operands = {begin, end, constant(1)};
  operands.insert(operands.end(), carried.begin(), carried.end());
  std::vector<Value> inner = {fresh(scalar(Element::i32))};
  std::string parameters = fmt::format("{}: i32", inner[0].name);
  for (const Value& v : carried) {
    inner.push_back(fresh(v.type));
    parameters += fmt::format(", {}: {}", inner.back().name, to_string(v.type));
  }
  const std::string result = fmt::format("%{}", next_++);
  line(fmt::format(
      "{}\"stable_mosaic.scf.for\"({}) ({{",
      carried.empty() ? "" : fmt::format("{}:{} = ", result, carried.size()),
      names_of(operands)));
  line(fmt::format("^bb0({}):", parameters));
  ++depth_;
  const std::vector<Value> next =
      body(inner[0], std::span<const Value>(inner).subspan(1));
  assert(next.size() == carried.size());
  yield(next);
  --depth_;
  line(fmt::format("}}) : ({}) -> ({}){}", types_of(operands),
                   types_of(carried), where));
  for (size_t i = 0; i < carried.size(); ++i) {
    carried[i].name = carried.size() == 1 ? fmt::format("{}#0", result)
                                          : fmt::format("{}#{}", result, i);
  }
  return carried;
}

std::string Writer::kernel(std::string_view name, int64_t grid) const {
  std::string parameters, windows;
  int prefetched = 0;
  int scratch = 0;
  bool in_scratch = false;  // scratch follows the arrays in HBM
  for (const Value& v : arguments_) {
    parameters += fmt::format("{}{}: {}", parameters.empty() ? "" : ",\n      ",
                              v.name, to_string(v.type));
    const Space space = v.type.space;
    in_scratch = in_scratch || space == Space::vmem;
    prefetched += space == Space::smem && !in_scratch;
    scratch += space != Space::none && in_scratch;
    if (space == Space::any) windows += windows.empty() ? "{}" : ", {}";
  }
  std::string out =
      "module attributes {stable_mosaic.version = 11 : i64} {\n"
      "  \"stable_mosaic.func.func\"() ({\n";
  out += fmt::format("  ^bb0({}):\n", parameters);
  for (const auto& [name_of, constant] : constants_) out += constant.text;
  out += text_;
  out += "    \"stable_mosaic.func.return\"() : () -> () loc(#kernel)\n";
  out += fmt::format(
      "  }}) {{function_type = ({}) -> (), sym_name = \"{}\", "
      "dimension_semantics = [#tpu.dimension_semantics<arbitrary>], "
      "iteration_bounds = array<i64: {}>, scalar_prefetch = {} : i64, "
      "scratch_operands = {} : i64, tpu.core_type = #tpu.core_type<tc>, "
      "window_params = [{}]}} : () -> () loc(#kernel)\n}} loc(#kernel)\n",
      types_of(arguments_), name, grid, prefetched, scratch, windows);
  out += "#kernel = loc(\"kernel\":1:1)\n";
  for (const std::string& r : regions_) {
    if (r != "kernel") out += fmt::format("#{} = loc(\"{}\":1:1)\n", r, r);
  }
  return out;
}

}  // namespace tessera::mosaic
