// picture/svg_frame.h: shared by the SVG pictures: style, paper and lines.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::picture {

// The opening tag, its title and description, and the style of its text.
// `title` and `description` are escaped already.
std::string svg_start(double width, double height, std::string_view title,
                      std::string_view description);

// White paper with a border just inside it.
std::string svg_paper(double width, double height);

// Coordinates to a hundredth, without needless zeros.
std::string num(double v);

// Base class of a picture whose text is written line by line.
class SvgLines {
 protected:
  template <class... Args>
  void put(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    out_ += "\n";
  }

  std::string out_;
};

}  // namespace tessera::picture
