// cli/request/flags.cc: declares the request flags, plans, and tells warnings.
#include "cli/request/flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <utility>

namespace tessera::cli {

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

Result<Planned> plan_loaded(Loaded loaded) {
  auto planned = make_planned(std::move(loaded));
  if (planned) print_warnings(planned->batch.plan().warnings);
  return planned;
}

Result<Planned> load_planned(const RequestFlags& flags,
                             const RouteFlags& route) {
  auto loaded = load_request(flags, {}, route);
  if (!loaded) return loaded.error();
  if (auto e = take_picks(route, *loaded); !e) return e.error();
  return plan_loaded(std::move(*loaded));
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    print_error(fmt::format("tessera: warning: {}\n", warning));
  }
}

void print_error(const std::string& text) { std::fputs(text.c_str(), stderr); }

}  // namespace tessera::cli
