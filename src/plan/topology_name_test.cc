// plan/topology_name_test.cc: names that this library reads, names left to the
// vendor, and names that are refused.
#include "plan/topology_name.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tessera/machine.h"

namespace tessera::plan {
namespace {

TEST(TopologyName, CountsChips) {
  EXPECT_EQ(chips_of("v6e:1x1"), 1);
  EXPECT_EQ(chips_of("v6e:2x4"), 8);
  EXPECT_EQ(chips_of("v5p:2x3x4"), 24);
  EXPECT_EQ(chips_of("v6e:02x2"), 4);
  EXPECT_EQ(chips_of("v9:46340x46340"), int64_t{46340} * 46340);
  for (const Chip& chip : chips()) EXPECT_TRUE(chips_of(chip.target));
  for (const char* name : {"",
                           "v6e",
                           "v6e:",
                           "v6e:4",
                           "v6e:x",
                           "v6e:1x",
                           "v6e:x1",
                           "v6e:1xx1",
                           "v6e:1x1x1x1",
                           "v6e:0x1",
                           "v6e:1x0",
                           "v6e:2x2x00",
                           "v6e:-1x1",
                           "v6e:-1x-1",
                           "v6e:+1x1",
                           "v6e: 1x1",
                           "v6e:1x1 ",
                           "v6e:1X1",
                           "v6e:1.5x2",
                           "v6e=2x2",
                           "v6e:65536x32768",
                           "v6e:2147483648x1",
                           "v6e:99999999999999999999x1",
                           "v6e:garbage",
                           "v6e:1x1:1x1"}) {
    EXPECT_FALSE(chips_of(name)) << name;
  }
}

TEST(TopologyName, RefusesSidesThatAreNoCounts) {
  for (const char* name :
       {"v6e:0x1", "v6e:1x0", "v6e:00x1", "v6e:2x2x0", "v6e:0", "v6e:0x",
        "v6e=00x1", "v6e_0x1", "v4:0x2x2_twisted", "v4:2x0x2_untwisted",
        "v6e:-1x1", "v6e:2x-2", "v6e:-0x1", "v6e:65536x65536",
        "v6e:65536x32768", "v6e:2147483648x1", "v6e:99999999999999999999x1",
        "v6e:1x-99999999999999999999"}) {
    const auto e = check_sides("here", name);
    ASSERT_FALSE(e) << name;
    EXPECT_EQ(e.error().kind, ErrorKind::invalid);
    EXPECT_EQ(e.error().message,
              "[here] sides of a target must be from 1 on, of at most "
              "2147483647 chips, found " +
                  in_quotes(name));
  }
}

// Other names are left to the vendor's library.
TEST(TopologyName, LeavesOtherNamesToTheVendor) {
  for (const char* name :
       {"", "v6e", "v6e-4", "v6e:1x1", "v6e:01x1", "v4:2x2x4_twisted",
        "v4:2x2x4_untwisted", "v6e=2x2", "v6e:4", "v6e:", "v6e:x", "v6e:1x",
        "v6e:garbage", "v9e:3x7x9", "TPU v6 lite 0", "v6e:+1x1"}) {
    EXPECT_TRUE(check_sides("here", name)) << name;
  }
}

}  // namespace
}  // namespace tessera::plan
