// lanes/reference/sink_row.h: sink telemetry of one query in fp64, with the
// error that a lane computing in fp32 may have.
#pragma once

#include <cstdint>
#include <span>

#include "lanes/reference/bound.h"
#include "lanes/reference/rows.h"

namespace tessera::reference {

struct SinkRow {
  bool live = false;  // it has a legal key
  Expected mass, entropy;
};

// `first`: of each of the row's keys, whether its mass counts.
SinkRow sink_row(const QueryRow& row, std::span<const uint8_t> first,
                 double softcap);

}  // namespace tessera::reference
