// cli/main.cc: the program `tessera`.
#include <csignal>

#include "cli/program.h"
#include "cli/tessera.h"

int main(int argc, char** argv) {
  // Makes a write beyond the file size limit return an error, not end the
  // program.
  std::signal(SIGXFSZ, SIG_IGN);
  return tessera::cli::run_program(tessera::cli::tessera_program(),
                                   {argv + 1, argv + argc});
}
