// lanes/mosaic/parts.h: what the forward and the backward kernel share: packed
// steps, rings of buffers, ids, legal pairs, the function around the body.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr double kLn2 = 0.69314718055994530942;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kLowest = std::numeric_limits<float>::lowest();

// Element type of queries, keys, values and outputs.
inline Element element_of(const KernelShape& s) {
  return s.dtype == Dtype::f32 ? Element::f32 : Element::bf16;
}

// Arguments, by where they lie.
Argument in_hbm(std::string name, Element e, std::vector<int64_t> shape);
Argument in_vmem(std::string name, Element e, std::vector<int64_t> shape);
// An array in HBM with a vector for each head and token.
Argument of_tokens(const KernelShape& s, std::string name, Element e,
                   int64_t heads, int64_t tokens, int64_t dim);
// Adds the argument `array` of keys, or one argument for each part of the keys.
void add_of_keys(const KernelShape& s, const char* array, Element e,
                 int64_t dim, std::vector<Argument>& to);
// Shape of n tiles of such vectors.
std::vector<int64_t> tiles_of(const KernelShape& s, int64_t n, int64_t tokens,
                              int64_t dim);
Argument in_smem(std::string name, int64_t words, Element e = Element::i32);
Argument semaphores(std::string name, std::vector<int64_t> shape);
// A scalar array: its words, and how many of them scalar memory has at a time.
struct Scalars {
  std::string name;
  int64_t words = 0, here = 0;
  Element element = Element::i32;
};
std::vector<Scalars> scalars_of(const KernelShape& s);
// Arguments for scalars_of(), with which every kernel begins. Where steps come
// in pages these arrays lie in HBM, and page_scratch() has one page of steps
// and copies of the other arrays.
std::vector<Argument> scalar_arguments(const KernelShape& s);
std::vector<Argument> page_scratch(const KernelShape& s);
std::vector<Argument> id_arguments(const KernelShape& s);
std::vector<Argument> id_scratch(const KernelShape& s);
// Empty where no bitmaps say which pairs are legal.
std::vector<Argument> bit_arguments(const KernelShape& s);
std::vector<Argument> bit_scratch(const KernelShape& s, int64_t ring);

// Words of `range`: the bounds of each list or, with pages, the steps of each
// page and then the rows of each list. The words of chunks follow, from
// first_chunk_word() on.
int64_t range_words(const KernelShape& s);
int64_t first_chunk_word(const KernelShape& s);

// Vector memory and scalar memory that a kernel's arguments take.
int64_t vector_bytes(const std::vector<Argument>& arguments);
int64_t scalar_words_of(const std::vector<Argument>& arguments);

// A call of a writer function writes its op, and C++ does not fix the order in
// which arguments are evaluated: no call here has two arguments that write ops.
class Parts {
 protected:
  Parts(const KernelShape& shape, const std::vector<Argument>& arguments);

  // The fields of a packed step. In a transposed list the row is the key tile,
  // the column the query tile.
  Value row_of(const Value& word) { return w_.shift_right(word, 18); }
  Value column_of(const Value& word) {
    return w_.bit_and(w_.shift_right(word, 4), w_.constant(0x3fff));
  }
  Value is_first(const Value& word) {
    return w_.bit_and(w_.shift_right(word, 1), w_.constant(1));
  }
  Value is_last(const Value& word) { return w_.bit_and(word, w_.constant(1)); }
  Value is_true(const Value& flag) {
    return w_.compare(Compare::not_equal, flag, w_.constant(0));
  }
  // Not class 0, which is filler.
  Value is_live(const Value& word) {
    return is_true(w_.bit_and(word, w_.constant(12)));
  }
  // Whether all steps of the pass at `at` have class 2 (full), or not all.
  Value all_full(const Value& at) { return fullness(at, Compare::equal); }
  Value not_all_full(const Value& at) {
    return fullness(at, Compare::not_equal);
  }
  Value fullness(const Value& at, Compare how);
  // A scalar array in scalar memory; of paged steps the loaded page.
  const Value& scalars(const char* name);
  // Index of the list's first chunk among the chunks of all lists.
  Value first_steps() {
    return s_.in_chunks() ? times(list_, s_.chunks()) : list_;
  }
  // Pages are numbered through all lists.
  Value page_number(const Value& list, const Value& page) {
    return w_.add(times(list, s_.pages), page);
  }
  Value page_end(const Value& number) {
    return w_.load_scalar(scalars("range"), number);
  }
  void load_scalars();
  void load_page(const Value& number);
  Value word(const Value& at, int64_t tile = 0);

  Value number(int64_t n) { return w_.constant(static_cast<int32_t>(n)); }
  Value times(const Value& a, int64_t n) { return w_.mul(a, number(n)); }
  Value less(const Value& a, const Value& b) {
    return w_.compare(Compare::less, a, b);
  }

  // Access to one slot [a, b] of an array [n, a, b].
  Value in_ring(const char* name, const Value& slot);
  Value semaphore(const char* name, const Value& slot) {
    return w_.slice(w_.argument(name), {&slot, 1}, {1}, 1);
  }
  Value load_slot(const char* name, const Value& slot);
  void store_slot(const Value& value, const char* name, const Value& slot);
  // Arrays with `heads` entries a slot: a slot's entries, and head h's index.
  Value heads_in(const char* name, const Value& slot, int64_t heads);
  Value of_head(const Value& slot, int64_t heads, int64_t h) {
    const Value first = times(slot, heads);
    return h == 0 ? first : w_.add(first, number(h));
  }

  // Tokens [token, token + tokens) of an array of tokens, for `heads` heads.
  Value tokens_of(std::string_view array, const Value& head, int64_t heads,
                  const Value& token, int64_t tokens, int64_t dim);
  // Runs body(part, key) for the part (KernelShape::key_parts) with the tile
  // that begins at `key`; the body's key counts from the start of the part.
  using OfPart = std::function<void(size_t part, const Value& key)>;
  void in_key_part(const Value& key, const OfPart& body);
  // Tokens [token, token + tokens) of `slots` slots of a ring.
  Value tokens_in(const char* ring, const Value& slot, int64_t slots,
                  int64_t token, int64_t tokens, int64_t dim);

  Value whole(const Value& a, std::vector<int64_t> shape) {
    return w_.broadcast(a, std::move(shape));
  }
  // Converts to the arrays' element type, and from it to float32.
  Value narrow(const Value& a) {
    return s_.dtype == Dtype::f32 ? a : w_.to_bf16(a);
  }
  Value wide(const Value& a) {
    return s_.dtype == Dtype::f32 ? a : w_.to_f32(a);
  }

  // A stray is a number that is NaN or infinite (strays.cc). has_strays:
  // whether the slot's entries of any of these rings have a stray.
  Value has_strays(std::initializer_list<const char*> rings, const Value& slot,
                   int64_t heads);
  Value is_finite(const Value& wide);
  Value without_strays(const Value& a);  // strays become 0
  // K, with the vector of each key set to NaN whose V has a stray.
  Value with_nan(const Value& k, int64_t k_dim, const Value& v, int64_t v_dim);
  // Repairs a head's tile of keys: V gets without_strays(), K with_nan().
  void take_strays_of_keys(const Value& own);
  Value as_ones(const Value& flags);   // true: 1, false: 0
  Value any_true(const Value& flags);  // a scalar

  // What the softmax takes for products of q and k: their tanh with a softcap,
  // else the products themselves. Multiplied by unit() they are scores.
  Value scores_of(const Value& products);
  double unit() const { return s_.softcap == 0 ? s_.scale : s_.softcap; }
  Value log2_e() { return w_.real(static_cast<float>(kLog2E)); }
  Value unit_log2() { return w_.real(static_cast<float>(unit() * kLog2E)); }

  void copy_ids();
  Value ids_at(const char* name, const Value& line);
  // The ids of a tile's queries from `first` on, [1, queries_].
  Value query_ids(const Value& query_row, int64_t first = 0);
  // 128 ids of keys, one a sublane and the same in all lanes.
  Value upright(const Value& ids, int64_t lanes) {
    return w_.transpose(whole(ids, {lanes, kLanes}));
  }
  // Keys or queries that no veto takes: their ids are not negative.
  Value seen(const Value& ids) {
    return w_.compare(Compare::greater_or_equal, ids,
                      w_.splat(w_.constant(0), ids.type.shape));
  }
  // Which pairs of keys and of a tile's queries from `first` on are legal,
  // [keys, queries_]. `ids` are the queries', [1, queries_]; `key_ids` the
  // keys', [keys, 128], one a sublane. The keys are tiles key_tile(0),
  // key_tile(1), ... of block_kv keys each.
  Value legal(const Value& query_row, const Value& ids, const Value& key_ids,
              const std::function<Value(int64_t)>& key_tile, int64_t first = 0);

  // The bitmaps of a pass's tiles: starting their copies to a slot, waiting for
  // these, and unpacking them to legal pairs, [block_kv, queries_] a tile.
  void fetch_bits(const Value& at, const Value& slot);
  void wait_bits(const Value& slot);
  Value legal_bits(const Value& slot, int64_t first_tile, int64_t tiles,
                   int64_t first = 0);

  // The head's sink logit, in a vector of this shape.
  Value sink_of(const Value& head, std::vector<int64_t> shape) {
    return w_.splat(w_.load_scalar(scalars("sink_logits"), head),
                    std::move(shape));
  }

  // The number of the list's n-th head among all heads.
  Value head_number(const Value& n) {
    return s_.plan_heads == 1 ? n : w_.add(first_head_, n);
  }

  // Writes the function, which runs `batch_row` for every list with steps.
  // Where steps come in pages it does so for every page with steps
  // (Grid::pages), or once a list, and the body walks the pages (Grid::lists).
  enum class Grid : uint8_t { pages, lists };
  std::string function(std::string_view name, Grid grid,
                       const std::function<void()>& batch_row);

  void begin_list(Grid grid);
  int64_t rows_at_a_time(int64_t rows, int64_t columns) const;

  const KernelShape& s_;
  int64_t queries_;  // that a vector holds: a tile's or a strip's
  Writer w_;
  Value grid_row_;  // a list, or a page
  Value list_;      // of one plan head of a batch row
  Value batch_row_, first_head_;
  Value begin_, end_;  // steps of the list, or of the loaded page
};

}  // namespace tessera::mosaic
