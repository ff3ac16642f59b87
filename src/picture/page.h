// picture/page.h: the HTML page that draws a plan in a browser: page.html with
// page.css and page.js in it (cmake/page.cmake). The page loads nothing; its
// own content policy forbids that.
#pragma once

#include <string_view>

namespace tessera::picture {

// The page contains @TITLE@ once, then @DATA@ once, for draw_html to fill.
std::string_view page();

}  // namespace tessera::picture
