// The open comm groups of this worker, by id.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/device/comm_group.h"
#include "worker/device/device_inventory.h"

namespace neuroshard {

// Thread-safe. A group leaves the registry, and its devices are free again, when it is closed, when
// a call on it fails in a way that BreaksGroup, or when it was idle for longer than its idle
// timeout (CloseIdle). Calls on an id that is not there: NOT_FOUND; with another token than the
// group's: PERMISSION_DENIED. A call either begins before the idle time ends, and the group is not
// idle then, or gets NOT_FOUND with nothing done, as if it had come a moment later.
class CommGroupRegistry {
 public:
  // Told how many groups are open after each change.
  using CountObserver = std::function<void(int open_groups)>;

  // `inventory` and `clock` must outlive the registry.
  CommGroupRegistry(DeviceInventory& inventory, const Clock& clock,
                    CountObserver observer = nullptr)
      : inventory_(inventory), clock_(clock), observer_(std::move(observer)) {}
  ~CommGroupRegistry();

  // The group, for its token and addresses. INVALID_ARGUMENT lists every fault; ALREADY_EXISTS when
  // the id is in use.
  StatusOr<std::shared_ptr<const CommGroup>> Open(CommGroupSpec spec);
  // Connect and Measure as CommGroup's; `stop` must outlive the call.
  Status Connect(const CommGroupKey& key, const std::vector<RankAddress>& addresses,
                 const StopSignal& stop);
  StatusOr<CommGroupSpec> Spec(const CommGroupKey& key) const;
  StatusOr<std::vector<CommMeasurement>> Measure(const CommGroupKey& key, const CommSample& sample,
                                                 const MeasurementSettings& settings,
                                                 const StopSignal& stop);
  // Returns when the devices are free. An unknown id is fine.
  Status Close(const CommGroupKey& key);

  // Closes what has been idle for too long. Returns their ids.
  std::vector<std::string> CloseIdle();
  // Cuts off the groups whose calls are overdue (CommGroup::CutOffIfOverdue).
  void CutOffOverdueCalls();
  void CloseAll();

 private:
  StatusOr<std::shared_ptr<CommGroup>> Find(const CommGroupKey& key) const;
  // Runs `body` on the group; a status that BreaksGroup removes it.
  Status Call(const CommGroupKey& key, const std::function<Status(CommGroup&)>& body);
  // Out of the map first (so that nobody finds them), then closed without the lock. Returns the ids;
  // those that are being opened stay.
  std::vector<std::string> CloseWhere(const std::function<bool(CommGroup&)>& closes);
  // Takes one group out of the map and closes it, in the same order.
  void Remove(const std::string& group_id, const std::shared_ptr<CommGroup>& group);
  void ReportCount() const NS_REQUIRES(mutex_);

  DeviceInventory& inventory_;
  const Clock& clock_;
  const CountObserver observer_;
  mutable Mutex mutex_;
  // By id; null while one is being opened.
  std::map<std::string, std::shared_ptr<CommGroup>> groups_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
