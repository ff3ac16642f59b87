// tests/fuzz/arrow_files_fuzz.cc: reads any bytes as a Parquet or Arrow IPC
// file through the component with Apache Arrow. They must give documents or
// rows that keep every rule, or an error that names the file. A file that can
// be read whole gives the same when read from any row. The component is
// instrumented like the library; Arrow's own libraries are not.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "data/arrow_component.h"
#include "data/arrow_documents.h"
#include "data/import_rows.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

// A few bytes can encode millions of rows.
constexpr int64_t kMaxRows = 1 << 12;
// Columns of a Parquet file are read in parallel.
constexpr int64_t kWorkers = 2;

// A file in memory that has a path.
class File {
 public:
  File() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    must(descriptor_ >= 0);
  }
  void fill(const uint8_t* data, size_t size) const {
    must(ftruncate(descriptor_, 0) == 0);
    must(pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size));
  }
  std::string path() const {
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

void must_name(const std::string& path, const Error& error) {
  must(error.message.starts_with("[data] "));
  must(error.message.find("'" + path + "'") != std::string::npos);
}

struct Read {
  bool failed = false;
  bool over = false;  // the end was reached
};

// Adds the documents from `first`, up to the limit.
Read read_documents(const std::string& path, int64_t first, Documents& to) {
  std::set<std::string> ignored;
  auto source = data::open_arrow_file(path, first, kWorkers, ignored);
  if (!source) {
    must_name(path, source.error());
    return {true, false};
  }
  while (to.size() < kMaxRows) {
    const auto more = (*source)->read(to);
    if (!more) {
      must_name(path, more.error());
      return {true, false};
    }
    must((*source)->position().offset == first + to.size());
    if (!*more) return {false, true};
  }
  return {};
}

std::span<const int32_t> ids_of(const Documents& documents, int64_t d) {
  const auto at = static_cast<size_t>(d);
  const auto first = static_cast<size_t>(documents.token_start[at]);
  const auto last = static_cast<size_t>(documents.token_start[at + 1]);
  return std::span(documents.input_ids).subspan(first, last - first);
}

void documents(const std::string& path, int64_t first) {
  Documents all;
  const Read whole = read_documents(path, 0, all);
  if (whole.failed) return;
  must(all.tokens() == static_cast<int64_t>(all.input_ids.size()));
  must(std::all_of(all.input_ids.begin(), all.input_ids.end(),
                   [](int32_t id) { return id >= 0; }));
  Documents rest;
  const Read after = read_documents(path, first, rest);
  if (!whole.over) return;
  must(after.failed == (first > all.size()));
  if (after.failed) return;
  must(rest.size() == all.size() - first);
  for (int64_t d = 0; d < rest.size(); ++d) {
    must(std::ranges::equal(ids_of(rest, d), ids_of(all, first + d)));
  }
}

// The same for rows.
Read read_rows(const std::string& path, int64_t first, Rows& to) {
  auto batches = data::open_row_file(path, first);
  if (!batches) {
    must_name(path, batches.error());
    return {true, false};
  }
  to = {};
  while (to.rows < kMaxRows) {
    const auto some = (*batches)->next();
    if (!some) {
      must_name(path, some.error());
      return {true, false};
    }
    must(check_rows(*some, "some").ok());
    if (some->rows == 0) return {false, true};
    to.shape = some->shape;
    to.rows += some->rows;
    auto& ids = to.columns[0];
    ids.insert(ids.end(), some->columns[0].begin(), some->columns[0].end());
  }
  return {};
}

void rows(const std::string& path, int64_t first) {
  Rows all;
  const Read whole = read_rows(path, 0, all);
  Rows rest;
  if (whole.failed) return;
  const Read after = read_rows(path, first, rest);
  if (!whole.over) return;
  must(after.failed == (first > all.rows));
  if (after.failed) return;
  must(rest.rows == all.rows - first);
  must(std::equal(rest.columns[0].rbegin(), rest.columns[0].rend(),
                  all.columns[0].rbegin()));
}

}  // namespace

// Arrow allocates the memory of a batch before it reads it, with whatever size
// the file states, and treats a failed allocation as an error. Untouched memory
// costs nothing, but the sanitizer's shadow takes an eighth of it.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  // Makes Arrow allocate by malloc, so that the sanitizer checks buffer ends.
  setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1);
  setenv("TESSERA_ARROW", TESSERA_ARROW_FILE, 1);
  must(data::arrow_component().ok());
  return 0;
}

// The first byte selects the kind of file, and the row to begin with.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const File file;
  file.fill(data + 1, size - 1);
  const int64_t first = data[0] / 2 % 8;
  data[0] % 2 == 0 ? documents(file.path(), first) : rows(file.path(), first);
  return 0;
}
