// pjrt/differing_terms.h: in what texts of contracts differ.
#pragma once

#include <span>
#include <string>

namespace tessera::pjrt {

// "q_len 4096, 6144, 8192; dtype "bf16", "f32"": the fields of JSON texts that
// are not the same in all, each with its values in the order of the texts. A
// text within a text counts with its fields; keys, which digest others, only
// where nothing else differs.
std::string differing_terms(std::span<const std::string> texts);

}  // namespace tessera::pjrt
