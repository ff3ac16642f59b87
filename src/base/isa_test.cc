// base/isa_test.cc: names, this machine, and the choice on any machine.
#include "base/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace tessera {
namespace {

using enum Isa;

TEST(IsaNames, RoundTrip) {
  const std::pair<Isa, const char*> table[] = {{portable, "portable"},
                                               {avx2, "avx2"},
                                               {avx512, "avx512"},
                                               {avx512bf16, "avx512bf16"},
                                               {amx, "amx"}};
  for (const auto& [isa, name] : table) {
    EXPECT_EQ(to_string(isa), name);
    const auto back = parse_isa(name);
    ASSERT_TRUE(back.ok()) << name;
    EXPECT_EQ(*back, isa);
  }
}

TEST(IsaNames, OthersAreErrors) {
  for (const char* text : {"", "AVX2", "avx", "avx2 ", "sse"}) {
    const auto isa = parse_isa(text);
    ASSERT_FALSE(isa.ok()) << text;
    EXPECT_EQ(isa.error().kind, ErrorKind::invalid);
    EXPECT_EQ(isa.error().message,
              "[cpu] the ISA must be one of portable avx2 avx512 avx512bf16 "
              "amx, found '" +
                  std::string(text) + "'");
  }
}

// The kernel's list is an independent reading of the same processor.
TEST(MachineIsas, AreThoseOfTheKernelsList) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) {
  }
  std::istringstream words(line);
  const std::set<std::string> flags{std::istream_iterator<std::string>(words),
                                    {}};
  if (flags.size() < 10) GTEST_SKIP() << "no list of flags on this system";
  const auto have = [&](std::initializer_list<const char*> names) {
    return std::ranges::all_of(
        names, [&](const char* name) { return flags.contains(name); });
  };
  std::vector<Isa> want = {portable};
  const bool has_avx2 = have({"avx2", "fma", "f16c"});
  const bool has_avx512 =
      has_avx2 && have({"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  if (has_avx2) want.push_back(avx2);
  if (has_avx512) want.push_back(avx512);
  const bool has_bf16 = has_avx512 && have({"avx512_bf16"});
  if (has_bf16) want.push_back(avx512bf16);
  if (has_bf16 && have({"amx_tile", "amx_bf16"})) want.push_back(amx);
  EXPECT_EQ(machine_isas(), want);
}

struct Case {
  std::optional<Isa> forced;
  const char* environment;
  std::vector<Isa> there;
  std::optional<Isa> chosen;
  std::string error = {};
  ErrorKind kind = ErrorKind::unavailable;
};

TEST(ChooseIsa, OnAnyMachine) {
  const std::vector<Isa> old = {portable};
  const std::vector<Isa> laptop = {portable, avx2};
  const std::vector<Isa> server = {portable, avx2, avx512};
  const std::vector<Isa> newest = {portable, avx2, avx512, avx512bf16, amx};
  const Case cases[] = {
      {{}, nullptr, old, portable},
      {{}, nullptr, laptop, avx2},
      {{}, nullptr, server, avx512},
      {{}, nullptr, newest, amx},
      {avx512bf16, nullptr, newest, avx512bf16},
      {{}, "", server, avx512},
      {{}, "avx2", newest, avx2},
      {{}, "portable", laptop, portable},
      {avx512, "avx2", newest, avx512},
      {portable, nullptr, newest, portable},
      {avx2, "nonsense", laptop, avx2},  // not read
      {avx512bf16,
       nullptr,
       laptop,
       {},
       "[cpu] the machine must have the forced ISA, found avx512bf16 for a "
       "machine with portable avx2"},
      {avx2,
       "portable",
       old,
       {},
       "[cpu] the machine must have the forced ISA, found avx2 for a machine "
       "with portable"},
      {{},
       "avx512bf16",
       server,
       {},
       "[cpu] the machine must have the ISA of TESSERA_ISA, found avx512bf16 "
       "for a machine with portable avx2 avx512"},
      {{},
       "avx3\n",
       newest,
       {},
       "[cpu] TESSERA_ISA must be one of portable avx2 avx512 avx512bf16 "
       "amx, found 'avx3\\x0a'",
       ErrorKind::invalid},
  };
  for (const Case& c : cases) {
    const auto isa = choose_isa(c.forced, c.environment, c.there);
    ASSERT_EQ(isa.ok(), c.chosen.has_value());
    if (isa.ok()) {
      EXPECT_EQ(*isa, *c.chosen);
    } else {
      EXPECT_EQ(isa.error().message, c.error);
      EXPECT_EQ(isa.error().kind, c.kind);
    }
  }
}

TEST(ChooseIsa, ReadsTheEnvironmentOfThisProcess) {
  const char* old = std::getenv("TESSERA_ISA");
  const std::string kept = old != nullptr ? old : "";
  setenv("TESSERA_ISA", "portable", 1);
  const auto named = choose_isa({});
  setenv("TESSERA_ISA", "abacus", 1);
  const auto unknown = choose_isa({});
  unsetenv("TESSERA_ISA");
  const auto best = choose_isa({});
  if (old != nullptr) setenv("TESSERA_ISA", kept.c_str(), 1);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(*named, portable);
  EXPECT_FALSE(unknown.ok());
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(*best, machine_isas().back());
}

}  // namespace
}  // namespace tessera
