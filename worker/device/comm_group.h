// This worker's part of a communicator whose other ranks may live in other workers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "worker/device/device_inventory.h"

namespace neuroshard {

// A rank that a device of this worker plays.
struct LocalRank {
  int rank = 0;
  int device = 0;

  bool operator==(const LocalRank&) const = default;
};

// A group to be opened: all ranks by number, and those of this worker.
struct CommGroupSpec {
  std::string group_id;
  int world_size = 0;
  std::vector<LocalRank> local_ranks;
  std::chrono::milliseconds timeout{30000};       // of the connection and of every collective
  std::chrono::milliseconds idle_timeout{60000};  // without a call
};

// What its opener knows a group by: the id that it chose and the secret that it was given for it.
struct CommGroupKey {
  std::string group_id;
  std::string token;
};

inline constexpr int kMaxGroupIdBytes = 128;
inline constexpr int kMaxWorldSize = 1024;
inline constexpr std::chrono::milliseconds kMinGroupTimeout{100};
inline constexpr std::chrono::milliseconds kMaxGroupTimeout{600000};
// Time for a call to end in step with its peers after a stop, before it is cut off. An iteration of
// the largest exchanges that fit a device takes less.
inline constexpr std::chrono::milliseconds kStopGrace{2000};

// All faults of the spec on a worker with `num_devices` devices, with the field paths of
// OpenCommGroupRequest.
Status CheckCommGroupSpec(const CommGroupSpec& spec, int num_devices);

// Holds its devices from Open to Close. Thread-safe; Connect and Measure never overlap
// (FAILED_PRECONDITION for the later one).
class CommGroup {
 public:
  // The spec is legal (CheckCommGroupSpec). RESOURCE_EXHAUSTED when a device is busy. The clock must
  // outlive the group.
  static StatusOr<std::shared_ptr<CommGroup>> Open(CommGroupSpec spec, DeviceInventory& inventory,
                                                   const Clock& clock);
  ~CommGroup();

  const CommGroupSpec& spec() const { return spec_; }
  // 128 random bits as hexadecimal digits.
  const std::string& token() const { return token_; }
  const std::vector<RankAddress>& addresses() const { return addresses_; }

  // Returns when the full mesh stands. INVALID_ARGUMENT unless there is one address of every rank
  // of the group that this worker's devices connect to; nothing was done then. For `stop` see
  // CutOffIfOverdue.
  Status Connect(const std::vector<RankAddress>& addresses, const StopSignal& stop);

  // DeviceSession::MeasureComm on all local ranks at the same time: their records, or the first
  // error. Stops with `stop` and when the group is being closed.
  StatusOr<std::vector<CommMeasurement>> Measure(const CommSample& sample,
                                                 const MeasurementSettings& settings,
                                                 const StopSignal& stop);

  // Whether nobody has called Connect or Measure for longer than the spec's idle_timeout. Then no
  // later call begins (NOT_FOUND), not even one that found the group before, and Close has none to
  // stop.
  bool EndIfIdle();

  // Cuts off the running call (ABORTED) if its `stop` was first seen to have stopped more than
  // kStopGrace ago: a peer that stalls must not hold this worker's devices, and keep the process
  // from ending, for the whole timeout. To be called from time to time.
  void CutOffIfOverdue();

  // Stops the call that is running, waits for it, cuts it off after kStopGrace, disconnects and
  // gives the devices back. Later calls fail. Idempotent.
  void Close();

 private:
  enum class Phase { kOpened, kConnected, kClosed };
  class Call;  // marks the group busy while it lives

  CommGroup(CommGroupSpec spec, std::string token, const Clock& clock)
      : spec_(std::move(spec)), token_(std::move(token)), clock_(clock) {}
  Status OpenRanks(DeviceInventory& inventory);
  void CutOffRanks();
  // `step` for all local ranks at the same time; waits for all. One that breaks the group ends the
  // others, which would wait for it. The first error, of those that break the group if there are
  // any, and of which device it is.
  Status ForEachRank(const std::function<Status(int local_index, DeviceSession& device)>& step);

  const CommGroupSpec spec_;
  const std::string token_;
  const Clock& clock_;
  std::vector<RankAddress> addresses_;  // fixed after Open
  ManualStop closing_;

  Mutex ends_mutex_;    // held while ranks are closed
  Mutex leases_mutex_;  // against Close; never held for long
  // The leases by local rank; empty once closed.
  std::vector<DeviceLease> leases_ NS_GUARDED_BY(leases_mutex_);
  Mutex mutex_;
  std::condition_variable idle_;
  Phase phase_ NS_GUARDED_BY(mutex_) = Phase::kOpened;
  // The stop signal of the running call; null: none.
  const StopSignal* call_stop_ NS_GUARDED_BY(mutex_) = nullptr;
  // When it was first seen to have stopped.
  std::optional<TimePoint> call_stop_seen_ NS_GUARDED_BY(mutex_);
  // The end of the last call, also of one that was refused, or of Open.
  TimePoint last_used_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
