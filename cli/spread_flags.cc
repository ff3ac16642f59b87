// cli/spread_flags.cc: the flags that spread a batch over devices.
#include "cli/spread_flags.h"

#include "cli/given_flags.h"

namespace tessera::cli {

std::string_view SpreadFlags::given() const {
  return first_given({{"--balance", balance.has_value()},
                      {"--exchange", exchange.has_value()},
                      {"--ceilings", ceilings.has_value()},
                      {"--work", work.has_value()},
                      {"--evenness", evenness.has_value()},
                      {"--uneven", uneven}});
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
