// Our servers as real processes on ports that the system chose.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/process/subprocess.h"

namespace neuroshard {

class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& argv)
      : process_(std::make_unique<Subprocess>(argv)) {
    const auto address = process_->WaitForOutput("listening on ");
    if (address.has_value()) {
      address_ = *address;
    } else {
      ADD_FAILURE() << argv[0] << " did not start: " << process_->Wait(std::chrono::seconds(5)).err;
    }
  }

  const std::string& address() const { return address_; }
  Subprocess& process() { return *process_; }

  // SIGTERM, then the exit code.
  int Stop() {
    process_->Signal(SIGTERM);
    return process_->Wait().exit_code;
  }

 private:
  std::unique_ptr<Subprocess> process_;
  std::string address_;
};

inline ServerProcess StartPlanner(const std::string& model_root,
                                  std::vector<std::string> more = {}) {
  std::vector<std::string> argv = {Binary("neuroshard-planner"),
                                   "--models",
                                   model_root,
                                   "--listen",
                                   "127.0.0.1:0",
                                   "--metrics",
                                   "127.0.0.1:0"};
  argv.insert(argv.end(), more.begin(), more.end());
  return ServerProcess(argv);
}

inline ServerProcess StartWorker(int cpu_devices, const std::string& listen = "127.0.0.1:0") {
  return ServerProcess({Binary("neuroshard-worker"), "--cpu-devices", std::to_string(cpu_devices),
                        "--listen", listen, "--metrics", "127.0.0.1:0"});
}

}  // namespace neuroshard
