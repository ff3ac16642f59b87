// pjrt/event.cc: waits for events, and frees them.
#include "pjrt/event.h"

#include "pjrt/api.h"

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_Event>::operator()(PJRT_Event* object) const {
  PJRT_Event_Destroy_Args args = {};
  args.event = object;
  (void)TESSERA_PJRT_CALL(*plugin, PJRT_Event_Destroy, args,
                          Purpose{"an event must be freed", "it"});
}

Result<void> await(const Handle<PJRT_Event>& event, std::string_view rule,
                   std::string_view subject) {
  if (!event) return {};
  PJRT_Event_Await_Args args = {};
  args.event = event.get();
  return TESSERA_PJRT_CALL(*event.get_deleter().plugin, PJRT_Event_Await, args,
                           Purpose{rule, subject});
}

}  // namespace tessera::pjrt
