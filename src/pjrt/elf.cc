// pjrt/elf.cc: checks an ELF file's headers against its size, and finds its
// build id.
#include "pjrt/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::pjrt {
namespace {

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

bool read_at(int fd, void* into, size_t size, uint64_t offset) {
  return pread(fd, into, size, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(size);
}

constexpr uint64_t kMaxNotes = 1 << 16;

// The build id among a file's notes, as hex digits; empty if there is none.
std::string find_build_id(std::string_view notes) {
  constexpr std::string_view kGnu("GNU\0", 4);
  const auto padded = [](uint64_t n) { return (n + 3) & ~uint64_t{3}; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    const auto note = load<ElfW(Nhdr)>(notes);
    notes.remove_prefix(sizeof note);
    const uint64_t name = padded(note.n_namesz);
    const uint64_t size = padded(note.n_descsz);
    if (name > notes.size() || size > notes.size() - name) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz > 0 &&
        notes.substr(0, note.n_namesz) == kGnu) {
      std::string hex;
      for (const char c : notes.substr(name, note.n_descsz)) {
        hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
      }
      return hex;
    }
    notes.remove_prefix(name + size);
  }
  return {};
}

// What is wrong with the file; empty if nothing is.
std::string_view fault(int fd, uint64_t size) {
  ElfW(Ehdr) header = {};
  if (!read_at(fd, &header, sizeof header, 0) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "another kind of file";
  }
  if (header.e_ident[EI_CLASS] != kClass || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(ElfW(Phdr))) {
    return "an ELF file that is none for this machine";
  }
  std::vector<ElfW(Phdr)> parts(header.e_phnum);
  if (!read_at(fd, parts.data(), parts.size() * sizeof(ElfW(Phdr)),
               header.e_phoff)) {
    return "a file cut short";
  }
  for (const ElfW(Phdr) & part : parts) {
    if (part.p_type != PT_LOAD) continue;
    if (part.p_offset > size || part.p_filesz > size - part.p_offset) {
      return "a file cut short";
    }
  }
  return {};
}

}  // namespace

std::string build_id(int fd) {
  ElfW(Ehdr) header = {};
  if (!read_at(fd, &header, sizeof header, 0) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_phentsize != sizeof(ElfW(Phdr))) {
    return {};
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part = {};
    if (!read_at(fd, &part, sizeof part, header.e_phoff + i * sizeof part)) {
      return {};
    }
    if (part.p_type != PT_NOTE || part.p_filesz > kMaxNotes) continue;
    std::string notes(part.p_filesz, '\0');
    if (!read_at(fd, notes.data(), notes.size(), part.p_offset)) return {};
    std::string found = find_build_id(notes);
    if (!found.empty()) return found;
  }
  return {};
}

Result<void> check_library(const std::string& path) {
  const auto refuse = [&](std::string_view found) {
    return io_error("pjrt",
                    "a plugin must be a shared library, found {} for {}", found,
                    in_quotes(path));
  };
  struct stat status = {};
  if (path.empty() || path.find('\0') != std::string::npos) {
    return refuse("no path");
  }
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return refuse("no file");
    return refuse(in_quotes(reason(errno)));
  }
  if (S_ISDIR(status.st_mode)) return refuse("a directory");
  if (!S_ISREG(status.st_mode)) return refuse("a device or pipe");
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return refuse(in_quotes(reason(errno)));
  const std::string_view found =
      fault(file.get(), static_cast<uint64_t>(status.st_size));
  if (!found.empty()) return refuse(found);
  return {};
}

}  // namespace tessera::pjrt
