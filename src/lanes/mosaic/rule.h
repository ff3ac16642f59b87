// lanes/mosaic/rule.h: which masks the kernel can apply, as ids and bounds.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/mask.h"
#include "tessera/result.h"

namespace tessera::mosaic {

// A pair is legal where low <= key - position <= high and, with ids, where
// query and key share a document or a segment.
struct Rule {
  std::optional<int64_t> low, high;
  bool documents = false;
  bool segments = false;
};

// causal, window, documents, segments and full, joined by &.
Result<Rule> rule_of(const Mask& mask);

}  // namespace tessera::mosaic
