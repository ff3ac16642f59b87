// arrow_files/list_column.cc: decodes lists of integers from Parquet pages.
#include "arrow_files/list_column.h"

#include <arrow/buffer_builder.h>
#include <arrow/type.h>
#include <arrow/util/bit_util.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "arrow_files/reader.h"

namespace tessera::arrow_files {
namespace {

// Levels read at once; they fit in the L1 cache.
constexpr int64_t kLevels = 4096;
// The most numbers to reserve memory for, whatever a file claims.
constexpr double kMaxExpected = 1 << 22;

// The first of levels [begin, end) that is not `level`. 32 are compared at a
// time, in a loop that compilers vectorize.
int64_t first_unlike(const std::vector<int16_t>& levels, int64_t begin,
                     int64_t end, int16_t level) {
  constexpr int64_t kAtOnce = 32;
  for (; begin + kAtOnce <= end; begin += kAtOnce) {
    const int16_t* const here = levels.data() + begin;
    int16_t unlike = 0;
    for (int64_t i = 0; i < kAtOnce; ++i) {
      unlike = static_cast<int16_t>(unlike | (here[i] ^ level));
    }
    if (unlike != 0) break;
  }
  while (begin < end && levels[static_cast<size_t>(begin)] == level) ++begin;
  return begin;
}

// A bitmap of `n` values with 0 at `nulls`; null if there are no nulls.
arrow::Result<std::shared_ptr<arrow::Buffer>> bits_of(
    int64_t n, const std::vector<int64_t>& nulls) {
  if (nulls.empty()) return nullptr;
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> bits,
                        arrow::AllocateBitmap(n, pool()));
  std::memset(bits->mutable_data(), 0xff, static_cast<size_t>(bits->size()));
  for (const int64_t at : nulls) {
    arrow::bit_util::ClearBit(bits->mutable_data(), at);
  }
  return bits;
}

template <class Type>
class Lists : public ListColumn {
  using Number = typename Type::c_type;

 public:
  Lists(std::shared_ptr<parquet::ColumnReader> reader,
        const parquet::arrow::SchemaField& field, int64_t expected)
      : reader_(std::move(reader)),
        typed_(*static_cast<parquet::TypedColumnReader<Type>*>(reader_.get())),
        type_(field.field->type()),
        // From level there_ on there is an element; at most_ it is not null.
        there_(field.children[0].level_info.repeated_ancestor_def_level),
        most_(field.children[0].level_info.def_level),
        defined_(kLevels),
        repeated_(kLevels),
        read_(kLevels),
        expected_(expected) {}

  arrow::Result<std::shared_ptr<arrow::Array>> next(int64_t rows) override {
    Made made;
    ARROW_RETURN_NOT_OK(made.offsets.Reserve(rows + 1));
    ARROW_RETURN_NOT_OK(made.numbers.Reserve((expected_ + kLevels) * kSize));
    while (true) {
      if (at_ == end_) ARROW_RETURN_NOT_OK(read_levels(made));
      if (at_ == end_) break;
      ARROW_RETURN_NOT_OK(whole_ ? add_whole(rows, made) : add_any(rows, made));
      if (at_ < end_) break;  // the next row begins at `at_`
    }
    keep_rest(made);
    return finish(made);
  }

 private:
  static constexpr auto kSize = static_cast<int64_t>(sizeof(Number));
  struct Made {
    arrow::TypedBufferBuilder<int32_t> offsets{pool()};
    arrow::BufferBuilder numbers{pool()};
    std::vector<int64_t> null_rows, null_numbers;
    // The row has a null number, so it will be refused: the rest of it is
    // dropped. A few bytes of a file can encode millions of nulls.
    bool cut = false;

    int64_t count() const { return numbers.length() / kSize; }
    Number* end() {
      return reinterpret_cast<Number*>(numbers.mutable_data()) + count();
    }
    arrow::Status add(const Number* from, int64_t n) {
      return numbers.Append(from, n * kSize);
    }
  };

  // Reads more levels, or none at the end. Numbers are read to the end of
  // made.numbers, and stay there if none of them is null.
  arrow::Status read_levels(Made& made) {
    at_ = end_ = number_ = 0;
    ARROW_RETURN_NOT_OK(made.numbers.Reserve(kLevels * kSize));
    while (end_ == 0 && typed_.HasNext()) {
      int64_t numbers = 0;
      end_ = typed_.ReadBatch(kLevels, defined_.data(), repeated_.data(),
                              made.end(), &numbers);
      // Arrow reads a number for each level equal to most_, and for no other.
      whole_ = numbers == end_;
      in_place_ = whole_;
      if (whole_) continue;
      const auto end = defined_.begin() + end_;
      if (std::count(defined_.begin(), end, most_) != numbers) {
        return arrow::Status::Invalid("it has ", numbers, " numbers for ", end_,
                                      " levels");
      }
      std::copy_n(made.end(), numbers, read_.data());
    }
    if (end_ > 0 && !begun_ && repeated_[0] != 0) {
      return arrow::Status::Invalid("its first number is of no row");
    }
    begun_ = true;
    return arrow::Status::OK();
  }

  // Saves numbers of later rows that were read in place.
  void keep_rest(Made& made) {
    if (!in_place_) return;
    std::copy_n(made.end(), end_ - at_, read_.data() + at_);
    in_place_ = false;
  }

  // Whether the level begins a row beyond those asked for.
  bool is_enough(int64_t rows, const Made& made) const {
    return repeated_[static_cast<size_t>(at_)] == 0 &&
           made.offsets.length() == rows;
  }
  arrow::Status begin_row(Made& made) {
    if (made.count() > INT32_MAX) {
      return arrow::Status::CapacityError("lists of more than 2^31 numbers");
    }
    made.cut = false;
    return made.offsets.Append(static_cast<int32_t>(made.count()));
  }

  // Adds levels that each have a number.
  arrow::Status add_whole(int64_t rows, Made& made) {
    while (at_ < end_ && !is_enough(rows, made)) {
      if (repeated_[static_cast<size_t>(at_)] == 0) {
        ARROW_RETURN_NOT_OK(begin_row(made));
      }
      const int64_t after = first_unlike(repeated_, at_ + 1, end_, 1);
      if (made.cut) {
        keep_rest(made);
      } else if (in_place_) {
        made.numbers.UnsafeAdvance((after - at_) * kSize);
      } else {
        ARROW_RETURN_NOT_OK(made.add(read_.data() + at_, after - at_));
      }
      at_ = after;
    }
    return arrow::Status::OK();
  }

  arrow::Status add_any(int64_t rows, Made& made) {
    for (; at_ < end_ && !is_enough(rows, made); ++at_) {
      const int16_t defined = defined_[static_cast<size_t>(at_)];
      const bool begins = repeated_[static_cast<size_t>(at_)] == 0;
      if (begins) {
        if (defined < there_ - 1) {
          made.null_rows.push_back(made.offsets.length());
        }
        ARROW_RETURN_NOT_OK(begin_row(made));
      }
      if (defined == most_) {
        const Number* const number = read_.data() + number_++;
        if (!made.cut) ARROW_RETURN_NOT_OK(made.add(number, 1));
      } else if (defined >= there_) {
        if (made.cut) continue;
        made.null_numbers.push_back(made.count());
        ARROW_RETURN_NOT_OK(made.numbers.Append(kSize, 0));
        made.cut = true;
      } else if (!begins) {
        return arrow::Status::Invalid("a list goes on that is empty");
      }
    }
    return arrow::Status::OK();
  }

  arrow::Result<std::shared_ptr<arrow::Array>> finish(Made& made) {
    const int64_t rows = made.offsets.length();
    const int64_t numbers = made.count();
    ARROW_RETURN_NOT_OK(begin_row(made));
    ARROW_ASSIGN_OR_RAISE(auto there, bits_of(rows, made.null_rows));
    ARROW_ASSIGN_OR_RAISE(auto known, bits_of(numbers, made.null_numbers));
    std::shared_ptr<arrow::Buffer> offsets, values;
    ARROW_RETURN_NOT_OK(made.offsets.Finish(&offsets, false));
    ARROW_RETURN_NOT_OK(made.numbers.Finish(&values, false));
    const auto& list = static_cast<const arrow::ListType&>(*type_);
    auto items = arrow::ArrayData::Make(
        list.value_type(), numbers, {std::move(known), std::move(values)},
        static_cast<int64_t>(made.null_numbers.size()));
    return arrow::MakeArray(arrow::ArrayData::Make(
        type_, rows, {std::move(there), std::move(offsets)}, {std::move(items)},
        static_cast<int64_t>(made.null_rows.size())));
  }

  std::shared_ptr<parquet::ColumnReader> reader_;
  parquet::TypedColumnReader<Type>& typed_;
  std::shared_ptr<arrow::DataType> type_;
  int16_t there_, most_;
  std::vector<int16_t> defined_, repeated_;
  std::vector<Number> read_;
  int64_t at_ = 0, end_ = 0;  // levels not yet used
  int64_t number_ = 0;        // next of `read_`, for add_any
  bool whole_ = false, begun_ = false;
  bool in_place_ = false;  // numbers are in made.numbers, not in `read_`
  int64_t expected_ = 0;   // numbers in the rows of one next()
};

// Skips empty pages, which Arrow's reader would take for the column's end.
std::shared_ptr<parquet::ColumnReader> open_column(
    parquet::RowGroupReader& group, int column) {
  auto pages = group.GetColumnPageReader(column);
  pages->set_data_page_filter(
      [](const parquet::DataPageStats& page) { return page.num_values == 0; });
  return parquet::ColumnReader::Make(group.metadata()->schema()->Column(column),
                                     std::move(pages), pool());
}

}  // namespace

bool is_list_column(const parquet::arrow::SchemaField& field,
                    const parquet::SchemaDescriptor& schema) {
  if (field.field->type()->id() != arrow::Type::LIST ||
      field.children.size() != 1 || !field.children[0].is_leaf()) {
    return false;
  }
  const parquet::ColumnDescriptor* const column =
      schema.Column(field.children[0].column_index);
  const arrow::Type::type item = field.children[0].field->type()->id();
  return column->max_repetition_level() == 1 &&
         ((item == arrow::Type::INT32 &&
           column->physical_type() == parquet::Type::INT32) ||
          (item == arrow::Type::INT64 &&
           column->physical_type() == parquet::Type::INT64));
}

std::unique_ptr<ListColumn> open_list_column(
    parquet::RowGroupReader& group, const parquet::arrow::SchemaField& field,
    int64_t rows) {
  const int column = field.children[0].column_index;
  // As doubles, so nothing that a file claims overflows.
  const double all =
      static_cast<double>(group.metadata()->ColumnChunk(column)->num_values());
  const double of =
      static_cast<double>(std::max<int64_t>(1, group.metadata()->num_rows()));
  // With a margin: when memory is short it is doubled, and the rest of it
  // cleared.
  const double spare = 9.0 / 8;
  const auto expected = static_cast<int64_t>(std::clamp(
      all / of * static_cast<double>(rows) * spare, 0.0, kMaxExpected));
  auto reader = open_column(group, column);
  if (field.children[0].field->type()->id() == arrow::Type::INT32) {
    return std::make_unique<Lists<parquet::Int32Type>>(std::move(reader), field,
                                                       expected);
  }
  return std::make_unique<Lists<parquet::Int64Type>>(std::move(reader), field,
                                                     expected);
}

}  // namespace tessera::arrow_files
