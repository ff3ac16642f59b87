// pjrt/elf.cc: an ELF file's headers against its size.
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

#include "base/fail.h"
#include "base/text.h"

namespace tessera::pjrt {
namespace {

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

bool read_at(int fd, void* into, size_t size, uint64_t offset) {
  return pread(fd, into, size, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(size);
}

// Empty where all is well; else what was found.
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
    return refuse(in_quotes(std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) return refuse("a directory");
  if (!S_ISREG(status.st_mode)) return refuse("a device or pipe");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refuse(in_quotes(std::strerror(errno)));
  const std::string_view found =
      fault(fd, static_cast<uint64_t>(status.st_size));
  close(fd);
  if (!found.empty()) return refuse(found);
  return {};
}

}  // namespace tessera::pjrt
