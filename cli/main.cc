// cli/main.cc: the program `tessera`.
#include <csignal>

#include "cli/program.h"
#include "cli/tessera.h"

int main(int argc, char** argv) {
  // A file over the user's limit is an error of writing it.
  std::signal(SIGXFSZ, SIG_IGN);
  return tessera::cli::run_program(tessera::cli::tessera_program(),
                                   {argv + 1, argv + argc});
}
