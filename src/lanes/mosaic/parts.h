// lanes/mosaic/parts.h: what the forward and the backward kernel are both made
// of: packed steps, rings of buffers, ids, legal pairs, the function around it.
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

// Of queries, keys, values and outputs.
inline Element element_of(const KernelShape& s) {
  return s.dtype == Dtype::f32 ? Element::f32 : Element::bf16;
}

// Arguments, by where they lie.
Argument in_hbm(std::string name, Element e, std::vector<int64_t> shape);
Argument in_vmem(std::string name, Element e, std::vector<int64_t> shape);
// Of every head a vector for each token; and the shape of n tiles of those.
Argument of_tokens(const KernelShape& s, std::string name, Element e,
                   int64_t heads, int64_t tokens, int64_t dim);
// `array` of keys, or its parts.
void add_of_keys(const KernelShape& s, const char* array, Element e,
                 int64_t dim, std::vector<Argument>& to);
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
// These, which every kernel begins with, and the ids. Where steps
// come in pages these lie in HBM, and scratch has a page and the other arrays.
std::vector<Argument> scalar_arguments(const KernelShape& s);
std::vector<Argument> page_scratch(const KernelShape& s);
std::vector<Argument> id_arguments(const KernelShape& s);
std::vector<Argument> id_scratch(const KernelShape& s);
// Where bitmaps say which pairs are legal; else none.
std::vector<Argument> bit_arguments(const KernelShape& s);
std::vector<Argument> bit_scratch(const KernelShape& s, int64_t ring);

// Of `range`: the bounds of each list; with pages what each holds, and then how
// many rows each list has. The words of chunks are behind.
int64_t range_words(const KernelShape& s);
int64_t first_chunk_word(const KernelShape& s);

// What a kernel asks of the core's memories.
int64_t vector_bytes(const std::vector<Argument>& arguments);
int64_t scalar_words_of(const std::vector<Argument>& arguments);

// An op is written where its function is called, and C++ leaves the order of a
// call's arguments open: no call here has two arguments that write.
class Parts {
 protected:
  Parts(const KernelShape& shape, const std::vector<Argument>& arguments);

  // The fields of a packed step: of the transposed list its row is the key
  // tile, its column the query tile.
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
  // Not one that fills a pass up.
  Value is_live(const Value& word) {
    return is_true(w_.bit_and(word, w_.constant(12)));
  }
  // Class 2 in every step of the pass at `at`, or not in all.
  Value all_full(const Value& at) { return fullness(at, Compare::equal); }
  Value not_all_full(const Value& at) {
    return fullness(at, Compare::not_equal);
  }
  Value fullness(const Value& at, Compare how);
  // A scalar array where the core reads it: of steps the page that is there.
  const Value& scalars(const char* name);
  // Where a list's steps begin, among those of all lists' chunks.
  Value first_steps() {
    return s_.in_chunks() ? times(list_, s_.chunks()) : list_;
  }
  // Pages of a list are numbered from the first list's on.
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

  // Arrays [n, a, b] of which one [a, b] is looked at.
  Value in_ring(const char* name, const Value& slot);
  Value semaphore(const char* name, const Value& slot) {
    return w_.slice(w_.argument(name), {&slot, 1}, {1}, 1);
  }
  Value load_slot(const char* name, const Value& slot);
  void store_slot(const Value& value, const char* name, const Value& slot);
  // Arrays with `heads` such for each slot: all of them, and the number of
  // head h's.
  Value heads_in(const char* name, const Value& slot, int64_t heads);
  Value of_head(const Value& slot, int64_t heads, int64_t h) {
    const Value first = times(slot, heads);
    return h == 0 ? first : w_.add(first, number(h));
  }

  // Of an array of tokens heads' tiles that begin at one; and where one lies in
  // some slots of a ring.
  Value tokens_of(std::string_view array, const Value& head, int64_t heads,
                  const Value& token, int64_t tokens, int64_t dim);
  // For the part that a tile of keys lies in, which begins at `key` of all, and
  // where that is in it.
  using OfPart = std::function<void(size_t part, const Value& key)>;
  void in_key_part(const Value& key, const OfPart& body);
  Value tokens_in(const char* ring, const Value& slot, int64_t slots,
                  int64_t token, int64_t tokens, int64_t dim);

  Value whole(const Value& a, std::vector<int64_t> shape) {
    return w_.broadcast(a, std::move(shape));
  }
  // To the type of the arrays, and from it to float32.
  Value narrow(const Value& a) {
    return s_.dtype == Dtype::f32 ? a : w_.to_bf16(a);
  }
  Value wide(const Value& a) {
    return s_.dtype == Dtype::f32 ? a : w_.to_f32(a);
  }

  // A stray is a number that is NaN or infinite (strays.cc). Whether what heads
  // have of a slot of these rings has one:
  Value has_strays(std::initializer_list<const char*> rings, const Value& slot,
                   int64_t heads);
  Value is_finite(const Value& wide);
  Value without_strays(const Value& a);  // they are 0
  // K, as NaN for each token in whose V there is one.
  Value with_nan(const Value& k, int64_t k_dim, const Value& v, int64_t v_dim);
  // Of one head's tile of keys in the rings: V without strays, K as above.
  void take_strays_of_keys(const Value& own);
  Value as_ones(const Value& flags);   // and zeros
  Value any_true(const Value& flags);  // a scalar

  // Products of q and k as the softmax takes them: with a cap the tanh, else
  // as they are. Times `unit` they are scores.
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
  // A key that no veto takes.
  Value seen(const Value& ids) {
    return w_.compare(Compare::greater_or_equal, ids,
                      w_.splat(w_.constant(0), ids.type.shape));
  }
  // Which pairs of these keys and of a tile's queries from `first` on are
  // legal: [keys, queries_]. `ids` are of the queries, [1, queries_], `key_ids`
  // [keys, 128], one a sublane; each block_kv of the keys are tile key_tile(0),
  // key_tile(1), ...
  Value legal(const Value& query_row, const Value& ids, const Value& key_ids,
              const std::function<Value(int64_t)>& key_tile, int64_t first = 0);

  // The bitmaps of a pass's tiles: on their way to a slot, there, and which
  // pairs they say are legal, [block_kv, queries_] a tile.
  void fetch_bits(const Value& at, const Value& slot);
  void wait_bits(const Value& slot);
  Value legal_bits(const Value& slot, int64_t first_tile, int64_t tiles,
                   int64_t first = 0);

  // The head's sink logit, in a vector of this shape.
  Value sink_of(const Value& head, std::vector<int64_t> shape) {
    return w_.splat(w_.load_scalar(scalars("sink_logits"), head),
                    std::move(shape));
  }

  // The number of the list's n-th head among all.
  Value head_number(const Value& n) {
    return s_.plan_heads == 1 ? n : w_.add(first_head_, n);
  }

  // Writes the function whose body is `batch_row`, for every list with steps;
  // where these come in pages, for every page with some, or once a list whose
  // body takes its pages in turn.
  enum class Grid : uint8_t { pages, lists };
  std::string function(std::string_view name, Grid grid,
                       const std::function<void()>& batch_row);

  void begin_list(Grid grid);
  int64_t rows_at_a_time(int64_t rows, int64_t columns) const;

  const KernelShape& s_;
  int64_t queries_;  // of a tile, that vectors are of
  Writer w_;
  Value grid_row_;  // a list, or a page
  Value list_;      // of one plan head of a batch row
  Value batch_row_, first_head_;
  Value begin_, end_;  // its steps; those of the page that is there
};

}  // namespace tessera::mosaic
