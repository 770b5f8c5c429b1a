#include "client/sweep/comm_group.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace neuroshard {
namespace {

// A group that nobody has asked for anything for so long is closed by its workers.
constexpr std::int64_t kIdleTimeoutMs = 60'000;
// A peer that stalls longer aborts the group.
constexpr std::int64_t kTimeoutMs = 30'000;

// A worker from before there were other collectives, casts or cadences measures without them
// whatever it is asked for; later ones write down what they measured.
Status CheckWhatWasMeasured(const CommSample& sample, const std::vector<CommMeasurement>& records) {
  std::vector<std::pair<std::string, std::string_view>> expected;
  if (sample.casts()) {
    expected.emplace_back(kWireDtypeProperty, ToText(sample.wire_dtype));
  } else if (CollectiveWord(sample) != ToText(Collective::kAllToAll)) {
    expected.emplace_back("collective", CollectiveWord(sample));
  }
  if (sample.cadence != Cadence::kBarrier) {
    expected.emplace_back(kCadenceProperty, ToText(sample.cadence));
  }
  for (const CommMeasurement& record : records) {
    for (const auto& [property, word] : expected) {
      if (record.environment.property(property) == word) continue;
      return FailedPrecondition(
          "the worker of rank {} ({}, version {}) does not know {}: update it", record.rank,
          record.environment.hostname, record.environment.worker_version, word);
    }
  }
  return absl::OkStatus();
}

}  // namespace

CommGroup::CommGroup(std::vector<const WorkerClient*> workers, std::vector<RankPlacement> placement,
                     std::string group_id)
    : workers_(std::move(workers)),
      placement_(std::move(placement)),
      group_id_(std::move(group_id)) {
  for (const RankPlacement& rank : placement_) {
    if (std::ranges::find(members_, rank.worker) == members_.end()) members_.push_back(rank.worker);
  }
}

CommGroup::~CommGroup() { Close(); }

StatusOr<std::unique_ptr<CommGroup>> CommGroup::Open(std::vector<const WorkerClient*> workers,
                                                     const std::vector<RankPlacement>& placement,
                                                     const std::string& group_id) {
  std::unique_ptr<CommGroup> group(new CommGroup(std::move(workers), placement, group_id));
  NS_RETURN_IF_ERROR(group->Connect());
  return group;
}

Status CommGroup::Connect() {
  std::vector<std::string> addresses(placement_.size());
  NS_RETURN_IF_ERROR(OnEveryWorker([&](int worker) -> Status {
    v1::OpenCommGroupRequest request;
    request.set_group_id(group_id_);
    request.set_world_size(world_size());
    request.set_timeout_ms(kTimeoutMs);
    request.set_idle_timeout_ms(kIdleTimeoutMs);
    for (std::size_t rank = 0; rank < placement_.size(); ++rank) {
      if (placement_[rank].worker != worker) continue;
      v1::LocalRank& local = *request.add_local_ranks();
      local.set_rank(static_cast<int>(rank));
      local.set_device(placement_[rank].device);
    }
    NS_ASSIGN_OR_RETURN(OpenedCommGroup opened, At(workers_, worker)->OpenCommGroup(request));
    const MutexLock lock(mutex_);
    for (const v1::LocalRank& of : request.local_ranks())
      At(addresses, of.rank()) = opened.addresses.at(of.rank());
    opened_[worker] = std::move(opened);
    return absl::OkStatus();
  }));
  return OnEveryWorker([&](int worker) {
    return At(workers_, worker)->ConnectCommGroup(OpenedOn(worker), addresses);
  });
}

StatusOr<std::vector<CommMeasurement>> CommGroup::Profile(const MeasurementSettings& settings,
                                                          const CommSample& sample,
                                                          std::chrono::milliseconds deadline) {
  Mutex mutex;
  std::vector<CommMeasurement> all;
  NS_RETURN_IF_ERROR(OnEveryWorker([&](int worker) -> Status {
    NS_ASSIGN_OR_RETURN(
        auto local,
        At(workers_, worker)->ProfileComm(OpenedOn(worker), settings, sample, deadline));
    const MutexLock lock(mutex);
    std::move(local.begin(), local.end(), std::back_inserter(all));
    return absl::OkStatus();
  }));
  std::ranges::sort(all, {}, &CommMeasurement::rank);
  bool complete = all.size() == placement_.size();
  for (std::size_t rank = 0; complete && rank < all.size(); ++rank)
    complete = all[rank].rank == static_cast<int>(rank);
  if (!complete) {
    return Internal(
        "group {}: the workers did not answer sample {} with one record for each of {} ranks",
        group_id_, sample.sample_id, placement_.size());
  }
  NS_RETURN_IF_ERROR(CheckWhatWasMeasured(sample, all));
  return all;
}

template <typename Call>
Status CommGroup::OnEveryWorker(const Call& call) {
  Mutex mutex;
  Status first_failure;
  std::vector<std::thread> threads;
  for (const int member : members_) {
    threads.emplace_back([&, member] {
      const Status status = call(member);
      if (status.ok()) return;
      {
        const MutexLock lock(mutex);
        if (!first_failure.ok()) {
          // The first to notice need not be the one whose device failed.
          if (absl::IsAborted(first_failure) && absl::IsAborted(status))
            first_failure = absl::AbortedError(Message(first_failure) + "; " + Message(status));
          return;
        }
        first_failure = status;
      }
      Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first_failure;
}

OpenedCommGroup CommGroup::OpenedOn(int worker) {
  const MutexLock lock(mutex_);
  return opened_.at(worker);
}

void CommGroup::Close() {
  std::map<int, OpenedCommGroup> opened;
  {
    const MutexLock lock(mutex_);
    opened = opened_;
  }
  std::vector<std::thread> threads;
  for (const auto& entry : opened) {
    threads.emplace_back([this, &entry] {
      // A worker that is gone cannot close; one that is not closes by itself after its idle
      // timeout.
      Status ignored = At(workers_, entry.first)->CloseCommGroup(entry.second);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::optional<std::vector<RankPlacement>> PlaceRanks(const std::vector<std::vector<int>>& devices,
                                                     int num_ranks) {
  std::vector<RankPlacement> ranks;
  bool found = true;
  for (std::size_t round = 0; found; ++round) {
    found = false;
    for (std::size_t worker = 0; worker < devices.size(); ++worker) {
      if (static_cast<int>(ranks.size()) == num_ranks) return ranks;
      if (round >= devices[worker].size()) continue;
      ranks.push_back({static_cast<int>(worker), devices[worker][round]});
      found = true;
    }
  }
  if (static_cast<int>(ranks.size()) == num_ranks) return ranks;
  return std::nullopt;
}

}  // namespace neuroshard
