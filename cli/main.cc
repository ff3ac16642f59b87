// cli/main.cc: the program `tessera`.
#include "cli/program.h"

int main(int argc, char** argv) {
  return tessera::cli::run_program({argv + 1, argv + argc});
}
