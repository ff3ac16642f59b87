// request/unsupported.h: what people ask an attention library for and this one
// does not have. Flags and spec files refuse each by name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace tessera::request {

struct Refused {
  std::string_view name;    // as a spec spells it; a flag has '-' for '_'
  std::string_view reason;  // a sentence without its full stop
};

std::span<const Refused> refused_names();

// The reason for `name`, spelled with '_' or '-', in any case; nothing where
// the name is not refused.
std::optional<std::string_view> refusal(std::string_view name);

}  // namespace tessera::request
