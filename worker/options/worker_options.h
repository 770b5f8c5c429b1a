// Options of neuroshard-worker; configs/worker.yaml documents the keys.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/cli/server_command_line.h"
#include "common/observe/logger.h"
#include "common/rpc/rpc_server.h"
#include "kernels/machine/machine.h"
#include "worker/device/cpu_devices.h"

namespace neuroshard {

// kAuto: kCuda where it can be used, else kCpu.
enum class WorkerBackend { kAuto, kCpu, kCuda };

NS_WORDS(WorkerBackend, {kAuto, "auto"}, {kCpu, "cpu"}, {kCuda, "cuda"});

// Options of neuroshard-worker, with their defaults (configs/worker.yaml).
struct WorkerOptions {
  WorkerBackend backend = WorkerBackend::kAuto;
  RpcServerOptions rpc{.listen = "127.0.0.1:50061", .max_connection_age_ms = 0};
  std::string metrics_listen = "127.0.0.1:9465";  // empty: no metrics are served
  bool metrics_stated = false;                    // else another port will do
  LogOptions log;
  ConfigAtStart config;
  CpuDevicesOptions cpu;
  CollectiveOptions collective;
  std::int64_t stream_idle_timeout_ms = 60'000;
};

// Defaults overridden by the file. INVALID_ARGUMENT lists every fault, NOT_FOUND when there is no
// such file.
StatusOr<WorkerOptions> ReadWorkerOptions(const std::string& path);

// What keeps a worker with these options from starting on this host now, by keys of the file.
Violations FaultsOfStart(const WorkerOptions& options);

// The options in force, for the log.
void LogOptionsInForce(const WorkerOptions& options, const Logger& logger);

// The parsed command line.
struct WorkerCommand {
  std::optional<int>
      exit_code;  // set: everything has been said (help, version, an error); exit with it
  WorkerOptions options;
};

// Flags override the file named by --config, which overrides the defaults. Exit code 2 for a wrong
// command line or file. `try_devices` is a part of --check-config: whether there are such devices.
WorkerCommand ParseWorkerCommandLine(
    int argc, const char* const* argv,
    const std::function<Status(const WorkerOptions&)>& try_devices);

}  // namespace neuroshard
