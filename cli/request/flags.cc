// cli/request/flags.cc: declares the request flags.
#include "cli/request/flags.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::cli {

void add_request_flags(Command& command, request::RequestFlags& f,
                       const char* target_help) {
  static const std::map<std::string_view, std::string> names = [] {
    std::map<std::string_view, std::string> out;
    for (const receipt::RequestField& field : receipt::request_fields()) {
      out[field.name] = field.flag();
    }
    return out;
  }();
  for (const receipt::RequestField& field : receipt::request_fields()) {
    Flag flag{names.at(field.name).c_str(), {}, field.type, field.help};
    std::visit([&](auto at) { flag.value = &(f.*at); }, field.member);
    flag.group = field.group;
    if (field.name == "target" && target_help) {
      flag.about = target_help;
      flag.group =
          kOptionsGroup;  // --target has a meaning of the command's own
    }
    command.flags.push_back(std::move(flag));
  }
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
