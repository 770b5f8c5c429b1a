// A device session that does what a test scripted.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "worker/device/device_session.h"

namespace neuroshard::testing {

// Shared by the sessions of a test, which it must outlive. Counters are of calls.
struct FakeSessionScript {
  Status prepare;
  Status connect;
  // What MeasureComm does on the rank; none: it succeeds.
  std::function<Status(int rank, const StopSignal& stop)> measure;
  std::atomic<int> closed{0};
  std::atomic<int> cut_off{0};
};

class FakeDeviceSession final : public DeviceSession {
 public:
  explicit FakeDeviceSession(FakeSessionScript& script) : script_(script) {
    properties_.name = "fake device";
  }
  const DeviceProperties& properties() const override { return properties_; }
  Status Prepare() override { return script_.prepare; }
  StatusOr<ComputeMeasurement> MeasureCompute(const ComputeSample& sample,
                                              const MeasurementSettings&,
                                              const StopSignal&) override {
    ComputeMeasurement record;
    record.sample_id = sample.sample_id;
    return record;
  }
  StatusOr<std::string> OpenRank(const CommunicatorSpec& spec) override {
    rank_ = spec.rank;
    return "rank " + std::to_string(spec.rank);
  }
  Status ConnectRank(const std::vector<RankAddress>& addresses) override {
    Violations violations;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (addresses[i].address.starts_with("rank ")) continue;
      violations.Add("addresses[" + std::to_string(i) + "].address", "outside of the networks");
    }
    NS_RETURN_IF_ERROR(violations.ToStatus());
    return script_.connect;
  }
  StatusOr<CommMeasurement> MeasureComm(const CommSample&, const MeasurementSettings&,
                                        const StopSignal& stop) override {
    if (script_.measure) NS_RETURN_IF_ERROR(script_.measure(rank_, stop));
    CommMeasurement record;
    record.rank = rank_;
    return record;
  }
  void CloseRank() override { ++script_.closed; }
  void CutOff() override { ++script_.cut_off; }

 private:
  FakeSessionScript& script_;
  DeviceProperties properties_;
  int rank_ = -1;
};

}  // namespace neuroshard::testing
