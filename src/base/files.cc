// base/files.cc: reads and writes whole files.
#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/descriptor.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/trace.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "file";

Error unreadable(const std::string& path, int error) {
  if (error == ENOENT) {
    return io_error(kWhere, "input must exist, found no file for {}",
                    in_quotes(path));
  }
  return io_error(kWhere, "input must be readable, found \"{}\" for {}",
                  reason(error), in_quotes(path));
}

Error unwritable(const std::string& path, int error) {
  return io_error(kWhere, "output must be writable, found \"{}\" for {}",
                  reason(error), in_quotes(path));
}

Result<void> check_path(const std::string& path) {
  if (path.empty()) {
    return invalid(kWhere, "a path must not be empty, found '' for it");
  }
  if (path.find('\0') != std::string::npos) {
    return invalid(kWhere, "a path must hold no NUL byte, found one for {}",
                   in_quotes(path));
  }
  return {};
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> write_straight(const std::string& path, const WriteFile& write) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return unwritable(path, errno);
  if (auto e = write(file.get()); !e) return e;
  if (!file.close()) return unwritable(path, errno);
  return {};
}

// The temporary name does not contain the last part of `path`, which may
// already have the maximal length.
std::string temporary_name(const std::string& directory) {
  static std::atomic<uint64_t> next{0};
  return fmt::format("{}/{}{}-{}{}", directory, kUnfinishedStart, ::getpid(),
                     next.fetch_add(1), kUnfinishedEnd);
}

// Makes a new file in the folder of `target` and sets `name`. Returns -1 with
// errno set.
int open_beside(const std::string& target, std::string& name) {
  const std::string directory = directory_of(target);
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; ++attempt) {
    name = temporary_name(directory);
    fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

// Where the bytes go: a regular file, with links followed and its present mode,
// or a device or pipe that is written directly.
struct Destination {
  std::string path;
  mode_t mode = 0;
  bool straight = false;
};

Result<Destination> find_destination(const std::string& path) {
  if (Result<void> ok = check_path(path); !ok) return ok.error();
  Destination out;
  out.path = path;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      return io_error(kWhere, "output must be a file, found a directory for {}",
                      in_quotes(path));
    }
    // A file that may not be written is not replaced either.
    if (::access(path.c_str(), W_OK) != 0) return unwritable(path, errno);
    out.straight = !S_ISREG(status.st_mode);
    if (out.straight) return out;
    out.mode = status.st_mode & 07777;
    char* real = ::realpath(path.c_str(), nullptr);
    if (real == nullptr) return unwritable(path, errno);
    out.path = real;
    std::free(real);
  } else if (errno != ENOENT) {
    return unwritable(path, errno);
  } else if (::lstat(path.c_str(), &status) == 0) {
    return io_error(kWhere,
                    "output must be a file, found a link to nothing for {}",
                    in_quotes(path));
  } else if (path.back() == '/' ||
             ::stat(directory_of(path).c_str(), &status) != 0) {
    return io_error(kWhere,
                    "output must lie in a directory that exists, found none "
                    "for {}",
                    in_quotes(path));
  }
  return out;
}

// One temporary name for all runs that write `target`, of bounded length.
std::string claimed_name(const std::string& target) {
  const size_t begin = target.rfind('/') + 1;  // 0 where there is none
  return fmt::format("{}/{}{}{}", directory_of(target), kUnfinishedStart,
                     digest_of(std::string_view(target).substr(begin)),
                     kUnfinishedEnd);
}

// Why a file cannot be the leftover of an earlier run; "" if it may be.
std::string_view fault(const struct stat& file) {
  if (!S_ISREG(file.st_mode)) return "what is no file";
  if (file.st_uid != ::geteuid()) return "somebody's";
  return file.st_nlink > 1 ? "a file of several names" : "";
}

// Makes a new file of that name, which this run holds until it is closed.
Result<int> claim(const std::string& name, const std::string& path) {
  const auto other = [&](const std::string& found) {
    return unavailable(kWhere, "output must have one writer, found {} for {}",
                       found, in_quotes(path));
  };
  for (int attempt = 0; attempt < 100; ++attempt) {
    Descriptor file(
        ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    const bool made = file.get() >= 0;
    if (!made && errno != EEXIST) return unwritable(path, errno);
    struct stat named {};
    if (!made) {
      if (::lstat(name.c_str(), &named) != 0) continue;
      if (const auto why = fault(named); !why.empty()) {
        return other(fmt::format("{} at {}", why, in_quotes(name)));
      }
      // O_NONBLOCK: a pipe that has taken the name is not waited for.
      file.reset(
          ::open(name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (file.get() < 0 && errno == ENOENT) continue;
      if (file.get() < 0) return unwritable(path, errno);
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return other("another run");
      const Error error = unwritable(path, errno);
      if (made) ::unlink(name.c_str());
      return error;
    }
    // The run that held the lock may have renamed the file meanwhile.
    if (!is_named(file.get(), name)) continue;
    if (made) return file.release();
    struct stat ours {};
    if (::fstat(file.get(), &ours) != 0) return unwritable(path, errno);
    if (!fault(ours).empty()) continue;
    // A leftover has the mode that its run chose, so it is removed and the file
    // is made anew.
    if (::unlink(name.c_str()) != 0) return unwritable(path, errno);
  }
  return other("other runs");
}

// Fills the temporary file, then renames it to its destination.
Result<void> write_and_rename(const std::string& path, const Destination& to,
                              int file, const std::string& temporary,
                              const WriteFile& write) {
  if (auto e = write(file); !e) {
    ::unlink(temporary.c_str());
    return e;
  }
  // The file stays open, so that this run holds it until the rename. fsync()
  // reports every error that close() could.
  if ((to.mode != 0 && ::fchmod(file, to.mode) != 0) || ::fsync(file) != 0 ||
      ::rename(temporary.c_str(), to.path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return unwritable(path, error);
  }
  // The data is safe by now; a directory that cannot be synced is no failure.
  Descriptor folder(::open(directory_of(to.path).c_str(),
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)::fsync(folder.get());
  return {};
}

// How many runs may write one output at a time. `any`: each run has its own
// temporary name, and the last rename wins. `one`: all runs share a temporary
// name, so the next run finds a leftover. `one_if_it_can`: as `one`, but with a
// name of its own if another run holds the shared one or the file system has no
// locks.
enum class Writers { any, one, one_if_it_can };

Result<void> write_aside(const std::string& path, Writers writers,
                         const WriteFile& write) {
  const auto to = find_destination(path);
  if (!to) return to.error();
  if (to->straight) return write_straight(path, write);
  std::string temporary;
  Descriptor file(-1);
  if (writers != Writers::any) {
    temporary = claimed_name(to->path);
    const auto claimed = claim(temporary, path);
    if (!claimed && writers == Writers::one) return claimed.error();
    if (claimed) file.reset(*claimed);
  }
  if (file.get() < 0) file.reset(open_beside(to->path, temporary));
  if (file.get() < 0) return unwritable(path, errno);
  return write_and_rename(path, *to, file.get(), temporary, write);
}

Result<void> write_bytes(const std::string& path, Writers writers,
                         std::string_view bytes) {
  TraceSpan span("file", "write");
  span.note("path", path);
  span.note("bytes", static_cast<int64_t>(bytes.size()));
  return write_aside(path, writers, [&](int file) -> Result<void> {
    if (!write_all(file, bytes)) return unwritable(path, errno);
    return {};
  });
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  TraceSpan span("file", "read");
  span.note("path", path);
  if (Result<void> ok = check_path(path); !ok) return ok.error();
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return unreadable(path, errno);
  const auto refuse = [&](std::string_view found) {
    return io_error(kWhere, "input must be a file or a pipe, found {} for {}",
                    found, in_quotes(path));
  };
  if (S_ISDIR(status.st_mode)) return refuse("a directory");
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
    return refuse("a device");
  }
  if (S_ISSOCK(status.st_mode)) return refuse("a socket");
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return unreadable(path, errno);
  if (::fstat(file.get(), &status) != 0) return unreadable(path, errno);

  const bool regular = S_ISREG(status.st_mode);
  const int64_t ceiling =
      regular ? max_bytes : std::min(max_bytes, kMaxPipeBytes);
  const int64_t stated = regular ? int64_t{status.st_size} : 0;
  const auto too_large = [&](int64_t found, std::string_view more) {
    return over_limit(kWhere,
                      "input must be at most {} bytes, found {}{} for {}",
                      ceiling, found, more, in_quotes(path));
  };
  if (stated > ceiling) return too_large(stated, "");

  // Reading one byte past the stated size detects a file that grew.
  std::string bytes;
  size_t used = 0;
  const auto limit = static_cast<size_t>(ceiling) + 1;
  while (true) {
    if (used == bytes.size()) {
      const size_t first = std::max<size_t>(static_cast<size_t>(stated), 4095);
      const size_t wanted =
          std::min(limit, used == 0 ? first + 1 : used + used / 2);
      try {
        bytes.resize(std::max(wanted, used + 1));
      } catch (const std::bad_alloc&) {
        return over_limit(kWhere,
                          "input must fit in memory, found no room after {} "
                          "bytes for {}",
                          used, in_quotes(path));
      }
    }
    const ssize_t n = ::read(file.get(), bytes.data() + used,
                             std::min(bytes.size() - used, kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(path, errno);
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (used >= limit) return too_large(static_cast<int64_t>(used), " or more");
  }
  bytes.resize(used);
  span.note("bytes", static_cast<int64_t>(used));
  return bytes;
}

Result<void> FileReader::open(const std::string& path) {
  if (Result<void> ok = check_path(path); !ok) return ok;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return unreadable(path, errno);
  const auto refuse = [&] {
    return io_error(kWhere,
                    "input must be a regular file, found another for {}",
                    in_quotes(path));
  };
  if (!S_ISREG(status.st_mode)) return refuse();
  file_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
    return unreadable(path, errno);
  }
  if (!S_ISREG(status.st_mode)) return refuse();
  path_ = path;
  size_ = status.st_size;
  return {};
}

Result<void> FileReader::read(int64_t begin, int64_t end, char* to) const {
  while (begin < end) {
    const size_t wanted =
        std::min(static_cast<size_t>(end - begin), kMaxTransfer);
    const ssize_t n = ::pread(file_.get(), to, wanted, begin);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(path_, errno);
    if (n == 0) {
      return io_error(kWhere,
                      "a file must stay as it was, found {} bytes of {} for {}",
                      begin, size_, in_quotes(path_));
    }
    begin += n;
    to += n;
  }
  return {};
}

bool is_unfinished_name(std::string_view name) {
  return name.starts_with(kUnfinishedStart) && name.ends_with(kUnfinishedEnd);
}

bool is_named(int descriptor, const std::string& path) {
  struct stat ours {};
  struct stat named {};
  return ::fstat(descriptor, &ours) == 0 &&
         ::lstat(path.c_str(), &named) == 0 && ours.st_dev == named.st_dev &&
         ours.st_ino == named.st_ino;
}

Result<void> check_output(const std::string& path) {
  const auto destination = find_destination(path);
  if (!destination) return destination.error();
  if (destination->straight) return {};
  // Some folders accept no new file, whatever their mode says.
  std::string temporary;
  Descriptor file(open_beside(destination->path, temporary));
  if (file.get() < 0) return unwritable(path, errno);
  ::unlink(temporary.c_str());
  return {};
}

Result<void> write_file_by(const std::string& path, const WriteFile& write) {
  return write_aside(path, Writers::one, write);
}

Result<void> write_file(const std::string& path, std::string_view bytes) {
  return write_bytes(path, Writers::any, bytes);
}

Result<void> rewrite_file(const std::string& path, std::string_view bytes) {
  return write_bytes(path, Writers::one_if_it_can, bytes);
}

}  // namespace tessera
