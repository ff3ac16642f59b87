// data/arrow_component.h: the C interface between the library and the component
// with Apache Arrow C++. The component is a shared object (arrow_files/), which
// is loaded when the first Parquet or Arrow file is opened.
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

// Functions return 0; or another number, with the reason in `why`.
struct TesseraArrowComponent {
  int32_t abi;  // TESSERA_ARROW_ABI of the component
  // The schema of all columns of a file.
  int (*schema)(const char* path, ArrowSchema* out, TesseraArrowWhy* why);
  // Reads columns by number, from first_row on, with `threads` threads. All
  // arrays of the stream are fully checked.
  int (*read)(const char* path, const int* columns, int count,
              int64_t first_row, int threads, ArrowArrayStream* out,
              TesseraArrowWhy* why);
  // Writes to an open file, which it closes. Takes over the stream.
  int (*write)(int descriptor, TesseraArrowFormat format,
               ArrowArrayStream* from, TesseraArrowWhy* why);
};

// The one symbol that the component exports.
const TesseraArrowComponent* tessera_arrow_component(void);
}

#define TESSERA_ARROW_ABI 3
#define TESSERA_ARROW_MAJOR 26  // of Apache Arrow; part of its libraries' names

namespace tessera::data {

// Loads the component once; an error lists the places that were searched.
Result<const TesseraArrowComponent*> arrow_component();

}  // namespace tessera::data
