// Calls of WorkerService as plain functions over domain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/stub/call_policy.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// One device of a worker, as the worker describes it.
struct WorkerDeviceDescription {
  int index = 0;
  std::string name;
  std::string backend;
  std::string collective_backend;
  std::int64_t memory_bytes = 0;
  std::string running_job;  // empty: free
  std::vector<ComputeKernel> compute_kernels = {ComputeKernel::kFused};
};

// A worker: its build, its host, its devices.
struct WorkerDescription {
  std::string version;
  std::string git_commit;
  std::string hostname;
  std::vector<WorkerDeviceDescription> devices;
  std::int64_t now_unix_ms = 0;  // its clock; 0: it does not say
};

// A communicator to open on one worker: all ranks by number, this worker's ranks with their
// devices.
struct CommGroupSpec {
  std::string group_id;
  int world_size = 0;
  std::map<int, int> device_of_rank;  // the ranks that this worker provides
  std::chrono::milliseconds timeout{30'000};
  std::chrono::milliseconds idle_timeout{60'000};
};

// A group as one worker opened it.
struct OpenedCommGroup {
  std::string group_id;
  std::string token;                     // of this worker alone; what the other calls must show
  std::map<int, std::string> addresses;  // of this worker's ranks, by rank
};

// One device, leased from the first Measure until the object goes. Measure and Finish come from one
// thread; Cancel from any.
class ComputeStream {
 public:
  virtual ~ComputeStream() = default;

  // The record of one sample. After any error the stream is over. DEADLINE_EXCEEDED when the worker
  // does not answer in time, RESOURCE_EXHAUSTED when the device is busy, UNAVAILABLE when the
  // worker is gone, CANCELLED after Cancel.
  virtual StatusOr<ComputeMeasurement> Measure(const ComputeSample& sample,
                                               std::chrono::milliseconds deadline) = 0;

  // Ends the stream and waits until the worker has given the device back.
  virtual Status Finish() = 0;

  // Ends a Measure in progress; every later one is CANCELLED.
  virtual void Cancel() = 0;
};

// Thread-safe. GetWorkerInfo and CloseCommGroup are repeatable and retried within the policy; the
// others are tried once.
class WorkerClient {
 public:
  explicit WorkerClient(std::string address, CallPolicy policy = {});
  ~WorkerClient();

  const std::string& address() const;

  StatusOr<WorkerDescription> GetWorkerInfo() const;

  std::unique_ptr<ComputeStream> OpenComputeStream(int device,
                                                   const MeasurementSettings& settings) const;

  StatusOr<OpenedCommGroup> OpenCommGroup(const CommGroupSpec& spec) const;
  // addresses[r] is rank r's. Returns when the whole group is connected.
  Status ConnectCommGroup(const OpenedCommGroup& group,
                          const std::vector<std::string>& addresses) const;
  // Records of this worker's ranks.
  StatusOr<std::vector<CommMeasurement>> ProfileComm(const OpenedCommGroup& group,
                                                     const MeasurementSettings& settings,
                                                     const CommSample& sample,
                                                     std::chrono::milliseconds deadline) const;
  Status CloseCommGroup(const OpenedCommGroup& group) const;

  // Ends every GetWorkerInfo, OpenCommGroup, ConnectCommGroup and ProfileComm in progress with
  // CANCELLED, and every later one at once. CloseCommGroup still works; compute streams have a
  // Cancel of their own.
  void Cancel() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace neuroshard
