// base/isa.cc: the names of ISAs, the ISAs of this machine, the choice of one.
#include "base/isa.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace tessera {
namespace {

constexpr std::string_view kWhere = "cpu";
constexpr std::array kIsas = {Isa::portable, Isa::avx2, Isa::avx512,
                              Isa::avx512bf16, Isa::amx};

std::string names(std::span<const Isa> isas) {
  std::string text;
  for (const Isa isa : isas) {
    if (!text.empty()) text += ' ';
    text += to_string(isa);
  }
  return text;
}

// `source` names the origin of the text, for the error.
Result<Isa> parse(std::string_view text, std::string_view source) {
  for (const Isa isa : kIsas) {
    if (text == to_string(isa)) return isa;
  }
  return invalid(kWhere, "{} must be one of {}, found {}", source, names(kIsas),
                 in_quotes(text));
}

#if defined(__x86_64__)
// clang 14 does not know "f16c" in __builtin_cpu_supports. If that reports
// avx2, the operating system saves these registers. Cached: under a hypervisor
// each cpuid takes 6 us, and every call comes here.
bool has_f16c() {
  static const bool has = [] {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has;
}

// Linux saves the 8 KiB of tile state only for a process that asks for it, and
// for its threads. It refuses if a thread's signal stack is too small.
bool may_use_amx() {
#if defined(__linux__)
  static const bool may = [] {
    constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;
    constexpr long kAskForState = 0x1023, kTileData = 18;  // of arch_prctl
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16) != 0 &&
           (d & kTiles) != 0 &&
           syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
  }();
  return may;
#else
  return false;
#endif
}
#endif

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

Result<Isa> parse_isa(std::string_view text) { return parse(text, "the ISA"); }

std::vector<Isa> machine_isas() {
  std::vector<Isa> there = {Isa::portable};
#if defined(__x86_64__)
  // Each ISA needs all ISAs before it.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !has_f16c()) {
    return there;
  }
  there.push_back(Isa::avx2);
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return there;
  }
  there.push_back(Isa::avx512);
  if (!__builtin_cpu_supports("avx512bf16")) return there;
  there.push_back(Isa::avx512bf16);
  if (may_use_amx()) there.push_back(Isa::amx);
#endif
  return there;
}

Result<Isa> choose_isa(std::optional<Isa> forced, const char* environment,
                       std::span<const Isa> there) {
  const bool named = !forced && environment != nullptr && *environment != '\0';
  if (named) {
    auto isa = parse(environment, "TESSERA_ISA");
    if (!isa) return isa.error();
    forced = *isa;
  }
  if (!forced) return there.back();
  if (std::ranges::find(there, *forced) != there.end()) return *forced;
  return unavailable(kWhere,
                     "the machine must have the {}, found {} for a machine "
                     "with {}",
                     named ? "ISA of TESSERA_ISA" : "forced ISA",
                     to_string(*forced), names(there));
}

Result<Isa> choose_isa(std::optional<Isa> forced) {
  return choose_isa(forced, std::getenv("TESSERA_ISA"), machine_isas());
}

}  // namespace tessera
