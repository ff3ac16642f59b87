// request/documents.h: packed document ids from a file, lengths or a random
// draw.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::request {

// Larger files of facts are refused unread.
inline constexpr int64_t kMaxFactBytes = int64_t{1} << 34;

// Ids [batch, length]. Lengths shorter than the row leave padding (id -1).
// FILE is .npy (int32 or int64, [length] or [batch, length]) or text: lengths,
// any number a line, `#` begins a comment, a blank line between batch rows.
// The FILE of cu_seqlens: and position_ids: holds those in place of ids and
// lengths: .npy ([n] or [batch, n]) or such text. An inline source or a 1-D
// .npy serves every batch row; lognormal draws row b with seed + b. `what` is
// how errors call it: "--docs".
Result<std::vector<int32_t>> read_documents(std::string_view source,
                                            std::string_view what,
                                            int64_t batch, int64_t length);

// The file that a source names; a source that names none as it is.
std::string_view document_file(std::string_view source);

}  // namespace tessera::request
