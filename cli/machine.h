// cli/machine.h: the name and the load of the machine of a measurement.
#pragma once

#include <string>
#include <string_view>

namespace tessera::cli {

// A folder name: "Intel(R) Xeon(R) Processor" becomes "intel-xeon-processor".
std::string slug(std::string_view text);

// The mean number of cores that other processes used since this object was
// made. A child's time counts as this process's once it has been waited for.
class OtherCores {
 public:
  OtherCores();
  double so_far() const;

 private:
  double wall_, machine_, ours_;  // seconds at the start
};

}  // namespace tessera::cli
