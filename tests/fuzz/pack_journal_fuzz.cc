// tests/fuzz/pack_journal_fuzz.cc: any text, as it is and with digests added to
// its lines, is a journal that is written again as it was read.
#include "base/digest.h"
#include "data/pack_journal.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

void read(const std::string& text) {
  const data::PackJournal journal = data::read_journal(text);
  must(journal.origin || journal.files.empty());
  if (!journal.origin) return;
  const Json& origin = **journal.origin;
  (void)data::difference(origin, Json::object());
  must(data::difference(origin, origin).empty());
  std::string again = data::journal_line(origin);
  for (const data::PackedFile& file : journal.files) {
    again += data::journal_line(file);
  }
  const data::PackJournal same = data::read_journal(again);
  must(same.origin && **same.origin == origin && same.files == journal.files);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  read(text);
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    Digest digest;
    digest.add(line.data(), line.size());
    lines += digest.hex() + " " + line + "\n";
  }
  read(lines);
  return 0;
}
