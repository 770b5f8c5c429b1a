// Real processes for tests: started with arguments, watched through pipes, killed for sure.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace neuroshard {

// Only turns a hang into a failure: far above what anything here takes on a slow, busy machine
// under a sanitizer, and below ctest's own limit, which would not say what hung.
inline constexpr std::chrono::seconds kHangLimit{240};

struct ProcessResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

// Owns one child. Output is read by a thread, so the child never blocks on a full pipe. The
// destructor kills and reaps.
class Subprocess {
 public:
  // argv[0] is a path. The child gets this process's environment and an empty standard input.
  explicit Subprocess(const std::vector<std::string>& argv);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  // The rest of the first stdout (stderr) line that contains `text`, after it; nullopt when the
  // child ends or `timeout` passes without such a line.
  std::optional<std::string> WaitForOutput(const std::string& text,
                                           std::chrono::seconds timeout = kHangLimit);
  std::optional<std::string> WaitForError(const std::string& text,
                                          std::chrono::seconds timeout = kHangLimit);

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Waits for the end; kills the child with SIGKILL when `timeout` passes (exit code 137).
  ProcessResult Wait(std::chrono::seconds timeout = kHangLimit);

 private:
  std::optional<std::string> WaitForText(std::string Subprocess::*stream, const std::string& text,
                                         std::chrono::seconds timeout);
  void ReadPipes(int out_fd, int err_fd);
  std::optional<int> Reap(int options);

  pid_t pid_ = -1;
  std::optional<int> exit_code_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string out_;      // guarded by mutex_
  std::string err_;      // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
  std::thread reader_;
};

// Starts, waits, returns. For commands that end by themselves.
ProcessResult RunProcess(const std::vector<std::string>& argv,
                         std::chrono::seconds timeout = kHangLimit);

// Path of one of our binaries ("neuroshard-planner") in the build under test.
std::string Binary(const std::string& name);

}  // namespace neuroshard
