// Calls of WorkerService as plain functions; samples and their records are values of the domain.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/stub/call_policy.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "neuroshard/v1/worker.pb.h"

namespace neuroshard {

// Whether the device looks tables up with `kernel`; one of before there were others does with
// `fused` alone.
bool Measures(const v1::WorkerDevice& device, ComputeKernel kernel);

// A group as one worker opened it.
struct OpenedCommGroup {
  std::string group_id;
  std::string token;                     // of this worker alone; what the other calls must show
  std::map<int, std::string> addresses;  // of this worker's ranks, by rank
};

// One device, leased from the first Measure until the object goes, which is before its WorkerClient
// does. One thread.
class ComputeStream {
 public:
  virtual ~ComputeStream() = default;

  // The record of one sample. After any error the stream is over. DEADLINE_EXCEEDED when the worker
  // does not answer in time, RESOURCE_EXHAUSTED when the device is busy, UNAVAILABLE when the
  // worker is gone, CANCELLED after WorkerClient::Cancel.
  virtual StatusOr<ComputeMeasurement> Measure(const ComputeSample& sample,
                                               std::chrono::milliseconds deadline) = 0;

  // Ends the stream and waits until the worker has given the device back.
  virtual Status Finish() = 0;
};

// Thread-safe. GetWorkerInfo and CloseCommGroup are repeatable and retried within the policy; the
// others are tried once.
class WorkerClient {
 public:
  explicit WorkerClient(std::string address, CallPolicy policy = {});
  ~WorkerClient();

  const std::string& address() const;

  StatusOr<v1::WorkerInfo> GetWorkerInfo() const;

  std::unique_ptr<ComputeStream> OpenComputeStream(int device,
                                                   const MeasurementSettings& settings) const;

  // A communicator: all ranks by number, this worker's ranks with their devices.
  StatusOr<OpenedCommGroup> OpenCommGroup(const v1::OpenCommGroupRequest& request) const;
  // addresses[r] is rank r's. Returns when the whole group is connected.
  Status ConnectCommGroup(const OpenedCommGroup& group,
                          const std::vector<std::string>& addresses) const;
  // Records of this worker's ranks.
  StatusOr<std::vector<CommMeasurement>> ProfileComm(const OpenedCommGroup& group,
                                                     const MeasurementSettings& settings,
                                                     const CommSample& sample,
                                                     std::chrono::milliseconds deadline) const;
  Status CloseCommGroup(const OpenedCommGroup& group) const;

  // Ends every call in progress with CANCELLED, also Measure of streams, and every later one at
  // once. CloseCommGroup still works.
  void Cancel() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace neuroshard
