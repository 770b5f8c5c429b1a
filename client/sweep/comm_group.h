// A communicator over devices of several workers, driven from here.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/stub/worker_client.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

// The device that plays a rank.
struct RankPlacement {
  int worker = 0;  // position in the list of workers
  int device = 0;  // WorkerDevice.index

  bool operator==(const RankPlacement&) const = default;
};

// Ranks go round the workers, so that neighbours live in different processes and a group crosses as
// many processes as it can. devices[w] are the usable devices of worker w. nullopt when there are
// fewer than num_ranks.
std::optional<std::vector<RankPlacement>> PlaceRanks(const std::vector<std::vector<int>>& devices,
                                                     int num_ranks);

// One thread. The workers must outlive the group. WorkerClient::Cancel on them ends a call in
// progress.
class CommGroup {
 public:
  // placement[r] is rank r's device; its `worker` is a position in `workers`. A failure on one
  // worker closes the group on all, and is the status returned.
  static StatusOr<std::unique_ptr<CommGroup>> Open(std::vector<const WorkerClient*> workers,
                                                   const std::vector<RankPlacement>& placement,
                                                   const std::string& group_id);
  // Closes the group on every worker.
  ~CommGroup();
  CommGroup(CommGroup&&) = delete;

  int world_size() const { return static_cast<int>(placement_.size()); }

  // The records of all ranks, in rank order. After an error the group cannot be used any more.
  // FAILED_PRECONDITION: a worker is too old for the sample's collective or cadence.
  StatusOr<std::vector<CommMeasurement>> Profile(const MeasurementSettings& settings,
                                                 const CommSample& sample,
                                                 std::chrono::milliseconds deadline);

 private:
  CommGroup(std::vector<const WorkerClient*> workers, std::vector<RankPlacement> placement,
            std::string group_id);

  Status Connect();
  // Calls `call(worker)` for every worker of the group at once; the first failure closes the group,
  // so that the others do not wait for a peer that will not come. Returns that failure; of an
  // aborted group, with what every worker says that aborted it.
  template <typename Call>
  Status OnEveryWorker(const Call& call);
  // What the worker opened; it has.
  OpenedCommGroup OpenedOn(int worker);
  void Close();

  std::vector<const WorkerClient*> workers_;
  std::vector<RankPlacement> placement_;
  std::string group_id_;
  std::vector<int> members_;  // positions in workers_ that have ranks
  Mutex mutex_;
  // What each member has opened, as far as its worker did.
  std::map<int, OpenedCommGroup> opened_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
