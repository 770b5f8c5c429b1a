#include "tests/process/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

extern char** environ;

namespace neuroshard {
namespace {

std::array<int, 2> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  return ends;
}

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& argv) {
  const auto out = MakePipe();
  const auto err = MakePipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int error = posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  if (error != 0) throw std::runtime_error("cannot start " + argv[0]);
  reader_ = std::thread([this, out_fd = out[0], err_fd = err[0]] { ReadPipes(out_fd, err_fd); });
}

Subprocess::~Subprocess() {
  if (!exit_code_.has_value()) {
    kill(pid_, SIGKILL);
    Reap(0);
  }
  reader_.join();
}

void Subprocess::ReadPipes(int out_fd, int err_fd) {
  std::array<pollfd, 2> fds = {pollfd{out_fd, POLLIN, 0}, pollfd{err_fd, POLLIN, 0}};
  std::array<std::string*, 2> texts = {&out_, &err_};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t got = read(fds[i].fd, buffer.data(), buffer.size());
      const std::lock_guard lock(mutex_);
      if (got > 0) {
        texts[i]->append(buffer.data(), static_cast<std::size_t>(got));
      } else {
        close(fds[i].fd);
        fds[i].fd = -1;
      }
      changed_.notify_all();
    }
  }
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::optional<std::string> Subprocess::WaitForText(std::string Subprocess::*stream,
                                                   const std::string& text,
                                                   std::chrono::seconds timeout) {
  std::unique_lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const std::string& seen = this->*stream;
    const std::size_t at = seen.find(text);
    if (at != std::string::npos) {
      const std::size_t end = seen.find('\n', at);
      if (end != std::string::npos) return seen.substr(at + text.size(), end - at - text.size());
    }
    if (closed_) return std::nullopt;
    // wait_until on a steady clock would use pthread_cond_clockwait, which ThreadSanitizer of this
    // compiler does not know.
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  }
}

std::optional<std::string> Subprocess::WaitForOutput(const std::string& text,
                                                     std::chrono::seconds timeout) {
  return WaitForText(&Subprocess::out_, text, timeout);
}

std::optional<std::string> Subprocess::WaitForError(const std::string& text,
                                                    std::chrono::seconds timeout) {
  return WaitForText(&Subprocess::err_, text, timeout);
}

void Subprocess::Signal(int signal) {
  if (!exit_code_.has_value()) kill(pid_, signal);
}

std::optional<int> Subprocess::Reap(int options) {
  int status = 0;
  if (waitpid(pid_, &status, options) != pid_) return std::nullopt;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

ProcessResult Subprocess::Wait(std::chrono::seconds timeout) {
  {
    // A child closes its pipes by ending, so this wakes at once.
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!closed_ && std::chrono::steady_clock::now() < deadline) {
      changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    }
    if (!closed_) kill(pid_, SIGKILL);
  }
  if (!exit_code_.has_value()) Reap(0);
  std::unique_lock lock(mutex_);
  while (!closed_) changed_.wait(lock);
  return {*exit_code_, out_, err_};
}

ProcessResult RunProcess(const std::vector<std::string>& argv, std::chrono::seconds timeout) {
  Subprocess process(argv);
  return process.Wait(timeout);
}

std::string Binary(const std::string& name) { return std::string(NEUROSHARD_BIN_DIR) + "/" + name; }

}  // namespace neuroshard
