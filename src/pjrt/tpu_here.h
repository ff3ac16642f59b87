// pjrt/tpu_here.h: whether this machine has a TPU, by its device files: libtpu
// without one waits for it, so it is not asked for a client there.
#pragma once

namespace tessera::pjrt {

bool is_tpu_here();

}  // namespace tessera::pjrt
