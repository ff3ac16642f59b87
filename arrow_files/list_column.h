// arrow_files/list_column.h: a Parquet column of lists of integers, from its
// pages to an array with nothing in between: Arrow's own way for columns of any
// type takes three times as long.
#pragma once

#include <arrow/array.h>
#include <arrow/result.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>

#include <cstdint>
#include <memory>

namespace tessera::arrow_files {

// In one row group.
class ListColumn {
 public:
  virtual ~ListColumn() = default;
  // The next rows: fewer at the column's end.
  virtual arrow::Result<std::shared_ptr<arrow::Array>> next(int64_t rows) = 0;
};

// Whether the column is one: lists of int32 or int64 that are stored as such.
bool is_list_column(const parquet::arrow::SchemaField& field,
                    const parquet::SchemaDescriptor& schema);
// The group must stay. `rows` are asked for at a time. Throws as Parquet's
// readers do.
std::unique_ptr<ListColumn> open_list_column(
    parquet::RowGroupReader& group, const parquet::arrow::SchemaField& field,
    int64_t rows);

}  // namespace tessera::arrow_files
