// cli/spread_flags.cc
#include "cli/spread_flags.h"

namespace tessera::cli {

std::string_view SpreadFlags::given() const {
  if (balance) return "--balance";
  if (exchange) return "--exchange";
  if (ceilings) return "--ceilings";
  if (work) return "--work";
  if (evenness) return "--evenness";
  return uneven ? "--uneven" : "";
}

ShardWords SpreadFlags::words(ShardWords open) const {
  if (balance) open.balance = *balance;
  if (exchange) open.exchange = *exchange;
  if (ceilings) open.ceilings = *ceilings;
  if (work) open.work = *work;
  if (evenness) open.evenness = *evenness;
  open.uneven |= uneven;
  return open;
}

}  // namespace tessera::cli
