// pjrt/execute.h: a program that is loaded on its devices, and its runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/compile.h"

struct PJRT_LoadedExecutable;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_LoadedExecutable>::operator()(
    PJRT_LoadedExecutable* object) const;

class Loaded {
 public:
  const Client& client() const { return *client_; }
  const Device& device() const { return devices_->front(); }
  const Devices& devices() const { return *devices_; }
  // Of each device. Nothing where the plugin does not tell; then calls are the
  // plugin's to refuse, which looks at sizes only, if at all.
  const std::optional<std::vector<ArrayType>>& inputs() const {
    return inputs_;
  }
  const std::vector<ArrayType>& outputs() const { return outputs_; }
  // Memory that a run takes beside its inputs; 0 where the plugin does not say.
  // Where it may take theirs, `given_bytes` of it is none.
  int64_t run_bytes() const { return run_bytes_; }
  int64_t given_bytes() const { return given_bytes_; }
  // Its code and what is known of it; serialize() is what load() takes.
  Result<Executable> executable() const;
  PJRT_LoadedExecutable* handle() const { return handle_.get(); }

 private:
  friend class LoadedMaker;  // execute.cc

  const Client* client_ = nullptr;
  std::optional<Devices> devices_;  // always there once it is made
  std::optional<std::vector<ArrayType>> inputs_;
  std::vector<ArrayType> outputs_;
  int64_t run_bytes_ = 0, given_bytes_ = 0;
  Handle<PJRT_LoadedExecutable> handle_;
};

// For devices of the client's; `program` is StableHLO, as text or as bytecode.
// Where they are several, each runs it as its own partition.
Result<Loaded> compile(const Client& client, const Devices& devices,
                       std::string_view program);

// What Executable::serialize() gave, in this process or another one, under the
// same plugin, platform version and kind of device. Bytes that are not such are
// the plugin's to refuse; some plugins crash on them, so check them first.
Result<Loaded> load(const Client& client, const Devices& devices,
                    std::string_view serialized);

// Runs it once and waits until it is done. Inputs stay as they are. Safe from
// any thread.
Result<std::vector<Buffer>> execute(const Loaded& program,
                                    std::span<const Buffer* const> inputs);

// On all its devices at once: inputs and results of each. An input whose memory
// the program lets a result have is kept, or given up: then it may be gone
// after the run (is_gone), also where that failed.
using Inputs = std::vector<const Buffer*>;
enum class Reused : uint8_t { kept, given };
Result<std::vector<std::vector<Buffer>>> execute_on_all(
    const Loaded& program, std::span<const Inputs> inputs,
    Reused reused = Reused::kept);

}  // namespace tessera::pjrt
