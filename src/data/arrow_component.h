// data/arrow_component.h: what the library and the component with Apache Arrow
// C++ say to each other, in C alone. The component is a shared object of its
// own (arrow_files/), loaded when a Parquet or Arrow file is first met.
#pragma once

#include <cstdint>

#include "tessera/documents.h"

extern "C" {

enum class TesseraArrowFormat : int32_t {
  parquet,
  ipc_file,
  ipc_stream,
};

struct TesseraArrowWhy {
  char text[1024];  // ends with a NUL
};

// Functions give 0, or another number and why.
struct TesseraArrowComponent {
  int32_t abi;  // TESSERA_ARROW_ABI of the component
  // All columns of a file.
  int (*schema)(const char* path, ArrowSchema* out, TesseraArrowWhy* why);
  // Some of them, by number, from a row on, by so many threads. What the stream
  // gives was checked in full.
  int (*read)(const char* path, const int* columns, int count,
              int64_t first_row, int threads, ArrowArrayStream* out,
              TesseraArrowWhy* why);
  // Into an open file, from where it is. Takes the stream over, and closes the
  // file.
  int (*write)(int descriptor, TesseraArrowFormat format,
               ArrowArrayStream* from, TesseraArrowWhy* why);
};

// The one symbol that the component exports.
const TesseraArrowComponent* tessera_arrow_component(void);
}

#define TESSERA_ARROW_ABI 3
#define TESSERA_ARROW_MAJOR 26  // of Apache Arrow: its libraries' names have it

namespace tessera::data {

// Loaded once; an error says where it was looked for.
Result<const TesseraArrowComponent*> arrow_component();

}  // namespace tessera::data
