// pjrt/vendor_error.cc: selects the lines worth keeping, and maps codes to
// kinds.
#include "pjrt/vendor_error.h"

#include <iterator>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::pjrt {
namespace {

// The codes of PJRT are those of absl::Status.
constexpr std::string_view kCodes[] = {"OK",
                                       "CANCELLED",
                                       "UNKNOWN",
                                       "INVALID_ARGUMENT",
                                       "DEADLINE_EXCEEDED",
                                       "NOT_FOUND",
                                       "ALREADY_EXISTS",
                                       "PERMISSION_DENIED",
                                       "RESOURCE_EXHAUSTED",
                                       "FAILED_PRECONDITION",
                                       "ABORTED",
                                       "OUT_OF_RANGE",
                                       "UNIMPLEMENTED",
                                       "INTERNAL",
                                       "UNAVAILABLE",
                                       "DATA_LOSS",
                                       "UNAUTHENTICATED"};
constexpr int kResourceExhausted = 8;
constexpr int kUnimplemented = 12;
constexpr int kUnavailable = 14;

constexpr size_t kMaxBytes = 600;

// Start of the vendor's own stack trace: lines after it are dropped.
constexpr std::string_view kTrace = "=== ";

constexpr std::string_view kNoise[] = {
    "Please report a bug",
    // This line follows the real parse error.
    "<unknown>:0: error: Failed to parse using StableHLO",
};

std::string_view trim(std::string_view line) {
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) {
    line.remove_prefix(1);
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) {
    line.remove_suffix(1);
  }
  return line;
}

bool is_noise(std::string_view line) {
  for (const std::string_view start : kNoise) {
    if (line.starts_with(start)) return true;
  }
  return line.empty();
}

}  // namespace

std::string code_name(int code) {
  if (code >= 0 && code < static_cast<int>(std::size(kCodes))) {
    return std::string(kCodes[code]);
  }
  return fmt::format("code {}", code);
}

std::string informative(std::string_view message) {
  std::string out;
  while (!message.empty() && out.size() < kMaxBytes) {
    const size_t end = message.find('\n');
    const std::string_view line = trim(message.substr(0, end));
    message.remove_prefix(end == message.npos ? message.size() : end + 1);
    if (line.starts_with(kTrace)) break;
    if (is_noise(line)) continue;
    if (!out.empty()) out += out.ends_with(':') ? " " : "; ";
    out += line;
  }
  return out.empty() ? "no message" : out;
}

Error vendor_error(std::string_view rule, int code, std::string_view message,
                   std::string_view subject) {
  Error error =
      invalid("pjrt", "{}, found {}: {} for {}", rule, code_name(code),
              in_quotes(informative(message), kMaxBytes), subject);
  if (code == kResourceExhausted) error.kind = ErrorKind::limit;
  if (code == kUnimplemented || code == kUnavailable) {
    error.kind = ErrorKind::unavailable;
  }
  return error;
}

}  // namespace tessera::pjrt
