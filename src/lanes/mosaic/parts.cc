// lanes/mosaic/parts.cc: see parts.h.
#include "lanes/mosaic/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/integers.h"

namespace tessera::mosaic {
namespace {

std::vector<Argument> with_batch_row(const std::vector<Argument>& arguments) {
  std::vector<Argument> out = {{"batch_row", scalar(Element::i32)}};
  out.insert(out.end(), arguments.begin(), arguments.end());
  return out;
}

// Bytes in the compiler's layout: a line is padded to whole lanes, and the
// number of lines to a multiple of eight or, if fewer, to a power of two.
int64_t bytes_of(const Type& type) {
  std::vector<int64_t> dims = type.shape;
  int64_t& lines = dims.end()[-2];
  const auto few = std::bit_ceil(static_cast<uint64_t>(lines));
  lines = round_up(lines, std::min(static_cast<int64_t>(few), kSublanes));
  dims.back() = round_up(dims.back(), kLanes);
  int64_t n = type.element == Element::bf16 ? 2 : 4;
  for (const int64_t d : dims) n *= d;
  return n;
}

}  // namespace

Argument in_hbm(std::string name, Element e, std::vector<int64_t> shape) {
  return {std::move(name), memref(Space::any, e, std::move(shape))};
}
Argument in_vmem(std::string name, Element e, std::vector<int64_t> shape) {
  return {std::move(name), memref(Space::vmem, e, std::move(shape))};
}

std::vector<int64_t> tiles_of(const KernelShape& s, int64_t n, int64_t tokens,
                              int64_t dim) {
  const std::vector<int64_t> tile = s.tile_of(tokens, dim);
  return {n, tile[0], tile[1]};
}

Argument of_tokens(const KernelShape& s, std::string name, Element e,
                   int64_t heads, int64_t tokens, int64_t dim) {
  std::vector<int64_t> shape = tiles_of(s, heads, tokens, dim);
  shape.insert(shape.begin(), s.batch);
  Argument out = in_hbm(std::move(name), e, std::move(shape));
  out.tokens_last = tokens_last(dim);
  return out;
}

void add_of_keys(const KernelShape& s, const char* array, Element e,
                 int64_t dim, std::vector<Argument>& to) {
  std::vector<int64_t> parts = s.key_parts;
  if (parts.empty()) parts = {s.kv_len};
  for (size_t i = 0; i < parts.size(); ++i) {
    to.push_back(
        of_tokens(s, key_part(array, i), e, s.kv_heads, parts[i], dim));
  }
}

Argument in_smem(std::string name, int64_t words, Element e) {
  return {std::move(name), memref(Space::smem, e, {words})};
}
Argument semaphores(std::string name, std::vector<int64_t> shape) {
  return {std::move(name),
          memref(Space::semaphore, Element::semaphore, std::move(shape))};
}

int64_t first_chunk_word(const KernelShape& s) {
  if (s.page == 0) return s.step_lists() + 1;
  return s.step_lists() * (s.pages + 1);
}

int64_t range_words(const KernelShape& s) {
  return first_chunk_word(s) +
         (s.in_chunks() ? s.step_lists() * kChunkWords : 0);
}

std::vector<Scalars> scalars_of(const KernelShape& s) {
  const int64_t steps = s.page > 0 ? s.page : s.steps;
  std::vector<Scalars> out = {
      {"steps", s.steps, steps},
      {"range", range_words(s), range_words(s)},
      {"bounds", kBoundsHead + s.batch, kBoundsHead + s.batch}};
  if (s.bitmaps > 0) out.push_back({"bits_of", s.steps, steps});
  if (s.in_parts) {
    const int64_t words = s.step_lists() * (kRowsHead + s.rows_at_once());
    out.push_back({"rows", words, words});
  }
  if (s.has_sinks) {
    out.push_back({"sink_logits", s.heads, s.heads, Element::f32});
  }
  return out;
}

std::vector<Argument> scalar_arguments(const KernelShape& s) {
  std::vector<Argument> out;
  for (const Scalars& a : scalars_of(s)) {
    out.push_back(s.page > 0 ? in_hbm(a.name, a.element, {a.words})
                             : in_smem(a.name, a.words, a.element));
  }
  return out;
}

std::vector<Argument> page_scratch(const KernelShape& s) {
  if (s.page == 0) return {};
  std::vector<Argument> out;
  for (const Scalars& a : scalars_of(s)) {
    out.push_back(in_smem(a.name + "_here", a.here, a.element));
  }
  out.push_back(semaphores("page_copies", {}));
  return out;
}

std::vector<Argument> id_arguments(const KernelShape& s) {
  return {in_hbm("q_ids", Element::i32, {s.batch, s.q_len / kLanes, kLanes}),
          in_hbm("kv_ids", Element::i32, {s.batch, s.kv_len / kLanes, kLanes})};
}

std::vector<Argument> id_scratch(const KernelShape& s) {
  return {in_vmem("row_ids", Element::i32, {s.q_len / kLanes, kLanes}),
          in_vmem("key_ids", Element::i32, {s.kv_len / kLanes, kLanes})};
}

std::vector<Argument> bit_arguments(const KernelShape& s) {
  if (s.bitmaps == 0) return {};
  return {in_hbm("bits", Element::i32, {s.bitmaps, s.bit_rows(), s.block_q})};
}

std::vector<Argument> bit_scratch(const KernelShape& s, int64_t ring) {
  if (s.bitmaps == 0) return {};
  return {in_vmem("bits_ring", Element::i32,
                  {ring, s.tiles_per_pass * s.bit_rows(), s.block_q}),
          semaphores("bits_copies", {ring})};
}

int64_t vector_bytes(const std::vector<Argument>& arguments) {
  int64_t bytes = 0;
  for (const Argument& a : arguments) {
    if (a.type.space == Space::vmem) bytes += bytes_of(a.type);
  }
  return bytes;
}

int64_t scalar_words_of(const std::vector<Argument>& arguments) {
  int64_t words = 0;
  for (const Argument& a : arguments) {
    if (a.type.space == Space::smem) words += a.type.shape[0];
  }
  return words;
}

Parts::Parts(const KernelShape& shape, const std::vector<Argument>& arguments)
    : s_(shape),
      queries_(shape.block_q),
      w_(with_batch_row(arguments)),
      grid_row_(w_.argument("batch_row")),
      list_(grid_row_),
      batch_row_(list_) {}

// Sets the list, batch row and first head of the grid row.
void Parts::begin_list(Grid grid) {
  if (grid == Grid::pages && s_.pages > 1) {
    list_ = batch_row_ = w_.div(grid_row_, number(s_.pages));
  }
  if (s_.plan_heads == 1) return;
  batch_row_ = w_.div(list_, number(s_.plan_heads));
  const Value before = times(batch_row_, s_.plan_heads);
  first_head_ = times(w_.sub(list_, before), s_.heads_of_list());
}

Value Parts::word(const Value& at, int64_t tile) {
  return w_.load_scalar(
      scalars("steps"),
      tile == 0 ? at : w_.add(at, w_.constant(static_cast<int32_t>(tile))));
}

Value Parts::fullness(const Value& at, Compare how) {
  Value all = word(at);
  Value any = all;
  for (int64_t t = 1; t < s_.tiles_per_pass; ++t) {
    const Value tile = word(at, t);
    all = w_.bit_and(all, tile);
    any = w_.bit_or(any, tile);
  }
  const Value all_high = w_.bit_and(all, w_.constant(8));
  const Value any_low = w_.bit_and(any, w_.constant(4));
  return w_.compare(how, w_.bit_or(all_high, any_low), w_.constant(8));
}

Value Parts::in_ring(const char* name, const Value& slot) {
  const Value& ring = w_.argument(name);
  const std::array<Value, 3> at = {slot, w_.constant(0), w_.constant(0)};
  return w_.slice(ring, at, {1, ring.type.shape[1], ring.type.shape[2]}, 1);
}

Value Parts::heads_in(const char* name, const Value& slot, int64_t heads) {
  const Value& ring = w_.argument(name);
  const Value zero = w_.constant(0);
  const std::array<Value, 3> at = {times(slot, heads), zero, zero};
  return w_.slice(ring, at, {heads, ring.type.shape[1], ring.type.shape[2]}, 0);
}

Value Parts::load_slot(const char* name, const Value& slot) {
  const Value& ring = w_.argument(name);
  const std::array<Value, 3> at = {w_.to_index(slot), w_.index(0), w_.index(0)};
  const int64_t rows = ring.type.shape[1];
  const int64_t columns = ring.type.shape[2];
  return w_.reshape(w_.load(ring, at, {1, rows, columns}), {rows, columns});
}

void Parts::store_slot(const Value& value, const char* name,
                       const Value& slot) {
  const Value& ring = w_.argument(name);
  const std::array<Value, 3> at = {w_.to_index(slot), w_.index(0), w_.index(0)};
  w_.store(w_.reshape(value, {1, ring.type.shape[1], ring.type.shape[2]}), ring,
           at);
}

Value Parts::tokens_of(std::string_view array, const Value& head, int64_t heads,
                       const Value& token, int64_t tokens, int64_t dim) {
  std::array<Value, 4> at = {batch_row_, head, token, w_.constant(0)};
  if (tokens_last(dim)) std::swap(at[2], at[3]);
  const std::vector<int64_t> tile = s_.tile_of(tokens, dim);
  return w_.slice(w_.argument(array), at, {1, heads, tile[0], tile[1]}, 1);
}

void Parts::in_key_part(const Value& key, const OfPart& body) {
  if (s_.key_parts.empty()) return body(0, key);
  // Chooses among parts [first, end); part `first` begins at key `before`.
  const std::function<void(size_t, size_t, int64_t)> choose =
      [&](size_t first, size_t end, int64_t before) {
        if (end - first == 1) {
          return body(first, before == 0 ? key : w_.sub(key, number(before)));
        }
        const size_t middle = first + (end - first) / 2;
        int64_t edge = before;
        for (size_t i = first; i < middle; ++i) edge += s_.key_parts[i];
        w_.if_else(
            less(key, number(edge)), [&] { choose(first, middle, before); },
            [&] { choose(middle, end, edge); });
      };
  choose(0, s_.key_parts.size(), 0);
}

Value Parts::tokens_in(const char* ring, const Value& slot, int64_t slots,
                       int64_t token, int64_t tokens, int64_t dim) {
  std::array<Value, 3> at = {slot, number(token), w_.constant(0)};
  if (tokens_last(dim)) std::swap(at[1], at[2]);
  return w_.slice(w_.argument(ring), at, tiles_of(s_, slots, tokens, dim), 0);
}

Value Parts::scores_of(const Value& products) {
  if (s_.softcap == 0) return products;
  const Value scale = w_.real(static_cast<float>(s_.scale / s_.softcap));
  return w_.tanh(w_.mul(products, w_.splat(scale, products.type.shape)));
}

void Parts::copy_ids() {
  const std::array<Value, 3> at = {batch_row_, w_.constant(0), w_.constant(0)};
  const Value& done = w_.argument("id_copies");
  for (const auto& [array, scratch] :
       {std::pair{"q_ids", "row_ids"}, std::pair{"kv_ids", "key_ids"}}) {
    const Value& to = w_.argument(scratch);
    w_.start_copy(
        w_.slice(w_.argument(array), at, {1, to.type.shape[0], kLanes}, 1), to,
        done);
  }
  w_.wait_copy(done, w_.argument("row_ids"));
  w_.wait_copy(done, w_.argument("key_ids"));
}

Value Parts::ids_at(const char* name, const Value& line) {
  const std::array<Value, 2> at = {w_.to_index(line), w_.index(0)};
  return w_.load(w_.argument(name), at, {1, kLanes});
}

Value Parts::query_ids(const Value& query_row, int64_t first) {
  std::vector<Value> ids;
  const Value line = times(query_row, s_.block_q / kLanes);
  for (int64_t i = 0; i < queries_ / kLanes; ++i) {
    ids.push_back(ids_at("row_ids", w_.add(line, number(first / kLanes + i))));
  }
  return w_.join(ids, 1);
}

Value Parts::legal(const Value& query_row, const Value& ids,
                   const Value& key_ids,
                   const std::function<Value(int64_t)>& key_tile,
                   int64_t first) {
  const std::vector<int64_t> shape = {key_ids.type.shape[0], queries_};
  const std::vector<Value> copies(static_cast<size_t>(queries_ / kLanes),
                                  key_ids);
  const Value all_key_ids = w_.join(copies, 1);
  Value ok = w_.compare(Compare::equal, all_key_ids, whole(ids, shape));
  if (!s_.has_low && !s_.has_high) return ok;

  // key - position, bounded.
  std::vector<Value> keys;
  for (int64_t t = 0; t < shape[0] / s_.block_kv; ++t) {
    const std::vector<int64_t> tile = {s_.block_kv, queries_};
    const Value first_key = times(key_tile(t), s_.block_kv);
    const Value within = w_.iota(tile, 0);
    keys.push_back(w_.add(within, w_.splat(first_key, tile)));
  }
  const Value& bounds = scalars("bounds");
  const Value offset =
      w_.load_scalar(bounds, w_.add(batch_row_, number(kBoundsHead)));
  Value position = w_.add(times(query_row, s_.block_q), offset);
  if (first > 0) position = w_.add(position, number(first));
  const Value key = w_.join(keys, 0);
  auto limit = [&](int64_t which) {
    const std::vector<int64_t> line_shape = {1, queries_};
    const Value at = w_.add(position, w_.load_scalar(bounds, number(which)));
    const Value within = w_.iota(line_shape, 1);
    return whole(w_.add(within, w_.splat(at, line_shape)), shape);
  };
  if (s_.has_low) {
    ok = w_.bit_and(ok, w_.compare(Compare::greater_or_equal, key, limit(0)));
  }
  if (s_.has_high) {
    ok = w_.bit_and(ok, w_.compare(Compare::less_or_equal, key, limit(1)));
  }
  return ok;
}

void Parts::fetch_bits(const Value& at, const Value& slot) {
  const Value done = semaphore("bits_copies", slot);
  const int64_t rows = s_.bit_rows();
  const Value zero = w_.constant(0);
  for (int64_t t = 0; t < s_.tiles_per_pass; ++t) {
    const Value which =
        w_.load_scalar(scalars("bits_of"), t == 0 ? at : w_.add(at, number(t)));
    const std::array<Value, 3> from = {which, zero, zero};
    const std::array<Value, 3> to = {slot, number(t * rows), zero};
    const std::vector<int64_t> shape = {1, rows, s_.block_q};
    const Value bitmap = w_.slice(w_.argument("bits"), from, shape, 1);
    const Value place = w_.slice(w_.argument("bits_ring"), to, shape, 1);
    w_.start_copy(bitmap, place, done);
  }
}

void Parts::wait_bits(const Value& slot) {
  // In two statements: both calls write ops, and arguments have no fixed order.
  const Value place = in_ring("bits_ring", slot);
  w_.wait_copy(semaphore("bits_copies", slot), place);
}

Value Parts::legal_bits(const Value& slot, int64_t first_tile, int64_t tiles,
                        int64_t first) {
  const int64_t rows = s_.bit_rows();
  const std::vector<int64_t> shape = {rows, queries_};
  std::vector<Value> parts;
  for (int64_t t = first_tile; t < first_tile + tiles; ++t) {
    const std::array<Value, 3> at = {w_.to_index(slot), w_.index(t * rows),
                                     w_.index(first)};
    const Value words = w_.reshape(
        w_.load(w_.argument("bits_ring"), at, {1, rows, queries_}), shape);
    for (int64_t j = 0; j < s_.word_bits(); ++j) {
      const auto bit = static_cast<int32_t>(uint32_t{1} << j);
      parts.push_back(w_.bit_and(words, w_.splat(w_.constant(bit), shape)));
    }
  }
  const Value all = w_.join(parts, 0);
  return w_.compare(Compare::not_equal, all,
                    w_.splat(w_.constant(0), all.type.shape));
}

const Value& Parts::scalars(const char* name) {
  return w_.argument(s_.page > 0 ? std::string(name) + "_here" : name);
}

// Copies all scalar arrays but those of steps to scalar memory; they are small.
void Parts::load_scalars() {
  const Writer::Region named(w_, "scalars");
  std::vector<const char*> arrays = {"range", "bounds"};
  if (s_.in_parts) arrays.push_back("rows");
  if (s_.has_sinks) arrays.push_back("sink_logits");
  const Value& done = w_.argument("page_copies");
  for (const char* array : arrays) {
    w_.start_copy(w_.argument(array), scalars(array), done);
  }
  for (const char* array : arrays) w_.wait_copy(done, scalars(array));
}

// Loads a page of steps. No copy that is under way needs the previous page.
void Parts::load_page(const Value& number_of_page) {
  const Writer::Region named(w_, "page");
  std::vector<const char*> arrays = {"steps"};
  if (s_.bitmaps > 0) arrays.push_back("bits_of");
  const Value& done = w_.argument("page_copies");
  const Value first = times(number_of_page, s_.page);
  for (const char* array : arrays) {
    const Value from = w_.slice(w_.argument(array), {&first, 1}, {s_.page}, 0);
    w_.start_copy(from, scalars(array), done);
  }
  for (const char* array : arrays) w_.wait_copy(done, scalars(array));
}

std::string Parts::function(std::string_view name, Grid grid,
                            const std::function<void()>& batch_row) {
  begin_list(grid);
  if (s_.page > 0) {
    load_scalars();
    begin_ = w_.constant(0);
    const bool by_page = grid == Grid::pages;
    const Value number_of_page =
        by_page ? grid_row_ : page_number(first_steps(), w_.constant(0));
    end_ = page_end(number_of_page);
    w_.if_then(w_.compare(Compare::less, begin_, end_), [&] {
      if (by_page) load_page(number_of_page);
      batch_row();
    });
    return w_.kernel(name, by_page ? s_.lists() * s_.pages : s_.lists());
  }
  const Value& range = w_.argument("range");
  const Value first = first_steps();
  begin_ = w_.load_scalar(range, first);
  end_ = w_.load_scalar(range, w_.add(first, w_.constant(1)));
  w_.if_then(w_.compare(Compare::less, begin_, end_), batch_row);
  return w_.kernel(name, s_.lists());
}

}  // namespace tessera::mosaic
