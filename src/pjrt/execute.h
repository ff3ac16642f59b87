// pjrt/execute.h: a program that is loaded on its devices, and its execution.
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
  // The inputs per device. Nothing if the plugin does not tell; then only the
  // plugin checks calls, by their sizes if at all.
  const std::optional<std::vector<ArrayType>>& inputs() const {
    return inputs_;
  }
  const std::vector<ArrayType>& outputs() const { return outputs_; }
  // Memory that a run takes besides its inputs; 0 if the plugin does not say.
  // If the run may reuse inputs, it takes `given_bytes` less.
  int64_t run_bytes() const { return run_bytes_; }
  int64_t given_bytes() const { return given_bytes_; }
  // The executable and its facts; load() takes what its serialize() returns.
  Result<Executable> executable() const;
  PJRT_LoadedExecutable* handle() const { return handle_.get(); }

 private:
  friend class LoadedMaker;  // execute.cc

  const Client* client_ = nullptr;
  std::optional<Devices> devices_;  // always set after make()
  std::optional<std::vector<ArrayType>> inputs_;
  std::vector<ArrayType> outputs_;
  int64_t run_bytes_ = 0, given_bytes_ = 0;
  Handle<PJRT_LoadedExecutable> handle_;
};

// Compiles StableHLO, as text or as bytecode, for devices of the client. Each
// of several devices runs the program as its own partition.
Result<Loaded> compile(const Client& client, const Devices& devices,
                       std::string_view program);

// Loads what Executable::serialize() returned, in this process or another one,
// under the same plugin, platform version and kind of device. The plugin has to
// refuse other bytes, but some plugins crash on them: check them first.
Result<Loaded> load(const Client& client, const Devices& devices,
                    std::string_view serialized);

// Runs the program once and waits for the end. Inputs stay as they are. Safe
// from any thread.
Result<std::vector<Buffer>> execute(const Loaded& program,
                                    std::span<const Buffer* const> inputs);

// Runs the program on all its devices at once: inputs and results per device.
// An input whose memory the program lets a result reuse is kept, or given up:
// then it may be gone after the run (is_gone), even if the run failed.
using Inputs = std::vector<const Buffer*>;
enum class Reused : uint8_t { kept, given };
Result<std::vector<std::vector<Buffer>>> execute_on_all(
    const Loaded& program, std::span<const Inputs> inputs,
    Reused reused = Reused::kept);

}  // namespace tessera::pjrt
