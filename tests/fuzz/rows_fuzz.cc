// tests/fuzz/rows_fuzz.cc: packed rows from unknown sources. Any bytes are
// either a .safetensors file of rows that keep every rule and are the same when
// written and read again, or give an error that names the file. A valid Arrow
// stream gives the rows that it was made from; one that the input makes invalid
// gives an error; one with false fields gives rows or an error.
#include <algorithm>

#include "data/import_rows.h"
#include "data/row_file.h"
#include "tests/fuzz/arrow_lies.h"
#include "tests/fuzz/must.h"

using namespace tessera;
using fuzz::Bytes;
using testing::MadeArray;

namespace {

using enum RowColumn;

constexpr std::string_view kFile = "it";

void must_name_the_file(const Error& error) {
  must(error.message.starts_with("["));
  must(error.message.find("'it'") != std::string::npos);
}

void read_bytes(std::string_view bytes) {
  const auto rows = data::decode_rows(bytes, kFile);
  if (!rows) return must_name_the_file(rows.error());
  must(check_rows(*rows, kFile).ok());
  const auto written = data::encode_rows(*rows);
  must(written.ok());
  const auto again = data::decode_rows(*written, kFile);
  must(again.ok() && *again == *rows);
}

// A stream, its rows, and whether it breaks a rule of streams.
struct Drawn {
  testing::MadeStream stream;
  Rows rows;
  bool wrong = false;
};

// Rows of one or two documents and a chunk; one number of them is arbitrary.
void draw_rows(Bytes& in, Rows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const auto tokens = static_cast<size_t>(in.below(rows.shape.tokens + 1));
    const auto cut = static_cast<size_t>(in.below(4));
    for (size_t t = 0; t < tokens; ++t) {
      rows.row(input_ids, r)[t] = in.one();
      rows.row(loss_mask, r)[t] = static_cast<int32_t>(in.below(2));
      rows.row(doc_ids, r)[t] = cut > 0 && t >= cut ? 1 : 0;
    }
    rows.row(valid_token_count, r)[0] = static_cast<int32_t>(tokens);
    rows.row(num_docs, r)[0] =
        tokens == 0 ? 0 : rows.row(doc_ids, r)[tokens - 1] + 1;
    if (tokens > 0 && rows.shape.max_chunks > 0 && in.below(2) == 1) {
      rows.row(num_chunks, r)[0] = 1;
      rows.row(chunk_starts, r)[0] = 0;
      rows.row(chunk_ends, r)[0] = 1;
    }
    if (in.below(4) != 3) continue;
    const auto changed = rows.row(static_cast<RowColumn>(in.below(20)), r);
    if (changed.empty()) continue;
    changed[static_cast<size_t>(
        in.below(static_cast<int64_t>(changed.size())))] =
        static_cast<int32_t>(in.below(8)) - 2;
  }
}

// The numbers as lists of these sizes, with unused lists around them: of
// `count` lists, [first, last) are used.
MadeArray draw_lists(Bytes& in, std::span<const int64_t> sizes,
                     std::vector<int32_t> numbers, int64_t count, int64_t first,
                     int64_t last, bool& wrong) {
  MadeArray array;
  array.offset = in.below(3);
  array.length = count + in.below(2);
  const int64_t all = array.offset + array.length;
  std::optional<std::string> there;
  const int64_t nulls = in.below(16);
  if (nulls < 3) there = std::string(static_cast<size_t>(all / 8 + 1), '\xff');
  if (nulls == 1) array.null_count = -1;
  if (nulls == 2) there->assign(there->size(), '\0');  // but null_count is 0
  if (nulls == 0 && array.length > 0) {
    const int64_t at = in.below(array.length);
    array.null_count = 1;
    char& bits = (*there)[static_cast<size_t>((array.offset + at) / 8)];
    bits = static_cast<char>(bits & ~(1 << ((array.offset + at) % 8)));
    wrong |= at >= first && at < last;
  }
  array.buffers = {there};
  int64_t each = 1;
  for (const int64_t n : sizes) each *= n;
  numbers.insert(numbers.begin(), static_cast<size_t>(array.offset * each), -9);
  numbers.resize(static_cast<size_t>(all * each), -9);
  if (sizes.empty()) {
    array.format = "i";
    std::string bytes;
    for (const int32_t n : numbers) testing::append(bytes, n);
    array.buffers.push_back(bytes);
    return array;
  }
  array.format = "+w:" + std::to_string(sizes[0]);
  array.children.push_back(draw_lists(in, sizes.subspan(1), std::move(numbers),
                                      all * sizes[0],
                                      (array.offset + first) * sizes[0],
                                      (array.offset + last) * sizes[0], wrong));
  return array;
}

std::string metadata_text(
    const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string out;
  testing::append(out, static_cast<int32_t>(pairs.size()));
  for (const auto& [key, value] : pairs) {
    for (const std::string& text : {key, value}) {
      testing::append(out, static_cast<int32_t>(text.size()));
      out += text;
    }
  }
  return out;
}

Drawn draw_stream(Bytes& in, Bytes& lies, std::string& metadata) {
  Drawn drawn;
  const RowShape shape{1 + in.below(4), in.below(3), in.below(3)};
  const auto pad_id = static_cast<int32_t>(in.below(3));
  drawn.rows = *Rows::make(shape, 0, pad_id);
  metadata =
      metadata_text({{"pad_id", std::to_string(pad_id)},
                     {"max_chunks", std::to_string(shape.max_chunks)},
                     {"max_edges", std::to_string(shape.max_edges) +
                                       (in.below(32) == 31 ? "x" : "")}});
  drawn.wrong = metadata.back() == 'x';
  // The order of the columns, and whether each is valid.
  enum class Fate : uint8_t { right, absent, other, twice };
  std::array<Fate, kRowColumns> fates = {};
  if (in.below(4) == 3) {
    for (Fate& fate : fates)
      fate = static_cast<Fate>(std::max<int64_t>(0, in.below(64) - 60));
  }
  for (size_t c = 0; c < kRowColumns; ++c) {
    const bool required = row_columns()[c].required;
    drawn.wrong |= fates[c] == Fate::other || fates[c] == Fate::twice;
    drawn.wrong |= fates[c] == Fate::absent && required;
  }
  for (int64_t batches = in.below(3); batches >= 0; --batches) {
    Rows rows = *Rows::make(shape, in.below(3), pad_id);
    draw_rows(in, rows);
    MadeArray batch;
    batch.format = "+s";
    batch.offset = in.below(2);
    batch.length = rows.rows;
    batch.buffers = {std::nullopt};
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      std::vector<int32_t> numbers = rows.columns[c];
      if (fates[c] == Fate::absent) {
        const RowColumnSpec& spec = spec_of(column);
        std::fill(rows.columns[c].begin(), rows.columns[c].end(),
                  spec.pad_id ? pad_id : spec.padding);
        continue;
      }
      std::vector<int64_t> sizes = shape.array(column, 0);
      sizes.erase(sizes.begin());
      numbers.insert(numbers.begin(),
                     static_cast<size_t>(batch.offset * shape.size(column)),
                     -7);
      for (int times = fates[c] == Fate::twice ? 2 : 1; times > 0; --times) {
        MadeArray array =
            draw_lists(in, sizes, numbers, batch.offset + rows.rows,
                       batch.offset, batch.offset + rows.rows, drawn.wrong);
        MadeArray* leaf = &array;
        while (!leaf->children.empty()) leaf = &leaf->children[0];
        if (fates[c] == Fate::other) leaf->format = "I";
        array.name = row_columns()[c].name;
        batch.children.push_back(std::move(array));
      }
    }
    for (size_t c = 0; c < kRowColumns; ++c) {
      drawn.rows.columns[c].insert(drawn.rows.columns[c].end(),
                                   rows.columns[c].begin(),
                                   rows.columns[c].end());
    }
    drawn.rows.rows += rows.rows;
    if (drawn.stream.batches.empty()) drawn.stream.schema = batch;
    drawn.stream.batches.push_back(std::move(batch));
  }
  drawn.stream.spoil_schema = [&metadata](ArrowSchema& schema) {
    schema.metadata = metadata.data();
  };
  if (lies.below(4) == 3) {
    drawn.stream.spoil_batch = [&lies](ArrowArray& array) {
      fuzz::spoil(lies, array);
    };
  }
  if (in.below(16) == 15) {
    drawn.stream.fails_at = 0;
    drawn.wrong = true;
  }
  return drawn;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] % 2 == 1) {
    read_bytes({reinterpret_cast<const char*>(data) + 1, size - 1});
    return 0;
  }
  const size_t some = std::min<size_t>(size, 5);
  Bytes lies(data + 1, some - 1);
  Bytes in(data + some, size - some);
  {
    std::string metadata;
    Drawn drawn = draw_stream(in, lies, metadata);
    const bool lied = drawn.stream.spoil_batch != nullptr;
    const bool good = !drawn.wrong && check_rows(drawn.rows, kFile).ok();
    ArrowArrayStream stream = testing::stream_of(std::move(drawn.stream));
    const auto rows = data::import_rows(stream, std::string(kFile));
    if (!rows) must_name_the_file(rows.error());
    if (rows && lied) must(check_rows(*rows, kFile).ok());
    if (!lied) must(rows.ok() == good);
    if (!lied && good) must(*rows == drawn.rows);
  }
  must(testing::handed_over() == 0);
  return 0;
}
