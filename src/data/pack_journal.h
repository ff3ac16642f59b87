// data/pack_journal.h: what a run that packs into a folder has finished, a line
// a file, so that another goes on from there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_read.h"
#include "tessera/documents.h"

namespace tessera::data {

// All that decides the rows and how they lie in files: this version, options by
// name, inputs by name, size and time of change.
struct PackOrigin {
  Json of;
  bool stays = true;  // no input is a pipe, which cannot be read again
};
Result<PackOrigin> pack_origin(const std::vector<std::string>& inputs,
                               const RowFolderOptions& options);
// That inputs are as they were then. A pipe is told by nothing that stays.
Result<void> check_same_inputs(const std::vector<std::string>& inputs,
                               const RowFolderOptions& options,
                               const PackOrigin& origin);
std::string_view format_of(const Json& origin);  // of its files
// "tokens 16 for 8", where what is asked for is not what was begun; else "".
std::string difference(const Json& asked, const Json& begun);

// A file of rows that is finished, and where the next one begins.
struct PackedFile {
  int64_t bytes = 0;
  std::string digest;  // of them
  int64_t rows = 0;
  StreamPosition after;
  bool operator==(const PackedFile&) const = default;
};

// A line begins with a digest of the rest: one that was cut or damaged ends
// what is read.
struct PackJournal {
  std::optional<ParsedJson> origin;  // none: its own line is damaged
  std::vector<PackedFile> files;
};
std::string journal_line(const Json& origin);
std::string journal_line(const PackedFile& file);
PackJournal read_journal(std::string_view text);

}  // namespace tessera::data
