#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "client/stub/call_policy.h"
#include "client/stub/worker_client.h"
#include "client/sweep/comm_group.h"
#include "client/sweep/sweep_run.h"
#include "client/sweep/sweep_threads.h"
#include "common/domain/rank_networks.h"

namespace neuroshard {
namespace {

using CommQueue = std::deque<Attempt<CommSample>>;

// What a step of a queue leads to.
enum class Next { kGoOn, kTryAgain, kEndQueue, kEndRun };
struct StepResult {
  Next next = Next::kGoOn;
  Status status;  // why, unless kGoOn
};

class CommSweep {
 public:
  CommSweep(const SweepRun& run, std::vector<CommSample> pending)
      : run_(run), tally_(run.display, run.fleet.max_given_up), run_tag_(std::random_device{}()) {
    // RetryWindow does the retries.
    const CallPolicy policy{.tls = run.fleet.tls, .max_attempts = 1};
    for (const std::string& address : run.fleet.workers) {
      workers_.push_back(std::make_unique<WorkerClient>(address, policy));
    }
    for (CommSample& sample : pending) {
      const int num_ranks = static_cast<int>(sample.dim_sums.size());
      queues_[num_ranks].push_back({std::move(sample), 0});
    }
  }

  SweepReport Run() {
    const bool stopped = RunMonitored({[this] { MeasureAll(); }}, run_.stop, run_.display, [this] {
      latch_.Stop();
      for (const auto& worker : workers_) worker->Cancel();
    });
    if (stopped && !AllSettled()) {
      tally_.Fail(absl::CancelledError("stopped"));
    } else {
      for (const auto& [worker, reason] : away_) tally_.Lost({worker, std::nullopt, reason});
    }
    return tally_.report();
  }

 private:
  bool AllSettled() const {
    for (const auto& [num_ranks, queue] : queues_) {
      if (!queue.empty()) return false;
    }
    return true;
  }

  void MeasureAll() {
    for (auto& [num_ranks, queue] : queues_) {
      const StepResult end = MeasureQueue(num_ranks, queue);
      if (latch_.Stopped()) return;
      if (end.next == Next::kGoOn) continue;
      tally_.Fail(end.status);
      if (end.next == Next::kEndRun) return;
      run_.display.Note(Message(end.status));
    }
  }

  // kGoOn when the queue is empty, kEndQueue or kEndRun when it cannot become so.
  StepResult MeasureQueue(int num_ranks, CommQueue& queue) {
    RetryWindow retries(run_);
    std::unique_ptr<CommGroup> group;
    bool reported = false;
    while (!queue.empty()) {
      StepResult step = group ? StepResult{} : Regroup(num_ranks, group);
      if (step.next == Next::kGoOn) step = MeasureNext(*group, queue);
      if (step.next == Next::kGoOn) {
        retries.Success();
        reported = false;
        continue;
      }
      group.reset();
      if (latch_.Stopped() || step.next != Next::kTryAgain) return step;
      if (!reported) {
        run_.display.Note(
            fmt::format("group of {} ranks: {}; trying again", num_ranks, Message(step.status)));
      }
      reported = true;
      if (!retries.WaitToRetry(latch_)) {
        return {Next::kEndRun,
                Unavailable("no group of {} ranks for {} s: {}", num_ranks,
                            run_.fleet.reconnect_window.count() / 1000, Message(step.status))};
      }
    }
    return {};
  }

  // Opens a group on the free devices of the workers that answer now.
  StepResult Regroup(int num_ranks, std::unique_ptr<CommGroup>& group) {
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
        away_[workers_[w]->address()] = Message(unreachable);
        continue;
      }
      away_.erase(workers_[w]->address());
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
    const auto placement = PlaceRanks(free_devices, num_ranks);
    if (!placement.has_value()) {
      if (!unreachable.ok()) return {Next::kTryAgain, unreachable};
      if (known_devices >= num_ranks) return {Next::kTryAgain, not_free};
      return {Next::kEndQueue,
              FailedPrecondition("samples of {} ranks need {} devices, the workers have {}",
                                 num_ranks, num_ranks, known_devices)};
    }
    const std::string group_id = fmt::format("sweep-{:08x}-{}", run_tag_, ++groups_opened_);
    auto opened = CommGroup::Open(clients, *placement, group_id, run_.fleet.group_timeout);
    if (!opened.ok()) return {Next::kTryAgain, opened.status()};
    group = *std::move(opened);
    return {};
  }

  StepResult MeasureNext(CommGroup& group, CommQueue& queue) {
    const auto measurements =
        group.Profile(run_.settings, queue.front().sample, run_.fleet.sample_deadline);
    if (!measurements.ok()) return HandleFailure(measurements.status(), queue);
    WarnOfNetworks(*measurements);
    const Status stored = run_.store.AddCommMeasurements(
        run_.sweep_id, queue.front().sample.sample_id, *measurements);
    const bool out_of_memory = std::any_of(
        measurements->begin(), measurements->end(),
        [](const CommMeasurement& rank) { return rank.outcome == Outcome::kOutOfMemory; });
    if (!tally_.Record(stored, out_of_memory)) return {Next::kEndRun, stored};
    queue.pop_front();
    return {};
  }

  // Once a pair of networks: such records are slow, or fast, for another reason than their samples.
  void WarnOfNetworks(const std::vector<CommMeasurement>& ranks) {
    const std::string different = DifferentNetworks(ranks);
    if (different.empty() || !warned_of_.insert(different).second) return;
    run_.display.Note("warning: " + different);
  }

  StepResult HandleFailure(const Status& status, CommQueue& queue) {
    Attempt<CommSample> attempt = std::move(queue.front());
    queue.pop_front();
    const FailureKind kind = ClassifyFailure(status);
    if (kind == FailureKind::kConnection && !latch_.Stopped()) ++attempt.failures;
    if (kind != FailureKind::kSample && attempt.failures < run_.fleet.max_failures_per_sample) {
      queue.push_back(std::move(attempt));
    } else if (!tally_.GiveUp(attempt.sample.sample_id, Message(status))) {
      return {Next::kEndRun, status};
    }
    return {Next::kTryAgain, status};
  }

  const SweepRun& run_;
  SweepTally tally_;
  StopLatch latch_;
  const unsigned run_tag_;
  int groups_opened_ = 0;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
  // Touched by the measuring thread alone.
  std::map<int, CommQueue> queues_;  // by number of ranks
  // Workers that the last group was made without, and why.
  std::map<std::string, std::string> away_;
  std::set<std::string> warned_of_;
};

}  // namespace

SweepReport RunCommSweep(const SweepRun& run, std::vector<CommSample> pending) {
  return CommSweep(run, std::move(pending)).Run();
}

}  // namespace neuroshard
