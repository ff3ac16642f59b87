#include "picture/svg_frame.h"

namespace tessera::picture {

std::string svg_start(double width, double height, std::string_view title,
                      std::string_view description) {
  return fmt::format(
             "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' "
             "viewBox='0 0 {0} {1}' role='img' aria-labelledby='t d'>\n"
             "<title id='t'>{2}</title><desc id='d'>{3}</desc>\n",
             num(width), num(height), title, description) +
         "<style>"
         "text{font:12px ui-sans-serif,system-ui,'Segoe UI',Roboto,Helvetica,"
         "Arial,sans-serif;fill:#4b5563}"
         ".m{font:600 14px ui-monospace,SFMono-Regular,Menlo,Consolas,"
         "'DejaVu Sans Mono',monospace;fill:#111827}"
         ".s{fill:#6b7280}.n{font-size:11px;fill:#6b7280}"
         ".b{font-size:10.5px;fill:#374151}.k{fill:#111827;font-weight:600}"
         "</style>\n";
}

std::string svg_paper(double width, double height) {
  return fmt::format(
      "<rect width='100%' height='100%' rx='10' fill='#fff'/>\n"
      "<rect x='.5' y='.5' width='{}' height='{}' rx='9.5' fill='none' "
      "stroke='#dfe4ea'/>\n",
      num(width - 1), num(height - 1));
}

std::string num(double v) {
  std::string s = fmt::format("{:.2f}", v);
  s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s == "-0" ? "0" : s;
}

}  // namespace tessera::picture
