// The open comm groups of this worker, by id.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/device/comm_group.h"
#include "worker/device/device_inventory.h"

namespace neuroshard {

// Thread-safe. A group leaves the registry, and its devices are free again, when it is closed, when
// a call on it fails in a way that BreaksGroup, or when it was idle for longer than its idle
// timeout (CloseIdle). Calls on an id that is not there: NOT_FOUND.
class CommGroupRegistry {
 public:
  // Told how many groups are open after each change.
  using CountObserver = std::function<void(int open_groups)>;

  // `inventory` and `clock` must outlive the registry.
  CommGroupRegistry(DeviceInventory& inventory, const Clock& clock,
                    CountObserver observer = nullptr);
  ~CommGroupRegistry();

  // One address a local rank. INVALID_ARGUMENT lists every fault; ALREADY_EXISTS when the id is in
  // use.
  StatusOr<std::vector<RankAddress>> Open(CommGroupSpec spec);
  // Connect and Run as CommGroup's; `stop` must outlive the call.
  Status Connect(const std::string& group_id, const std::vector<RankAddress>& addresses,
                 const StopSignal& stop);
  StatusOr<CommGroupSpec> Spec(const std::string& group_id) const;
  Status Run(const std::string& group_id, const CommGroup::RankWork& work, const StopSignal& stop);
  // Returns when the devices are free. An unknown id is fine.
  void Close(const std::string& group_id);

  // Closes what has been idle for too long. Returns how many.
  int CloseIdle();
  // CommGroup::CutOffIfOverdue on all.
  void CutOffOverdueCalls();
  void CloseAll();

 private:
  struct Entry {
    std::shared_ptr<CommGroup> group;  // null while it is being opened
    TimePoint last_used;
    int running_calls = 0;
  };

  StatusOr<std::shared_ptr<CommGroup>> Find(const std::string& group_id) const;
  StatusOr<std::shared_ptr<CommGroup>> FindLocked(const std::string& group_id) const
      NS_REQUIRES(mutex_);
  // Runs `body` on the group, which is not idle meanwhile; a status that BreaksGroup removes it.
  Status Call(const std::string& group_id, const std::function<Status(CommGroup&)>& body);
  // Out of the map first (so that nobody finds it), then closed without the lock.
  void Remove(const std::string& group_id, const std::shared_ptr<CommGroup>& group);
  void ReportCount() const NS_REQUIRES(mutex_);

  DeviceInventory& inventory_;
  const Clock& clock_;
  const CountObserver observer_;
  mutable Mutex mutex_;
  std::map<std::string, Entry> entries_ NS_GUARDED_BY(mutex_);
};

// Calls registry.CloseIdle() and CutOffOverdueCalls() every `period`, until destroyed.
class CommGroupReaper {
 public:
  CommGroupReaper(CommGroupRegistry& registry, std::chrono::milliseconds period);
  ~CommGroupReaper();

 private:
  void Loop(CommGroupRegistry& registry, std::chrono::milliseconds period);

  Mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ NS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace neuroshard
