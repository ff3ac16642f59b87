// pjrt/differing_terms.h: the fields in which texts of contracts differ.
#pragma once

#include <span>
#include <string>

namespace tessera::pjrt {

// "q_len 4096, 6144, 8192; dtype "bf16", "f32"": the fields of JSON texts that
// are not the same in all, each with its values in the order of the texts. A
// text within a text is compared by its fields. Keys, which are digests of
// other fields, are listed only if nothing else differs.
std::string differing_terms(std::span<const std::string> texts);

}  // namespace tessera::pjrt
