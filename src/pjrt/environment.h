// pjrt/environment.h: the environment that libtpu reads when it loads, and XLA
// for CPUs when a client starts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/result.h"

namespace tessera::pjrt {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Variables that let libtpu compile on a machine without a TPU: no queries to a
// metadata server (they would take minutes), no log files, quiet on stderr, any
// number of processes at once. With a dump folder, libtpu also writes its dumps
// of each program there; the folder must exist and have no white space in its
// name.
Result<Variables> tpu_environment(const std::string& dump_folder = {});

// Sets variables that are not set: the user's own values stay. In
// LIBTPU_INIT_ARGS, a list of flags, ours are put in once, those of the last
// call; the user's come last and win. Call before the plugin loads, and before
// the process starts threads that read the environment.
void set_missing(const Variables& variables);

// Raises NPROC to one thread per device plus one per core. Call before the
// first client of a process: XLA reads the number once. Devices wait for each
// other in these threads. With no more threads than devices, the last device
// may never get one, and XLA ends the process after a minute. NPROC is not
// restored: changing the environment beside other threads is unsafe.
void raise_threads(int64_t devices);

// The threads that a plugin's first client would get now: NPROC, or one per
// core.
int64_t threads_now();

}  // namespace tessera::pjrt
