#include "common/domain/resharding_order.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "common/base/random.h"
#include "common/domain/memory_use.h"

namespace neuroshard {
namespace {

using Kind = ReshardingEvent::Kind;

constexpr int kRandomOrders = 8;
constexpr std::size_t kSearchedSets = 20'000;
constexpr std::size_t kSearchedJobs = 1'000;

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
  std::int64_t free(int pool) const { return At(free_, pool); }
  bool IsMade(int job) const { return At(made_, job); }

  // By how much the pool is too small for the job now; at most 0: it is not.
  std::int64_t Shortage(int job, int pool) const {
    const std::int64_t bytes = problem_->BytesIn(pool, At(problem_->jobs, job).bytes);
    return bytes == 0 ? 0 : bytes - At(free_, pool);
  }
  bool Fits(int job) const {
    const std::vector<int>& pools = problem_->PoolsOf(At(problem_->jobs, job).made);
    return std::ranges::all_of(pools, [&](int pool) { return Shortage(job, pool) <= 0; });
  }

  // Whether the shard takes memory of its rank until something is made of it.
  bool Blocks(int holder) const {
    return At(users_, holder) > 0 && !At(buffered_, holder) && !At(problem_->held, holder).stays;
  }

  // Bytes that come free in the pool when the job is made now.
  std::int64_t FreedIn(int pool, int job) const {
    std::int64_t bytes = 0;
    for (const int holder : At(problem_->jobs, job).holders) {
      const HeldShard& held = At(problem_->held, holder);
      const std::vector<int>& pools = problem_->PoolsOf(held.held);
      if (At(users_, holder) == 1 && !At(buffered_, holder) &&
          std::ranges::binary_search(pools, pool)) {
        bytes += problem_->BytesIn(pool, held.bytes);
      }
    }
    return bytes;
  }

  // Calls on_freed(its number) for each shard that goes.
  void Make(int job, const std::function<void(int)>& on_freed) {
    At(made_, job) = true;
    ++num_made_;
    events_.push_back({Kind::kMake, job});
    for (const int pool : problem_->PoolsOf(At(problem_->jobs, job).made)) {
      At(free_, pool) -= problem_->BytesIn(pool, At(problem_->jobs, job).bytes);
    }
    for (const int holder : At(problem_->jobs, job).holders) {
      if (--At(users_, holder) == 0 && !At(buffered_, holder)) Free(holder, on_freed);
    }
  }

  void ToBuffer(int holder, const std::function<void(int)>& on_freed) {
    events_.push_back({Kind::kToBuffer, holder});
    At(buffered_, holder) = true;
    Free(holder, on_freed);
  }

 private:
  void Free(int holder, const std::function<void(int)>& on_freed) {
    const HeldShard& held = At(problem_->held, holder);
    for (const int pool : problem_->PoolsOf(held.held)) {
      At(free_, pool) += problem_->BytesIn(pool, held.bytes);
    }
    on_freed(holder);
  }

  const ReshardingProblem* problem_;
  std::vector<std::int64_t> free_;  // by pool
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
        jobs_of_(problem.pools_of.size()),
        held_in_(problem.pools.size()),
        ranks_of_(problem.pools.size()) {
    for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
      At(jobs_of_, problem.jobs[j].made.shard.rank).push_back(static_cast<int>(j));
    }
    for (std::size_t h = 0; h < problem.held.size(); ++h) {
      for (const int pool : problem.PoolsOf(problem.held[h].held)) {
        At(held_in_, pool).push_back(static_cast<int>(h));
      }
    }
    for (std::size_t rank = 0; rank < problem.pools_of.size(); ++rank) {
      for (const int pool : problem.pools_of[rank]) {
        At(ranks_of_, pool).push_back(static_cast<int>(rank));
      }
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
    const auto bytes = [&](std::size_t job) { return Total(problem_.jobs[job].bytes); };
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

  // In all memories, as a measure of size.
  static std::int64_t Total(const TierBytes& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }

  // Bytes of the shards that the job is made of, each shared by its users.
  std::int64_t Released(std::size_t job) const {
    std::int64_t bytes = 0;
    for (const int holder : problem_.jobs[job].holders) {
      bytes += Total(At(problem_.held, holder).bytes) / At(problem_.held, holder).users;
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
      std::ranges::sort(pending[rank], {}, [&](int job) { return At(priorities, job); });
    }
    const auto on_freed = [&](int holder) {
      const HeldShard& held = At(problem_.held, holder);
      for (const int pool : problem_.PoolsOf(held.held)) {
        if (problem_.BytesIn(pool, held.bytes) == 0) continue;
        for (const int rank : At(ranks_of_, pool)) {
          if (!At(queued, rank)) ranks.push_back(rank);
          At(queued, rank) = true;
        }
      }
    };
    while (!ranks.empty()) {
      const int rank = ranks.front();
      ranks.pop_front();
      At(queued, rank) = false;
      std::vector<int> waiting;
      for (const int job : At(pending, rank)) {
        if (progress.IsMade(job)) continue;
        if (progress.Fits(job)) {
          progress.Make(job, on_freed);
        } else {
          waiting.push_back(job);
        }
      }
      At(pending, rank) = std::move(waiting);
    }
  }

  // Makes what can do no harm: jobs that leave every memory as much room as before, but for those
  // into which all that is left fits together.
  void MakeHarmless(Progress& progress) const {
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<std::int64_t> wanted(problem_.pools.size());
      for (int job = 0; job < static_cast<int>(problem_.jobs.size()); ++job) {
        if (progress.IsMade(job)) continue;
        for (const int pool : problem_.PoolsOf(At(problem_.jobs, job).made)) {
          AddBytes(At(wanted, pool), problem_.BytesIn(pool, At(problem_.jobs, job).bytes));
        }
      }
      std::vector<bool> all_fit(wanted.size());
      for (std::size_t pool = 0; pool < wanted.size(); ++pool) {
        all_fit[pool] = wanted[pool] <= progress.free(static_cast<int>(pool));
      }
      for (int job = 0; job < static_cast<int>(problem_.jobs.size()); ++job) {
        if (progress.IsMade(job) || !progress.Fits(job)) continue;
        const std::vector<int>& pools = problem_.PoolsOf(At(problem_.jobs, job).made);
        const bool harmless = std::ranges::all_of(pools, [&](int pool) {
          return At(all_fit, pool) || progress.FreedIn(pool, job) >=
                                          problem_.BytesIn(pool, At(problem_.jobs, job).bytes);
        });
        if (!harmless) continue;
        progress.Make(job, [](int) {});
        changed = true;
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
      if (smallest < 0 ||
          Total(At(problem_.jobs, job).bytes) < Total(At(problem_.jobs, smallest).bytes)) {
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
      rank = static_cast<std::size_t>(path.back().next_rank);
    }
    return {path.begin() + position[rank], path.end()};
  }

  Waiting WhyWaits(const Progress& progress, std::size_t rank) const {
    const int smallest = SmallestPending(progress, rank);
    const ShardToMake& wanted = At(problem_.jobs, smallest);
    const std::vector<int>& pools = problem_.PoolsOf(wanted.made);
    const int pool =
        *std::ranges::find_if(pools, [&](int p) { return progress.Shortage(smallest, p) > 0; });
    Waiting waiting{static_cast<int>(rank),
                    wanted.made,
                    {},
                    static_cast<int>(rank),
                    At(problem_.pools, pool).memory};
    std::int64_t largest = 0;
    for (const int holder : At(held_in_, pool)) {
      const HeldShard& held = At(problem_.held, holder);
      const std::int64_t bytes = problem_.BytesIn(pool, held.bytes);
      if (!progress.Blocks(holder) || bytes <= largest) continue;
      largest = bytes;
      waiting.holds = held.held;
    }
    // Who makes something of it; another rank, if there is one.
    for (const ShardToMake& job : problem_.jobs) {
      const std::size_t index = static_cast<std::size_t>(&job - problem_.jobs.data());
      const bool uses = std::ranges::any_of(
          job.holders, [&](int holder) { return At(problem_.held, holder).held == waiting.holds; });
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
      std::vector<int> chosen = Evicted(progress, job, bytes);
      if (cheapest.empty() || bytes < cheapest_bytes) {
        cheapest = std::move(chosen);
        cheapest_bytes = bytes;
      }
    }
    for (const int holder : cheapest) progress.ToBuffer(holder, [](int) {});
  }

  // Shards that make room for the job: in each memory that is too small for it the smallest one
  // that is enough, else the largest and what is missing then. Adds what they take in the buffer.
  std::vector<int> Evicted(const Progress& progress, int job, std::int64_t& buffer_bytes) const {
    std::vector<int> chosen;
    for (const int pool : problem_.PoolsOf(At(problem_.jobs, job).made)) {
      const auto bytes_of = [&](int holder) {
        return problem_.BytesIn(pool, At(problem_.held, holder).bytes);
      };
      std::int64_t short_bytes = progress.Shortage(job, pool);
      std::vector<int> blocking;
      for (const int holder : At(held_in_, pool)) {
        if (std::ranges::find(chosen, holder) != chosen.end()) {
          short_bytes -= bytes_of(holder);
        } else if (progress.Blocks(holder) && bytes_of(holder) > 0) {
          blocking.push_back(holder);
        }
      }
      std::ranges::stable_sort(blocking, {}, bytes_of);
      while (short_bytes > 0 && !blocking.empty()) {
        auto enough = std::ranges::find_if(
            blocking, [&](int holder) { return bytes_of(holder) >= short_bytes; });
        if (enough == blocking.end()) --enough;
        short_bytes -= bytes_of(*enough);
        AddBytes(buffer_bytes, At(problem_.held, *enough).buffer_bytes);
        chosen.push_back(*enough);
        blocking.erase(enough);
      }
    }
    return chosen;
  }

  const ReshardingProblem& problem_;
  std::vector<std::vector<int>> jobs_of_;   // by rank
  std::vector<std::vector<int>> held_in_;   // by pool
  std::vector<std::vector<int>> ranks_of_;  // by pool, ascending
};

}  // namespace

ReshardingOrder FindReshardingOrder(const ReshardingProblem& problem) {
  return OrderSearch(problem).Find();
}

}  // namespace neuroshard
