#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "client/sweep/comm_group.h"
#include "client/sweep/shared_sweep.h"
#include "common/domain/rank_networks.h"

namespace neuroshard {
namespace {

// What the groups that a run opens one after the other share.
struct GroupsOfRun {
  const unsigned run_tag = std::random_device{}();
  int opened = 0;
  // Workers that the last group was made without, and why.
  std::map<std::string, std::string> away;
  std::set<std::string> warned_of;
};

// A group of so many ranks, on devices that are free when it is opened.
class GroupRunner final : public SampleRunner<CommSample> {
 public:
  GroupRunner(const SweepRun& run, const SharedSweep& shared, int num_ranks, GroupsOfRun& groups)
      : run_(run), workers_(shared.workers()), num_ranks_(num_ranks), groups_(groups) {}

  std::string name() const override { return fmt::format("group of {} ranks", num_ranks_); }
  // All workers answer, and have too few devices.
  bool is_hopeless() const override { return is_hopeless_; }

  Status Open() override {
    std::vector<std::vector<int>> free_devices(workers_.size());
    int known_devices = 0;
    Status not_free;
    Status unreachable;
    std::vector<const WorkerClient*> clients;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      clients.push_back(workers_[w].get());
      const StatusOr<v1::WorkerInfo> info = workers_[w]->GetWorkerInfo();
      if (!info.ok()) {
        unreachable = info.status();
        groups_.away[workers_[w]->address()] = Message(unreachable);
        continue;
      }
      groups_.away.erase(workers_[w]->address());
      for (const v1::WorkerDevice& device : info->devices()) {
        ++known_devices;
        if (device.running_job().empty()) {
          free_devices[w].push_back(device.index());
        } else {
          not_free = ResourceExhausted("device {} of {} is held by {}", device.index(),
                                       workers_[w]->address(), device.running_job());
        }
      }
    }
    const auto placement = PlaceRanks(free_devices, num_ranks_);
    if (!placement.has_value()) {
      if (!unreachable.ok()) return unreachable;
      if (known_devices >= num_ranks_) return not_free;
      is_hopeless_ = true;
      return FailedPrecondition("samples of {} ranks need {} devices, the workers have {}",
                                num_ranks_, num_ranks_, known_devices);
    }
    const std::string group_id = fmt::format("sweep-{:08x}-{}", groups_.run_tag, ++groups_.opened);
    NS_ASSIGN_OR_RETURN(group_, CommGroup::Open(clients, *placement, group_id));
    return absl::OkStatus();
  }

  StatusOr<StoredRecord> Measure(const CommSample& sample) override {
    NS_ASSIGN_OR_RETURN(const auto ranks,
                        group_->Profile(run_.settings, sample, run_.fleet.sample_deadline));
    // Said once a pair of networks: such records are slow, or fast, for another reason than their
    // samples.
    if (const std::string different = DifferentNetworks(ranks);
        !different.empty() && groups_.warned_of.insert(different).second) {
      run_.display.Note("warning: " + different);
    }
    return StoredRecord{run_.store.AddCommMeasurements(run_.sweep_id, sample.sample_id, ranks),
                        std::ranges::any_of(ranks, [](const CommMeasurement& rank) {
                          return rank.outcome == Outcome::kOutOfMemory;
                        })};
  }

  void Close() override { group_.reset(); }

 private:
  const SweepRun& run_;
  const std::vector<std::unique_ptr<WorkerClient>>& workers_;
  const int num_ranks_;
  GroupsOfRun& groups_;
  bool is_hopeless_ = false;
  std::unique_ptr<CommGroup> group_;
};

class CommSweep {
 public:
  CommSweep(const SweepRun& run, std::vector<CommSample> pending) : run_(run), shared_(run) {
    std::map<int, std::vector<CommSample>> by_ranks;
    for (CommSample& sample : pending) {
      by_ranks[static_cast<int>(sample.dim_sums.size())].push_back(std::move(sample));
    }
    for (auto& [num_ranks, samples] : by_ranks) queues_.try_emplace(num_ranks, std::move(samples));
  }

  SweepReport Run() {
    const bool stopped = RunMonitored({[this] { MeasureQueues(); }}, run_.stop, run_.display,
                                      [this] { shared_.Stop(); });
    const bool all_settled = std::ranges::all_of(
        queues_, [](const auto& queue) { return queue.second.unsettled() == 0; });
    if (stopped && !all_settled) {
      shared_.Fail(absl::CancelledError("stopped"));
    } else {
      for (const auto& [worker, reason] : groups_.away) {
        shared_.Lost({worker, std::nullopt, reason});
      }
    }
    return shared_.report();
  }

 private:
  // One number of ranks after the other. Those that the workers have too few devices for are
  // reported; without a group for another reason the run ends.
  void MeasureQueues() {
    for (auto& [num_ranks, queue] : queues_) {
      GroupRunner runner(run_, shared_, num_ranks, groups_);
      const Status status = shared_.MeasureAll(runner, queue);
      if (shared_.stopped()) return;
      if (status.ok()) continue;
      if (!runner.is_hopeless()) {
        return shared_.Fail(Unavailable("no group of {} ranks for {} s: {}", num_ranks,
                                        run_.fleet.reconnect_window.count() / 1000,
                                        Message(status)));
      }
      shared_.Fail(status);
      run_.display.Note(Message(status));
    }
  }

  const SweepRun& run_;
  SharedSweep shared_;
  // Touched by the measuring thread alone.
  std::map<int, SampleQueue<CommSample>> queues_;  // by number of ranks
  GroupsOfRun groups_;
};

}  // namespace

SweepReport RunSweep(const SweepRun& run, std::vector<CommSample> pending) {
  return CommSweep(run, std::move(pending)).Run();
}

}  // namespace neuroshard
