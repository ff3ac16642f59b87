// pjrt/compile.h: a program compiled ahead of time, and the compiler's facts
// about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pjrt/compile_options.h"
#include "pjrt/topology.h"

struct PJRT_Executable;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_Executable>::operator()(PJRT_Executable* object) const;

// Bytes in the device's memory: the program's code, arrays and scratch.
struct MemoryStats {
  int64_t code = 0;
  int64_t argument = 0;
  int64_t output = 0;
  int64_t alias = 0;  // arguments that become outputs
  int64_t temporary = 0;
  std::optional<int64_t> peak;  // nothing: an older plugin
};

// A cost property that the compiler reports: "flops", "bytes accessed".
struct CostProperty {
  std::string name;
  std::variant<double, int64_t, bool, std::string, std::vector<int64_t>> value;
};

// The largest file of a program.
inline constexpr int64_t kMaxProgramBytes = int64_t{1} << 31;

// A function that the plugin lacks is an error of the kind `unavailable`.
class Executable {
 public:
  const Plugin& plugin() const { return *handle_.get_deleter().plugin; }

  Result<std::string> name() const;
  Result<std::string> fingerprint() const;  // bytes, not text
  Result<int64_t> outputs() const;
  Result<int64_t> code_bytes() const;
  Result<MemoryStats> memory() const;
  Result<std::vector<CostProperty>> cost() const;  // sorted by name
  // Bytes for the same platform and plugin version only.
  Result<std::string> serialize() const;

  PJRT_Executable* handle() const { return handle_.get(); }

 private:
  friend Result<Executable> compile(const Topology&, std::string_view,
                                    const CompileOptions&);
  friend class Loaded;  // pjrt/execute.h

  Handle<PJRT_Executable> handle_;
};

// The partitions that a module in text states (`mhlo.num_partitions`), which
// must be one, or the number of the topology's devices. Bytecode is not read,
// nor are comments and strings.
Result<CompileOptions> options_of(const Topology& topology,
                                  std::string_view program);

// `program` is a StableHLO module, as text or as bytecode.
Result<Executable> compile(const Topology& topology, std::string_view program,
                           const CompileOptions& options = {});

}  // namespace tessera::pjrt
