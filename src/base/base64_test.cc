// base/base64_test.cc: the examples of RFC 4648.
#include "base/base64.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera {
namespace {

TEST(Base64, AsTheStandardHasIt) {
  for (const auto& [bytes, due] :
       {std::pair{"", ""}, std::pair{"f", "Zg=="}, std::pair{"fo", "Zm8="},
        std::pair{"foo", "Zm9v"}, std::pair{"foob", "Zm9vYg=="},
        std::pair{"fooba", "Zm9vYmE="}, std::pair{"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(base64(bytes), due);
  }
}

}  // namespace
}  // namespace tessera
