// picture/losses_test.cc: the contents of the picture of losses.
#include "picture/losses.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::picture {
namespace {

TEST(LossPicture, SaysFirstAndLast) {
  const std::vector<double> losses = {3.5, 2.25, 2.5};
  const std::string svg = draw_losses(losses, 11, "a < b");
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("3.5000 at step 11, 2.5000 at step 13"),
            std::string::npos);
  // The line runs from left to right, with the largest loss at the top.
  EXPECT_NE(svg.find("points='72.0,84.0 402.0,312.0 732.0,266.4 '"),
            std::string::npos)
      << svg;
}

TEST(LossPicture, DrawsOneAndAMillion) {
  EXPECT_NE(draw_losses(std::vector<double>{1}, 1, "one").find("<polyline"),
            std::string::npos);
  const std::vector<double> many(1000000, 2.0);
  EXPECT_LT(draw_losses(many, 1, "many").size(), 100000U);
}

}  // namespace
}  // namespace tessera::picture
