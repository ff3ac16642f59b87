// pjrt/event.h: the completion of a plugin's asynchronous work.
#pragma once

#include <string_view>

#include "pjrt/handle.h"

struct PJRT_Event;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_Event>::operator()(PJRT_Event* object) const;

// Waits until the event completes; its error reads as that of a call. Null,
// which some plugins return for finished work, is no error.
Result<void> await(const Handle<PJRT_Event>& event, std::string_view rule,
                   std::string_view subject);

}  // namespace tessera::pjrt
