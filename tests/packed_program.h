// tests/packed_program.h: tests of the program that begin with packed rows.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/program.h"

namespace tessera::testing {

class PackedProgram : public Program {
 protected:
  // Rows of documents. Document d has the tokens token(d, 0 to length(d) - 1).
  template <class Length, class Token>
  void pack_documents(int documents, Length length, Token token, int tokens,
                      const std::string& rows, const Arguments& more = {}) {
    std::ofstream out(file("documents.jsonl"));
    for (int d = 0; d < documents; ++d) {
      auto ids = nlohmann::json::array();
      for (int i = 0; i < length(d); ++i) ids.push_back(token(d, i));
      out << nlohmann::json({{"input_ids", ids}}).dump() << "\n";
    }
    out.close();
    program({"pack", file("documents.jsonl"), "--tokens",
             std::to_string(tokens), "-o", file(rows)},
            more);
    ASSERT_EQ(code_, cli::kOk) << err_;
  }
  // Documents of 61 tokens.
  template <class Length>
  void pack_documents(int documents, Length length, int tokens,
                      const Arguments& more = {}) {
    const auto token = [](int d, int i) { return (d + 3 * i) % 61; };
    pack_documents(documents, length, token, tokens, "rows", more);
  }
};

}  // namespace tessera::testing
