// DeviceSession: what a worker does with one device, wherever that is done; and what messages say of
// the device.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/fields.h"
#include "common/domain/measurement.h"
#include "kernels/api/collective.h"
#include "kernels/api/device_backend.h"
#include "kernels/api/embedding_op.h"

namespace neuroshard {

// The address at which the other ranks reach a rank.
struct RankAddress {
  int rank = 0;
  std::string address;  // opaque to everyone but the collective backend

  bool operator==(const RankAddress&) const = default;
};

// Whether a failed call leaves the ranks of a group out of step. CANCELLED, INVALID_ARGUMENT and
// FAILED_PRECONDITION do not: work on a group may return them only before its first collective, or
// when all ranks have agreed on it in a collective.
inline bool BreaksGroup(const Status& status) {
  return !status.ok() && !absl::IsCancelled(status) && !absl::IsInvalidArgument(status) &&
         !absl::IsFailedPrecondition(status);
}

// Measures lookups on a device and plays at most one rank of a comm group with it. One call at a
// time, from any thread; CutOff and properties at any time. Calls block.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  // The properties of the device as it was first opened.
  virtual const DeviceProperties& properties() const = 0;

  // Before each use: makes the device usable again if the last use made it unusable. UNAVAILABLE
  // with the reason when that does not succeed.
  virtual Status Prepare() = 0;

  // As neuroshard::MeasureCompute. INTERNAL when whatever drives the device ended; then the other
  // calls fail, too, until Prepare.
  virtual StatusOr<ComputeMeasurement> MeasureCompute(const ComputeSample& sample,
                                                      const MeasurementSettings& settings,
                                                      const StopSignal& stop) = 0;

  // The rank's part in a group, from OpenRank to CloseRank. Returns the rank's address.
  virtual StatusOr<std::string> OpenRank(const CommunicatorSpec& spec) = 0;
  // One address of every rank of the group. INVALID_ARGUMENT with a violation for each address that
  // this device does not connect to (paths relative to the addresses' message); nothing was done
  // then. Any other failure is ABORTED and breaks the group.
  virtual Status ConnectRank(const std::vector<RankAddress>& addresses) = 0;
  // As neuroshard::MeasureComm. An error that BreaksGroup drops the connections at once, so that
  // the peers need not wait for their timeouts.
  virtual StatusOr<CommMeasurement> MeasureComm(const CommSample& sample,
                                                const MeasurementSettings& settings,
                                                const StopSignal& stop) = 0;
  // Drops connections and buffers, and gives up an opened rank. Fine without a rank.
  virtual void CloseRank() = 0;

  // ConnectRank or MeasureComm in progress, and the next, end soon and break the group.
  virtual void CutOff() = 0;
};

// What v1.RankAddress says in fields of the same names.
NS_FIELDS(RankAddress, rank, address);

// What messages that list a device (v1.WorkerDevice) say of it in fields of the same names.
NS_FIELDS(DeviceProperties, name, backend, collective_backend, memory_bytes);
NS_FIELDS(EmbeddingAbilities, weight_dtypes, optimizers, pooling_modes, compute_kernels);

}  // namespace neuroshard
