// picture/page.h: the HTML page that draws a plan in a browser: page.html with
// page.css and page.js in it (cmake/page.cmake). It loads nothing; its own
// policy forbids it to.
#pragma once

#include <string_view>

namespace tessera::picture {

// Holds @TITLE@ once, then @DATA@ once, for draw_html to fill.
std::string_view page();

}  // namespace tessera::picture
