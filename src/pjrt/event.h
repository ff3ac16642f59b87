// pjrt/event.h: what a plugin promises to be done later.
#pragma once

#include <string_view>

#include "pjrt/handle.h"

struct PJRT_Event;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_Event>::operator()(PJRT_Event* object) const;

// Waits until it has come about; its error reads as that of a call. Null, which
// some plugins give for what is done already, is no error.
Result<void> await(const Handle<PJRT_Event>& event, std::string_view rule,
                   std::string_view subject);

}  // namespace tessera::pjrt
