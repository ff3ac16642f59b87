// picture/svg_frame.h: what the SVG pictures share: their style and paper.
#pragma once

#include <string>
#include <string_view>

namespace tessera::picture {

// The opening tag, its title and description, and the style of its text.
// `title` and `description` are escaped already.
std::string svg_start(std::string_view width, std::string_view height,
                      std::string_view title, std::string_view description);

// White paper with a border just inside it; width and height less a pixel.
std::string svg_paper(std::string_view inner_width,
                      std::string_view inner_height);

}  // namespace tessera::picture
