// data/pack_journal.h: the record of the files that a packing run has finished,
// one line each, so that another run can resume it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_read.h"
#include "tessera/documents.h"

namespace tessera::data {

// All that decides the rows and their split into files: this version, the
// options by name, and the inputs by name, size and time of change.
struct PackOrigin {
  Json of;
  bool stays = true;  // no input is a pipe, which cannot be read again
};
Result<PackOrigin> pack_origin(const std::vector<std::string>& inputs,
                               const RowFolderOptions& options);
// Checks that inputs did not change since `origin` was made. Not checked with a
// pipe, which has no lasting size or time.
Result<void> check_same_inputs(const std::vector<std::string>& inputs,
                               const RowFolderOptions& options,
                               const PackOrigin& origin);
std::string_view format_of(const Json& origin);  // of the folder's files
// The first difference, or "" if there is none: "tokens 16 for 8" where 16 is
// asked for and the run began with 8.
std::string difference(const Json& asked, const Json& begun);

// A finished file of rows, and the position of the stream after it.
struct PackedFile {
  int64_t bytes = 0;
  std::string digest;  // of the file's bytes
  int64_t rows = 0;
  StreamPosition after;
  bool operator==(const PackedFile&) const = default;
};

// Each line begins with a digest of the rest. Reading stops at the first line
// that is cut or damaged.
struct PackJournal {
  std::optional<ParsedJson> origin;  // none: the first line is damaged
  std::vector<PackedFile> files;
};
std::string journal_line(const Json& origin);
std::string journal_line(const PackedFile& file);
PackJournal read_journal(std::string_view text);

}  // namespace tessera::data
