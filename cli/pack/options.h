// cli/pack/options.h: the flags of `tessera pack` and what they ask for.
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
  std::string seed = "0", pad_id = "0", rows_per_file = "256";
  std::optional<std::string> mask, max_chunks, max_edges, out, stats;
  bool strict_chunks = false;
  bool json = false;
};

void add_pack_flags(Command& command, PackFlags& flags);
Result<StreamOptions> stream_options(const PackFlags& flags);
Result<int64_t> rows_per_file(const PackFlags& flags);

}  // namespace tessera::cli
