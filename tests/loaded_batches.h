// tests/loaded_batches.h: reads the batches of a loader.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tessera/documents.h"

namespace tessera::testing {

// All remaining batches; an error fails the test.
inline std::vector<LoadedBatch> all_of(Loader& loader) {
  std::vector<LoadedBatch> all;
  while (true) {
    auto next = loader.next();
    EXPECT_TRUE(next) << next.error().message;
    if (!next || !*next) return all;
    all.push_back(std::move(**next));
  }
}

}  // namespace tessera::testing
