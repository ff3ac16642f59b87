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
// any count per line, `#` begins a comment, a blank line between batch rows.
// The FILE of cu_seqlens: and position_ids: holds those instead of ids and
// lengths, as .npy ([n] or [batch, n]) or as text of the same form. An inline
// source or a 1-D .npy serves every batch row; lognormal draws row b with seed
// + b. `what` names the source in errors: "--docs".
Result<std::vector<int32_t>> read_documents(std::string_view source,
                                            std::string_view what,
                                            int64_t batch, int64_t length);

// The file of a source: the source without "cu_seqlens:" or "position_ids:". A
// source that names no file is returned as it is.
std::string_view document_file(std::string_view source);

}  // namespace tessera::request
