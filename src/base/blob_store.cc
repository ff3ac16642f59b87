// base/blob_store.cc: one file per blob, named after a digest of its key.
#include "base/blob_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <tuple>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "cache";

// File format: the magic, which ends in the version, key bytes (u64), blob
// bytes (u64), a digest of both sizes, the key and the blob (32 hex digits),
// the key, the blob.
constexpr std::string_view kMagic = "tsrblob\1";
constexpr size_t kDigestDigits = 32;
constexpr size_t kHeaderBytes = 8 + 2 * sizeof(uint64_t) + kDigestDigits;
constexpr size_t kMaxKeyBytes = size_t{1} << 20;

constexpr std::string_view kBlobEnd = ".blob";

// A writer holds a lock on its file. Where locks do not work, as between
// machines on some network file systems, a writer whose file is older than this
// is taken for dead. If the writer still lives, only its rename fails.
constexpr int64_t kDeadAfterSeconds = 300;

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

std::string entry_digest(std::string_view key, std::string_view blob) {
  Digest digest;
  digest.add(static_cast<int64_t>(key.size()));
  digest.add(static_cast<int64_t>(blob.size()));
  digest.add(key.data(), key.size());
  digest.add(blob.data(), blob.size());
  return digest.hex();
}

std::string name_of(std::string_view key) {
  return digest_of(key) + std::string(kBlobEnd);
}

bool is_blob_name(std::string_view name) {
  return name.size() == kDigestDigits + kBlobEnd.size() &&
         name.ends_with(kBlobEnd) &&
         name.find_first_not_of("0123456789abcdef") == kDigestDigits;
}

// Opens the folder if it exists and is safe. Returns -1 otherwise, with a
// warning unless the folder is just missing.
int open_folder(const std::string& path, Warnings& warnings) {
  const auto refuse = [&](std::string_view found) {
    warnings.push_back(
        io_error(kWhere,
                 "the cache's folder must be one that only its user writes to, "
                 "found {} for {}",
                 found, in_quotes(path, 300))
            .message);
    return -1;
  };
  if (path.empty() || path.find('\0') != std::string::npos) {
    return refuse("no path");
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return -1;
    if (errno == ENOTDIR) return refuse("something that is no folder");
    return refuse(fmt::format("\"{}\"", reason(errno)));
  }
  Descriptor folder(fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    return refuse(fmt::format("\"{}\"", reason(errno)));
  }
  if (status.st_uid != ::geteuid()) {
    return refuse(fmt::format("user {}'s", status.st_uid));
  }
  if (status.st_mode & kOthersWrite) {
    return refuse(fmt::format("mode {:o}", status.st_mode & 07777));
  }
  return folder.release();
}

// Makes the folder and its parents; new folders have mode 0700. Returns false
// with errno set.
bool make_folder(const std::string& path) {
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    struct stat status {};
    if (::stat(part.c_str(), &status) == 0) continue;
    if (errno != ENOENT) return false;
    // Another process may have made this folder first.
    if (::mkdir(part.c_str(), S_IRWXU) != 0 && errno != EEXIST) return false;
  }
  return true;
}

// Returns false with errno set, or with errno 0 if the file ends too early.
bool read_all(int fd, char* into, size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(fd, into, std::min(size, kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) {
      errno = 0;
      return false;
    }
    into += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Why a file is not the blob that it should be.
struct Fault {
  std::string found;      // empty: no fault
  bool permanent = true;  // false: a later read may succeed
};

Fault system_fault(int error, bool permanent) {
  return {fmt::format("\"{}\"", reason(error)), permanent};
}

Fault read_blob(int fd, std::string_view key, int64_t max_bytes,
                std::string& blob) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_fault(errno, false);
  if (!S_ISREG(status.st_mode)) return {"no regular file"};
  if (status.st_uid != ::geteuid() || (status.st_mode & kOthersWrite)) {
    return {"a file that others may write to"};
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  if (int64_t{status.st_size} > max_bytes) {
    return {
        fmt::format("{} bytes where the cache may have {}", size, max_bytes),
        false};
  }
  const auto cut_short = [] {
    return errno == 0 ? Fault{"a file cut short"} : system_fault(errno, false);
  };
  errno = 0;
  if (size < kHeaderBytes + key.size()) return cut_short();
  std::string head(kHeaderBytes + key.size(), '\0');
  if (!read_all(fd, head.data(), head.size())) return cut_short();
  const std::string_view view = head;
  if (!view.starts_with(kMagic)) return {"another kind of file"};
  size_t at = kMagic.size();
  const auto key_bytes = load<uint64_t>(view, at);
  const auto blob_bytes = load<uint64_t>(view, at += sizeof(uint64_t));
  const std::string_view digest =
      view.substr(at + sizeof(uint64_t), kDigestDigits);
  if (key_bytes != key.size() || view.substr(kHeaderBytes) != key) {
    return {"another key"};
  }
  if (blob_bytes != size - head.size()) return {"a file of another size"};
  try {
    blob.resize(blob_bytes);
  } catch (const std::bad_alloc&) {
    return {"more bytes than memory has", false};
  }
  errno = 0;
  if (!read_all(fd, blob.data(), blob.size())) return cut_short();
  if (entry_digest(key, blob) != digest) return {"damaged bytes"};
  return {};
}

// Makes and locks a new temporary file with an unused name. Returns -1 with
// errno set.
int open_aside(int folder, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) return -1;
    name = fmt::format("{}{}-{:016x}{}", kUnfinishedStart, ::getpid(), random,
                       kUnfinishedEnd);
    const int fd =
        ::openat(folder, name.c_str(),
                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 S_IRUSR | S_IWUSR);
    if (fd >= 0) {
      // If there are no locks, only its age protects this file (is_dead).
      (void)::flock(fd, LOCK_EX | LOCK_NB);
      return fd;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

bool is_dead(int folder, const char* name, const struct stat& status) {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age = int64_t{now.tv_sec} - status.st_mtim.tv_sec;
  if (std::abs(age) < kDeadAfterSeconds) return false;  // clocks may differ
  const Descriptor file(
      ::openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) return false;
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

struct Stored {
  int64_t seconds, nanoseconds;  // time of the last use
  std::string name;
  int64_t bytes;

  // All processes find the same order, so two processes that tidy at once
  // remove the same files and not twice as many.
  bool operator<(const Stored& other) const {
    return std::tie(seconds, nanoseconds, name) <
           std::tie(other.seconds, other.nanoseconds, other.name);
  }
};

}  // namespace

int64_t BlobStore::overhead(std::string_view key) {
  return static_cast<int64_t>(kHeaderBytes + key.size());
}

std::string BlobStore::path_of(std::string_view key) const {
  return folder_ + "/" + name_of(key);
}

std::optional<std::string> BlobStore::get(std::string_view key,
                                          Warnings& warnings) const {
  const Descriptor folder(open_folder(folder_, warnings));
  if (folder.get() < 0) return {};
  const std::string name = name_of(key);
  // O_NONBLOCK: the name may be a pipe.
  const Descriptor file(
      ::openat(folder.get(), name.c_str(),
               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  const int error = errno;
  if (file.get() < 0 && (error == ENOENT || error == ESTALE)) return {};
  std::string blob;
  const Fault fault =
      file.get() >= 0 ? read_blob(file.get(), key, max_bytes_, blob)
                      : system_fault(error, error == ELOOP || error == EACCES);
  if (fault.found.empty()) {
    // Marks the last use. In a read-only folder this fails, which is harmless.
    const struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    (void)::futimens(file.get(), now);
    return blob;
  }
  // If another process has just stored a good blob here, that blob is lost,
  // which is harmless.
  const bool removed =
      fault.permanent && ::unlinkat(folder.get(), name.c_str(), 0) == 0;
  warnings.push_back(
      io_error(kWhere,
               "an entry must be whole and under its own key, found {} for {} "
               "({})",
               fault.found, in_quotes(path_of(key), 300),
               removed ? "it was removed" : "it is left as it is")
          .message);
  return {};
}

bool BlobStore::put(std::string_view key, std::string_view bytes,
                    Warnings& warnings) const {
  const auto refuse = [&](int error) {
    warnings.push_back(
        io_error(kWhere, "the cache must be writable, found \"{}\" for {}",
                 reason(error), in_quotes(folder_, 300))
            .message);
    return false;
  };
  const int64_t size = overhead(key) + static_cast<int64_t>(bytes.size());
  if (key.size() > kMaxKeyBytes || size > max_bytes_) {
    warnings.push_back(
        over_limit(kWhere,
                   "a cached entry must be at most {} bytes, found {} for {}",
                   max_bytes_, size, in_quotes(folder_, 300))
            .message);
    return false;
  }
  const size_t before = warnings.size();
  int fd = open_folder(folder_, warnings);
  if (fd < 0 && warnings.size() == before) {
    if (!make_folder(folder_)) return refuse(errno);
    fd = open_folder(folder_, warnings);
  }
  const Descriptor folder(fd);
  if (fd < 0) return warnings.size() == before ? refuse(ENOENT) : false;

  std::string aside;
  Descriptor file(open_aside(folder.get(), aside));
  if (file.get() < 0) return refuse(errno);
  std::string head(kMagic);
  append(head, static_cast<uint64_t>(key.size()));
  append(head, static_cast<uint64_t>(bytes.size()));
  head += entry_digest(key, bytes);
  head += key;
  // Not synced: after a power cut the digest detects lost data. But closed
  // before the rename, so that a shared file system has all data before the
  // name.
  const bool written = write_all(file.get(), head) &&
                       write_all(file.get(), bytes) && file.close() &&
                       ::renameat(folder.get(), aside.c_str(), folder.get(),
                                  name_of(key).c_str()) == 0;
  const int error = errno;
  if (!written) ::unlinkat(folder.get(), aside.c_str(), 0);
  tidy(folder.get(), warnings);
  return written || refuse(error);
}

void BlobStore::remove(std::string_view key, Warnings& warnings) const {
  const Descriptor folder(open_folder(folder_, warnings));
  if (folder.get() < 0) return;
  if (::unlinkat(folder.get(), name_of(key).c_str(), 0) != 0 &&
      errno != ENOENT) {
    warnings.push_back(
        io_error(kWhere, "an entry must be removable, found \"{}\" for {}",
                 reason(errno), in_quotes(path_of(key), 300))
            .message);
  }
}

void BlobStore::tidy(int folder, Warnings& warnings) const {
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseFolder> list(again < 0 ? nullptr
                                                         : ::fdopendir(again));
  if (!list) {
    if (again >= 0) ::close(again);
    return;
  }
  std::vector<Stored> blobs;
  int64_t total = 0;
  while (const dirent* entry = ::readdir(list.get())) {
    const char* name = entry->d_name;
    const bool aside = is_unfinished_name(name);
    if (!aside && !is_blob_name(name)) continue;
    struct stat status {};
    if (::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    if (aside && is_dead(folder, name, status) &&
        ::unlinkat(folder, name, 0) == 0) {
      continue;
    }
    total += int64_t{status.st_size};
    if (aside) continue;
    blobs.push_back({status.st_mtim.tv_sec, status.st_mtim.tv_nsec, name,
                     int64_t{status.st_size}});
  }
  std::sort(blobs.begin(), blobs.end());
  for (const Stored& blob : blobs) {
    if (total <= max_bytes_) break;
    if (::unlinkat(folder, blob.name.c_str(), 0) != 0 && errno != ENOENT) {
      warnings.push_back(
          io_error(kWhere,
                   "the cache must be at most {} bytes, found {} and \"{}\" "
                   "for {}",
                   max_bytes_, total, reason(errno), in_quotes(folder_, 300))
              .message);
      return;
    }
    total -= blob.bytes;
  }
}

}  // namespace tessera
