// cli/request/flags.cc: declares the request flags and reads their text.
#include "cli/request/flags.h"

#include <map>
#include <utility>

#include "base/fail.h"
#include "cli/request/spec.h"

namespace tessera::cli {

// Flags fill what the spec leaves open; a field that both give is an error.
Result<receipt::RequestText> request_text(const RequestFlags& f) {
  if (!f.spec) return receipt::RequestText(f);
  auto out = load_spec(*f.spec);
  if (!out) return out;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    if (!field.is_given(f)) continue;
    if (field.is_given(*out)) {
      return invalid("cli",
                     "{} is given once, found it as a flag and in the spec",
                     field.flag());
    }
    field.copy(f, *out);
  }
  return out;
}

void add_request_flags(Command& command, RequestFlags& f,
                       const char* target_help) {
  static const std::map<std::string_view, std::string> names = [] {
    std::map<std::string_view, std::string> out;
    for (const receipt::RequestField& field : receipt::request_fields()) {
      out[field.name] = field.flag();
    }
    return out;
  }();
  std::vector<Flag> flags;
  for (const receipt::RequestField& field : receipt::request_fields()) {
    Flag flag{names.at(field.name).c_str(), {}, field.type, field.help};
    std::visit([&](auto at) { flag.value = &(f.*at); }, field.member);
    flag.group = field.group;
    if (field.name == "target" && target_help) flag.about = target_help;
    flags.push_back(std::move(flag));
  }
  add_flags(command, std::move(flags));
  add_flags(
      command, receipt::kRequestGroup,
      {
          {"--spec", &f.spec, "FILE",
           "The same request as a JSON object, fields named as the flags "
           "(q_len, docs, ...)"},
          {"--plan", &f.plan, "FILE", "A saved plan in place of a request"},
      });
}

}  // namespace tessera::cli
