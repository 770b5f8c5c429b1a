#include "common/domain/resharding_order.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "common/base/positions.h"
#include "common/base/random.h"

namespace neuroshard {
namespace {

using Kind = ReshardingEvent::Kind;

constexpr int kRandomOrders = 8;
constexpr std::size_t kSearchedSets = 20'000;
constexpr std::size_t kSearchedJobs = 1'000;

std::size_t At(int position) { return static_cast<std::size_t>(position); }

// What is made and held at a moment.
class Progress {
 public:
  explicit Progress(const ReshardingProblem& problem)
      : problem_(&problem),
        free_(problem.free_bytes),
        made_(problem.jobs.size()),
        buffered_(problem.held.size()) {
    for (const HeldShard& held : problem.held) users_.push_back(held.users);
  }

  bool done() const { return num_made_ == made_.size(); }
  std::size_t num_made() const { return num_made_; }
  const std::vector<bool>& made() const { return made_; }
  const std::vector<ReshardingEvent>& events() const { return events_; }
  std::int64_t free(int rank) const { return free_[At(rank)]; }
  bool IsMade(int job) const { return made_[At(job)]; }

  bool Fits(int job) const { return Job(job).bytes <= free_[At(RankOf(job))]; }
  int RankOf(int job) const { return Job(job).made.shard.rank; }

  // Whether the shard takes memory of its rank until something is made of it.
  bool Blocks(int holder) const {
    return users_[At(holder)] > 0 && !buffered_[At(holder)] && !problem_->held[At(holder)].stays;
  }

  // Bytes that come free on the job's rank when it is made now.
  std::int64_t FreedAtHome(int job) const {
    std::int64_t bytes = 0;
    for (const int holder : Job(job).holders) {
      const HeldShard& held = problem_->held[At(holder)];
      if (users_[At(holder)] == 1 && !buffered_[At(holder)] &&
          held.held.shard.rank == RankOf(job)) {
        bytes += held.bytes;
      }
    }
    return bytes;
  }

  // Calls on_freed(rank) for each shard that goes.
  void Make(int job, const std::function<void(int)>& on_freed) {
    made_[At(job)] = true;
    ++num_made_;
    events_.push_back({Kind::kMake, job});
    free_[At(RankOf(job))] -= Job(job).bytes;
    for (const int holder : Job(job).holders) {
      if (--users_[At(holder)] == 0 && !buffered_[At(holder)]) Free(holder, on_freed);
    }
  }

  void ToBuffer(int holder, const std::function<void(int)>& on_freed) {
    events_.push_back({Kind::kToBuffer, holder});
    buffered_[At(holder)] = true;
    Free(holder, on_freed);
  }

 private:
  const ShardToMake& Job(int job) const { return problem_->jobs[At(job)]; }

  void Free(int holder, const std::function<void(int)>& on_freed) {
    const HeldShard& held = problem_->held[At(holder)];
    free_[At(held.held.shard.rank)] += held.bytes;
    on_freed(held.held.shard.rank);
  }

  const ReshardingProblem* problem_;
  std::vector<std::int64_t> free_;
  std::vector<int> users_;
  std::vector<bool> made_;
  std::vector<bool> buffered_;
  std::size_t num_made_ = 0;
  std::vector<ReshardingEvent> events_;
};

class OrderSearch {
 public:
  explicit OrderSearch(const ReshardingProblem& problem)
      : problem_(problem),
        jobs_of_(problem.capacity_bytes.size()),
        held_on_(problem.capacity_bytes.size()) {
    for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
      jobs_of_[At(problem.jobs[j].made.shard.rank)].push_back(static_cast<int>(j));
    }
    for (std::size_t h = 0; h < problem.held.size(); ++h) {
      held_on_[At(problem.held[h].held.shard.rank)].push_back(static_cast<int>(h));
    }
  }

  ReshardingOrder Find() {
    std::optional<Progress> furthest;
    for (const std::vector<std::size_t>& priorities : Priorities()) {
      Progress progress(problem_);
      RunGreedy(priorities, progress);
      if (progress.done()) return {progress.events(), OrderKind::kFits, {}};
      if (!furthest || progress.num_made() > furthest->num_made()) furthest = std::move(progress);
    }
    Progress found(problem_);
    bool all_seen = problem_.jobs.size() <= kSearchedJobs;
    std::set<std::vector<bool>> seen;
    if (all_seen && Search(Progress(problem_), seen, all_seen, found)) {
      return {found.events(), OrderKind::kFits, {}};
    }
    ReshardingOrder order;
    order.kind = all_seen ? OrderKind::kNeedsBuffer : OrderKind::kNoneFound;
    order.cycle = FindCycle(*furthest);
    const std::vector<std::size_t> priorities = Priorities().front();
    while (!furthest->done()) {
      MakeRoom(*furthest);
      RunGreedy(priorities, *furthest);
    }
    order.events = furthest->events();
    return order;
  }

 private:
  // Orders in which the jobs of a rank are tried, as a number for each job.
  std::vector<std::vector<std::size_t>> Priorities() const {
    const std::size_t count = problem_.jobs.size();
    const auto ranked = [&](const auto& key) {
      const std::vector<std::size_t> positions = PositionsDescending(count, key);
      std::vector<std::size_t> priorities(count);
      for (std::size_t i = 0; i < count; ++i) priorities[positions[i]] = i;
      return priorities;
    };
    const auto bytes = [&](std::size_t job) { return problem_.jobs[job].bytes; };
    std::vector<std::vector<std::size_t>> all;
    all.push_back(ranked([&](std::size_t job) { return -bytes(job); }));
    all.push_back(ranked(bytes));
    all.push_back(ranked([&](std::size_t job) { return Released(job) - bytes(job); }));
    Random random(1);
    for (int i = 0; i < kRandomOrders; ++i) {
      std::vector<std::size_t> priorities = Positions(count);
      random.Shuffle(priorities);
      all.push_back(std::move(priorities));
    }
    return all;
  }

  // Bytes of the shards that the job is made of, each shared by its users.
  std::int64_t Released(std::size_t job) const {
    std::int64_t bytes = 0;
    for (const int holder : problem_.jobs[job].holders) {
      bytes += problem_.held[At(holder)].bytes / problem_.held[At(holder)].users;
    }
    return bytes;
  }

  // Makes what fits, rank by rank, until nothing does.
  void RunGreedy(const std::vector<std::size_t>& priorities, Progress& progress) {
    std::deque<int> ranks;
    std::vector<bool> queued(jobs_of_.size(), true);
    std::vector<std::vector<int>> pending = jobs_of_;
    for (std::size_t rank = 0; rank < pending.size(); ++rank) {
      ranks.push_back(static_cast<int>(rank));
      std::sort(pending[rank].begin(), pending[rank].end(),
                [&](int a, int b) { return priorities[At(a)] < priorities[At(b)]; });
    }
    const auto on_freed = [&](int rank) {
      if (!queued[At(rank)]) ranks.push_back(rank);
      queued[At(rank)] = true;
    };
    while (!ranks.empty()) {
      const int rank = ranks.front();
      ranks.pop_front();
      queued[At(rank)] = false;
      std::vector<int> waiting;
      for (const int job : pending[At(rank)]) {
        if (progress.IsMade(job)) continue;
        if (progress.Fits(job)) {
          progress.Make(job, on_freed);
        } else {
          waiting.push_back(job);
        }
      }
      pending[At(rank)] = std::move(waiting);
    }
  }

  // Makes what can do no harm: jobs that leave their rank as much room as before, and all of a rank
  // where all that is left fits together.
  void MakeHarmless(Progress& progress) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t rank = 0; rank < jobs_of_.size(); ++rank) {
        std::int64_t wanted = 0;
        for (const int job : jobs_of_[rank]) {
          if (!progress.IsMade(job)) AddBytes(wanted, problem_.jobs[At(job)].bytes);
        }
        const bool all_fit = wanted <= progress.free(static_cast<int>(rank));
        for (const int job : jobs_of_[rank]) {
          if (progress.IsMade(job) || !progress.Fits(job)) continue;
          if (!all_fit && progress.FreedAtHome(job) < problem_.jobs[At(job)].bytes) continue;
          progress.Make(job, [](int) {});
          changed = true;
        }
      }
    }
  }

  // Depth first over sets of made jobs, each set once: what is free depends on the set alone.
  // `all_seen` becomes false when it gives up.
  bool Search(Progress progress, std::set<std::vector<bool>>& seen, bool& all_seen,
              Progress& found) {
    MakeHarmless(progress);
    if (progress.done()) {
      found = std::move(progress);
      return true;
    }
    if (!seen.insert(progress.made()).second) return false;
    for (int job = 0; job < static_cast<int>(problem_.jobs.size()); ++job) {
      if (progress.IsMade(job) || !progress.Fits(job)) continue;
      if (seen.size() >= kSearchedSets) {
        all_seen = false;
        return false;
      }
      Progress next = progress;
      next.Make(job, [](int) {});
      if (Search(std::move(next), seen, all_seen, found)) return true;
    }
    return false;
  }

  // A job of the rank that is not made yet, the smallest; -1: none.
  int SmallestPending(const Progress& progress, std::size_t rank) const {
    int smallest = -1;
    for (const int job : jobs_of_[rank]) {
      if (progress.IsMade(job)) continue;
      if (smallest < 0 || problem_.jobs[At(job)].bytes < problem_.jobs[At(smallest)].bytes) {
        smallest = job;
      }
    }
    return smallest;
  }

  // Where nothing fits: from a rank that waits to one that it waits for, until one comes again.
  std::vector<Waiting> FindCycle(const Progress& progress) const {
    std::vector<Waiting> path;
    std::vector<int> position(jobs_of_.size(), -1);
    std::size_t rank = 0;
    while (SmallestPending(progress, rank) < 0) ++rank;
    while (position[rank] < 0) {
      position[rank] = static_cast<int>(path.size());
      path.push_back(WhyWaits(progress, rank));
      rank = At(path.back().next_rank);
    }
    return {path.begin() + position[rank], path.end()};
  }

  Waiting WhyWaits(const Progress& progress, std::size_t rank) const {
    const ShardToMake& wanted = problem_.jobs[At(SmallestPending(progress, rank))];
    Waiting waiting{static_cast<int>(rank), wanted.made, {}, static_cast<int>(rank)};
    std::int64_t largest = -1;
    for (const int holder : held_on_[rank]) {
      const HeldShard& held = problem_.held[At(holder)];
      if (!progress.Blocks(holder) || held.bytes <= largest) continue;
      largest = held.bytes;
      waiting.holds = held.held;
    }
    // Who makes something of it; another rank, if there is one.
    for (const ShardToMake& job : problem_.jobs) {
      const std::size_t index = static_cast<std::size_t>(&job - problem_.jobs.data());
      const bool uses = std::any_of(job.holders.begin(), job.holders.end(), [&](int holder) {
        return problem_.held[At(holder)].held == waiting.holds;
      });
      if (!progress.made()[index] && uses && waiting.next_rank == waiting.rank) {
        waiting.next_rank = job.made.shard.rank;
      }
    }
    return waiting;
  }

  // Copies the fewest bytes to the buffer that let a shard be made. Every rank that waits holds
  // enough: its part of the new plan fits.
  void MakeRoom(Progress& progress) const {
    std::vector<int> cheapest;
    std::int64_t cheapest_bytes = 0;
    for (std::size_t rank = 0; rank < jobs_of_.size(); ++rank) {
      const int job = SmallestPending(progress, rank);
      if (job < 0) continue;
      std::int64_t bytes = 0;
      std::vector<int> chosen =
          Evicted(progress, rank,
                  problem_.jobs[At(job)].bytes - progress.free(static_cast<int>(rank)), bytes);
      if (cheapest.empty() || bytes < cheapest_bytes) {
        cheapest = std::move(chosen);
        cheapest_bytes = bytes;
      }
    }
    for (const int holder : cheapest) progress.ToBuffer(holder, [](int) {});
  }

  // Shards of `short_bytes` together: the smallest one that does, else the largest and what is
  // missing then.
  std::vector<int> Evicted(const Progress& progress, std::size_t rank, std::int64_t short_bytes,
                           std::int64_t& bytes) const {
    std::vector<int> blocking;
    for (const int holder : held_on_[rank]) {
      if (progress.Blocks(holder)) blocking.push_back(holder);
    }
    std::stable_sort(blocking.begin(), blocking.end(), [&](int a, int b) {
      return problem_.held[At(a)].bytes < problem_.held[At(b)].bytes;
    });
    std::vector<int> chosen;
    while (short_bytes > 0 && !blocking.empty()) {
      auto enough = std::find_if(blocking.begin(), blocking.end(), [&](int holder) {
        return problem_.held[At(holder)].bytes >= short_bytes;
      });
      if (enough == blocking.end()) --enough;
      short_bytes -= problem_.held[At(*enough)].bytes;
      bytes += problem_.held[At(*enough)].bytes;
      chosen.push_back(*enough);
      blocking.erase(enough);
    }
    return chosen;
  }

  const ReshardingProblem& problem_;
  std::vector<std::vector<int>> jobs_of_;  // by rank
  std::vector<std::vector<int>> held_on_;  // by rank
};

}  // namespace

ReshardingOrder FindReshardingOrder(const ReshardingProblem& problem) {
  return OrderSearch(problem).Find();
}

}  // namespace neuroshard
