// cli/pack/report.h: what was packed, as text and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/pack/options.h"

namespace tessera::cli {

// What was packed, and how long this run took.
struct PackReport {
  StreamReport stream;
  int64_t files = 0;
  double seconds = 0;
  // Work of a killed run that this run continued.
  int64_t resumed_files = 0, resumed_rows = 0, resumed_documents = 0;

  double documents_per_second() const {
    const auto read =
        static_cast<double>(stream.account.documents - resumed_documents);
    return seconds > 0 ? read / seconds : 0;
  }
};

nlohmann::json pack_json(const PackReport& report,
                         const StreamOptions& options);
std::span<const JsonField> pack_json_fields();
std::string pack_text(const PackReport& report, const StreamOptions& options);

}  // namespace tessera::cli
