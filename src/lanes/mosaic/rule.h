// lanes/mosaic/rule.h: which masks the kernel can apply, as ids and bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/plan.h"

namespace tessera::mosaic {

// A pair is legal where low <= key - position <= high and, with ids, where
// query and key share a document or a segment.
struct Rule {
  std::optional<int64_t> low, high;
  bool documents = false;
  bool segments = false;
};

// The rule of a mask of causal, window, documents, segments and full, joined by
// &; nothing for any other mask.
std::optional<Rule> rule_of(const Mask& mask);

// Text of all masks of a request, with window bounds folded to their classes.
std::string mask_text(const Request& request);

}  // namespace tessera::mosaic
