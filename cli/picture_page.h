// cli/picture_page.h: the HTML page that draws a plan in a browser.
#pragma once

#include <string_view>

namespace tessera {

// Holds @TITLE@ once, then @DATA@ once, for picture_html to fill.
std::string_view picture_page();

}  // namespace tessera
