// pjrt/environment.h: what libtpu reads from the environment when it loads, and
// XLA for CPUs when a client starts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/result.h"

namespace tessera::pjrt {

using Variables = std::vector<std::pair<std::string, std::string>>;

// What lets libtpu compile where no TPU is: no questions to a metadata server
// (it would ask one for minutes), no log files, quiet on stderr, any number of
// processes at once. With a dump folder, libtpu also writes there what it makes
// of each program; the folder must exist and have no white space in its name.
Result<Variables> tpu_environment(const std::string& dump_folder = {});

// Sets what is not set: the user's own values stay. Of LIBTPU_INIT_ARGS, which
// is a list of flags, the user's come last and win, and ours stand there once,
// those of the last call. Before the plugin loads, and before the process
// starts threads that read the environment.
void set_missing(const Variables& variables);

// Before the first client of a process, for so many devices of the CPU: raises
// NPROC to a thread for each device beside those of all cores. Devices wait for
// each other in these threads: were there as many as devices or fewer, none
// might be left for the last one, which never comes, and XLA ends the process
// after a minute. It reads the number once, so that later this does nothing.
// The number stays: a change of the environment is no other thread's business.
void raise_threads(int64_t devices);

// The threads that a plugin's first client would have now: NPROC, or a thread
// for each core.
int64_t threads_now();

}  // namespace tessera::pjrt
