// base/child.cc: gives the child its own process group, reads it through pipes
// and kills the whole group.
#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxOutput = size_t{1} << 24;  // more is read and dropped

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(read_end);
    close_end(write_end);
  }
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return fcntl(read_end, F_SETFL, O_NONBLOCK) == 0;
  }
  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& t : texts) out.push_back(t.data());
  out.push_back(nullptr);
  return out;
}

// This process's environment, with the added names replaced or appended.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** at = environ; *at; ++at) {
    const std::string_view entry = *at;
    const std::string_view name = entry.substr(0, entry.find('='));
    bool replaced = false;
    for (const auto& a : added) replaced |= a.first == name;
    if (!replaced) all.emplace_back(entry);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

// Runs in the child: only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* command, char* const* environment,
                         pid_t parent, int in, int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child dies with its parent
  if (getppid() != parent) _exit(127);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvpe(command[0], command, environment);
  const char* why = strerrordesc_np(errno);
  if (why && write(STDERR_FILENO, why, std::strlen(why)) < 0) _exit(126);
  _exit(127);
}

// Reads what is available; false once the other end is closed.
bool drain(int fd, std::string& into) {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    const size_t room = kMaxOutput - into.size();
    into.append(buffer.data(), std::min(room, static_cast<size_t>(n)));
  }
}

bool has_ended(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info,
                WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

}  // namespace

Result<ChildRun> run_child(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& environment,
    double limit_seconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  Pipe out, err;
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || !out.open() || !err.open()) {
    if (null >= 0) close(null);
    return io_error("child", "a pipe must open, found: {}",
                    std::strerror(errno));
  }
  const Clock::time_point start = Clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(argv.data(), envp.data(), parent, null, out.write_end,
           err.write_end);
  }
  close(null);
  if (pid < 0) {
    return io_error("child", "{} must start, found: {}", in_quotes(command[0]),
                    std::strerror(errno));
  }
  setpgid(pid, pid);  // in case the child has not done so yet
  Pipe::close_end(out.write_end);
  Pipe::close_end(err.write_end);

  ChildRun run;
  // A grandchild may hold the pipes open for ever, so the loop ends when the
  // child does.
  while (!has_ended(pid)) {
    if (seconds() >= limit_seconds) {
      run.timed_out = true;
      break;
    }
    pollfd ends[] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
    poll(ends, 2, 50);
    if (out.read_end >= 0 && !drain(out.read_end, run.out)) {
      Pipe::close_end(out.read_end);
    }
    if (err.read_end >= 0 && !drain(err.read_end, run.err)) {
      Pipe::close_end(err.read_end);
    }
  }
  run.seconds = seconds();
  // The child is not reaped yet, so its pid still names its own group.
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  run.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (out.read_end >= 0) drain(out.read_end, run.out);
  if (err.read_end >= 0) drain(err.read_end, run.err);
  return run;
}

}  // namespace tessera
