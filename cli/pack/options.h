// cli/pack/options.h: the flags of `tessera pack`, and options parsed from
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "tessera/documents.h"

namespace tessera::cli {

struct PackFlags {
  std::vector<std::string> inputs;
  std::string tokens = "8192", strategy = "bestfit", long_documents = "split";
  std::string window_rows = "4096", rows_per_step = "8", mixing = "0",
              tile = "256x256";
  std::string seed = "0", pad_id = "0";
  std::optional<std::string> rows_per_file, mask, max_chunks, max_edges, out,
      format, stats, threads;
  bool strict_chunks = false;
  bool restart = false;
  bool json = false;
};

void add_pack_flags(Command& command, PackFlags& flags);
Result<StreamOptions> stream_options(const PackFlags& flags);
// The threads that read: --threads, else one for each core.
Result<int64_t> threads_of(const PackFlags& flags);
// The number of rows of this shape in one file.
Result<int64_t> rows_per_file(const PackFlags& flags, const RowShape& shape);

}  // namespace tessera::cli
