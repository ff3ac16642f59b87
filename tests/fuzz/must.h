// tests/fuzz/must.h: a fuzzer's assertion, active in every build type.
#pragma once

namespace tessera {

inline void must(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace tessera
