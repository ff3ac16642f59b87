// picture/picture.h: pictures of one worklist as plain text, SVG and HTML. Pure
// functions from a batch to a string.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::picture {

struct Input {
  Batch batch;
  std::string mask;       // the title, escaped where the format needs it
  int64_t batch_row = 0;  // the list to draw; in HTML, the one shown first
  int64_t head = 0;
  // Only text reads these.
  int64_t columns = 80;  // width of the terminal
  bool color = false;    // ANSI, 256 colours
  bool unicode = true;   // false: ASCII alone
  // Only HTML reads this: the title of each plan head, if masks differ.
  std::vector<std::string> head_masks{};
};

// The title of each plan head. `masks` has that of each group of heads; all
// groups are of one size.
std::vector<std::string> titles_of_heads(const Plan& plan,
                                         const std::vector<std::string>& masks);

// Draws for a terminal of at least kMinTextColumns. A cell may stand for
// several tiles; the text says for how many.
inline constexpr int64_t kMinTextColumns = 32;
// The most columns that a user may ask for.
inline constexpr int64_t kMaxTextColumns = 1000;
Result<std::string> draw_text(const Input& input);

// The SVG stays below about 2 MB: if there are too many tiles to tell apart,
// they become shaded cells, and the caption says so.
Result<std::string> draw_svg(const Input& input);

// One file that needs no network. It holds every list of the plan if together
// they are small, otherwise the chosen one, and says so; a list above
// kMaxHtmlBytes is an error.
inline constexpr int64_t kMaxHtmlBytes = int64_t{32} << 20;
Result<std::string> draw_html(const Input& input);

}  // namespace tessera::picture
