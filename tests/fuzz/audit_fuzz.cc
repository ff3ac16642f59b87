// tests/fuzz/audit_fuzz.cc: any text is either refused in one line, or the size
// of each of its arrays is a multiple of its part.
#include "tessera/shard.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

void check(const AuditArray& a) {
  must(!a.sharding.empty() && a.part.size() == a.shape.size());
  must(a.part_bytes >= 0);
  for (size_t d = 0; d < a.part.size(); ++d) {
    must(a.part[d] == a.shape[d] || a.shape[d] % a.part[d] == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Audit> audit = audit_program(text);
  if (!audit) {
    must(audit.error().message.starts_with("[audit] "));
    must(audit.error().message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  must(audit->fingerprint.size() == 32 && audit->partitions >= 1);
  for (const AuditArray& a : audit->arguments) check(a);
  for (const AuditArray& a : audit->results) check(a);
  for (const AuditBoundary& b : audit->boundaries) {
    for (const AuditArray& a : b.arrays) check(a);
  }
  for (const AuditCollective& c : audit->collectives) {
    must(c.operand_bytes >= 0 && c.sent_bytes.value_or(0) >= 0);
  }
  return 0;
}
