// cli/machine.h: what measurements say about the machine they ran on.
#pragma once

#include <string>
#include <string_view>

namespace tessera::cli {

// Fit for a folder: "Intel(R) Xeon(R) Processor" is "intel-xeon-processor".
std::string slug(std::string_view text);

// Cores that other processes kept busy since this object was made. Children
// count as ours once they have been waited for.
class OtherCores {
 public:
  OtherCores();
  double so_far() const;

 private:
  double wall_, machine_, ours_;  // seconds at the start
};

}  // namespace tessera::cli
