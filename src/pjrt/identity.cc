// pjrt/identity.cc: facts of the file, the environment and the machine.
#include "pjrt/identity.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/threads.h"
#include "receipt/machine.h"

namespace tessera::pjrt {
namespace {

// XLA and libtpu read these, and compile differently.
constexpr const char* kVariables[] = {"XLA_FLAGS", "LIBTPU_INIT_ARGS"};

constexpr uint64_t kMaxNotes = 1 << 16;

bool read_at(int fd, void* into, size_t size, uint64_t offset) {
  return ::pread(fd, into, size, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(size);
}

// The build id among a file's notes, as hex digits; empty where there is none.
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

std::string read_build_id(int fd) {
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

}  // namespace

Result<std::string> file_identity(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return io_error("cache",
                    "a plugin's file must be readable, found \"{}\" "
                    "for {}",
                    reason(errno), in_quotes(path));
  }
  const std::string id = read_build_id(file.get());
  if (!id.empty()) return fmt::format("build {} size {}", id, status.st_size);
  // A package's files may all bear one time; that of the last change of any
  // kind is the system's own, and what was made in one tick is told apart.
  return fmt::format(
      "size {} modified {}.{:09} changed {}.{:09} inode {} of {}",
      status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
      status.st_ctim.tv_sec, status.st_ctim.tv_nsec, status.st_ino,
      status.st_dev);
}

Result<std::string> identity_of(const Client& client, const Devices& devices) {
  const Plugin& plugin = client.plugin();
  auto file = file_identity(plugin.path());
  if (!file) return file.error();
  // A line each; what strangers wrote is quoted, so that none can look like
  // two.
  std::string out = fmt::format(
      "plugin {}\napi minor {}\nplatform {}\nversion {}\ndevice {} of {}, id "
      "{}\n",
      *file, plugin.minor_version(), in_quotes(client.platform(), SIZE_MAX),
      in_quotes(client.platform_version(), SIZE_MAX),
      in_quotes(devices.front().kind, SIZE_MAX), client.devices().size(),
      fmt::join(devices.ids(), ", "));
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    out += fmt::format("{} {}\n", name,
                       value ? in_quotes(value, SIZE_MAX) : "unset");
  }
  if (client.platform() == "cpu") {
    const std::string cpu = receipt::cpu_identity();
    if (cpu.empty()) {
      return unavailable("cache",
                         "programs for this CPU must be kept under its model, "
                         "found none in /proc/cpuinfo");
    }
    out += fmt::format("cores {}\n{}", machine_threads(), cpu);
  }
  return out;
}

}  // namespace tessera::pjrt
