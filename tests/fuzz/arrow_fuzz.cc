// tests/fuzz/arrow_fuzz.cc: makes an Arrow stream from any bytes. Its buffers
// have the stated lengths and any content. The stream must give consistent
// documents or an error; nothing outside of buffers may be read, and every
// struct must be released.
#include <algorithm>

#include "tests/fuzz/arrow_lies.h"
#include "tests/fuzz/must.h"

using namespace tessera;
using fuzz::Bytes;
using testing::MadeArray;

namespace {

constexpr const char* kNames[] = {"input_ids",    "loss_mask",   "ast_depth",
                                  "chunk_starts", "chunk_ends",  "chunk_kinds",
                                  "chunk_unit",   "token_spans", "call_edges",
                                  "type_edges",   "other"};
constexpr const char* kFormats[] = {"+l", "+L", "i",    "l",  "+w:2", "c", "C",
                                    "s",  "S",  "I",    "L",  "b",    "n", "u",
                                    "U",  "vu", "+w:0", "+s", "g",    ""};

// A random schema: a format, and the types of its children.
MadeArray draw_type(Bytes& in, int depth) {
  MadeArray type;
  type.format = kFormats[in.below(std::size(kFormats))];
  if (depth == 0) return type;
  if (type.format.starts_with("+")) {
    type.children.push_back(draw_type(in, depth - 1));
  }
  if (in.below(8) == 7) {
    type.dictionary = std::make_shared<MadeArray>(draw_type(in, depth - 1));
  }
  return type;
}

// Offsets, some of them decreasing. The last one is at most `most` if the
// reader cannot check it against the buffer.
std::string draw_offsets(Bytes& in, int64_t n, int64_t width, int64_t most) {
  std::string out;
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t step = in.below(8);
    at = step == 7 ? at - in.below(4) : at + (step > 4 ? 0 : step);
    if (most >= 0) at = std::min(at, most);
    if (width == 4) testing::append(out, static_cast<int32_t>(at));
    if (width == 8) testing::append(out, at);
  }
  return out;
}

void draw_array(Bytes& in, MadeArray& array, int64_t least) {
  array.offset = in.below(3);
  array.length = least + in.below(6);
  array.null_count = in.below(4) - 1;
  const int64_t n = array.offset + array.length;
  const std::string& f = array.format;
  std::optional<std::string> there;
  if (in.below(4) != 0) there = in.numbers((n + 7) / 8, 1);
  array.buffers = {there};
  if (f == "n") array.buffers.clear();
  if (f == "+l" || f == "u")
    array.buffers.push_back(draw_offsets(in, n + 1, 4, f == "u" ? 8 : -1));
  if (f == "+L" || f == "U")
    array.buffers.push_back(draw_offsets(in, n + 1, 8, f == "U" ? 8 : -1));
  if (f == "u" || f == "U") array.buffers.push_back(in.numbers(8, 1));
  if (f == "c" || f == "C") array.buffers.push_back(in.numbers(n, 1));
  if (f == "s" || f == "S") array.buffers.push_back(in.numbers(n, 2));
  if (f == "i" || f == "I") array.buffers.push_back(in.numbers(n, 4));
  if (f == "l" || f == "L") array.buffers.push_back(in.numbers(n, 8));
  if (f == "b") array.buffers.push_back(in.numbers((n + 7) / 8, 1));
  if (f == "vu") array.buffers.push_back(in.numbers(n, 16));
  for (MadeArray& child : array.children) draw_array(in, child, 0);
  if (array.dictionary) draw_array(in, *array.dictionary, 0);
}

testing::MadeStream draw_stream(Bytes& in, Bytes& lies) {
  testing::MadeStream made;
  made.schema.format = "+s";
  for (int64_t columns = 1 + in.below(4); columns > 0; --columns) {
    MadeArray type = draw_type(in, 4);
    type.name = kNames[made.schema.children.empty() ? 0 : in.below(11)];
    made.schema.children.push_back(std::move(type));
  }
  for (int64_t batches = in.below(3); batches >= 0; --batches) {
    MadeArray batch = made.schema;
    draw_array(in, batch, 0);
    batch.buffers.resize(1);
    for (MadeArray& column : batch.children) {
      draw_array(in, column, batch.offset + batch.length);
    }
    made.batches.push_back(std::move(batch));
  }
  if (in.below(4) == 3) {
    made.spoil_batch = [&lies](ArrowArray& array) { fuzz::spoil(lies, array); };
  }
  if (in.below(8) == 7) made.fails_at = 1;
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const size_t some = std::min<size_t>(size, 4);
  Bytes lies(data, some);
  Bytes in(data + some, size - some);
  {
    ArrowArrayStream stream = testing::stream_of(draw_stream(in, lies));
    auto source = open_arrow_stream(&stream);
    Documents documents;
    Result<bool> more = false;
    if (source) {
      do {
        more = (*source)->read(documents);
      } while (more && *more);
    }
    const bool failed = !source || !more;
    if (failed) {
      const Error& error = source ? more.error() : source.error();
      must(error.message.starts_with("[data] "));
    } else {
      must(documents.tokens() ==
           static_cast<int64_t>(documents.input_ids.size()));
      must((*source)->position().offset == documents.size());
      must(std::all_of(documents.input_ids.begin(), documents.input_ids.end(),
                       [](int32_t id) { return id >= 0; }));
    }
  }
  must(testing::handed_over() == 0);
  return 0;
}
