// bench/main.cc: the program `tessera-bench`.
#include <csignal>

#include "bench/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  // A file above the user's size limit becomes a write error, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  return tessera::cli::run_program(tessera::bench::bench_program(),
                                   {argv + 1, argv + argc});
}
