// lanes/cpu/sink_rows.h: sink telemetry from the sums of the forward kernels.
#pragma once

#include "lanes/cpu/cpu.h"
#include "lanes/sink_rows.h"
#include "tessera/attention.h"

namespace tessera::cpu {

// `first`: the work of lanes::first_keys_batch. Reads q, k and the sink logits
// of `tensors`. The result has the same bits for any number of threads.
Result<lanes::SinkRows> cpu_sink_rows(const CpuWork& work, const CpuWork& first,
                                      const AttentionShape& shape,
                                      const ForwardTensors& tensors,
                                      const CpuOptions& options = {},
                                      const StopFlag* stop = nullptr);

}  // namespace tessera::cpu
