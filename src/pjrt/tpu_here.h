// pjrt/tpu_here.h: whether this machine has a TPU, by its device files. Without
// a TPU, libtpu would wait for one, so no client is made there.
#pragma once

namespace tessera::pjrt {

bool is_tpu_here();

}  // namespace tessera::pjrt
