#include "common/domain/resharding.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/domain/resharding_order.h"
#include "common/domain/resharding_problem.h"

namespace neuroshard {
namespace {

using EventKind = ReshardingEvent::Kind;

// Puts events one after another into steps, as many into each as fit without what it frees.
class StepMaker {
 public:
  StepMaker(const ReshardingProblem& problem, Resharding& result)
      : problem_(problem),
        result_(result),
        free_(problem.free_bytes),
        used_(free_.size()),
        buffered_(problem.held.size(), Buffered::kNo) {
    for (const HeldShard& held : problem.held) users_.push_back(held.users);
    for (std::size_t pool = 0; pool < free_.size(); ++pool) peak_.push_back(Taken(pool));
  }

  void Take(const std::vector<ReshardingEvent>& events) {
    for (const ReshardingEvent& event : events) {
      const std::size_t index = static_cast<std::size_t>(event.index);
      if (event.kind == EventKind::kToBuffer) {
        ToBuffer(index);
      } else {
        Make(index);
      }
    }
    EndStep();
    for (std::size_t p = 0; p < peak_.size(); ++p) {
      const MemoryPool& pool = problem_.pools[p];
      if (pool.memory == MemoryTier::kDevice) {
        result_.peak_bytes.push_back(peak_[p]);
        result_.capacity_bytes.push_back(pool.capacity_bytes);
      } else {
        result_.shared.push_back(
            {pool.memory, pool.host, pool.rank, peak_[p], pool.capacity_bytes});
      }
    }
  }

 private:
  enum class Buffered { kNo, kInThisStep, kYes };

  std::int64_t Taken(std::size_t pool) const {
    return problem_.pools[pool].capacity_bytes - free_[pool] + used_[pool];
  }

  bool FitsBeside(const ShardToMake& job) const {
    const std::vector<int>& pools = problem_.PoolsOf(job.made);
    return std::all_of(pools.begin(), pools.end(), [&](int p) {
      const std::size_t pool = static_cast<std::size_t>(p);
      const std::int64_t bytes = problem_.pools[pool].BytesIn(job.bytes);
      return bytes == 0 || used_[pool] + bytes <= free_[pool];
    });
  }

  void ToBuffer(std::size_t holder) {
    step_.to_buffer.push_back(problem_.held[holder].held);
    buffered_[holder] = Buffered::kInThisStep;
    going_.push_back(holder);
    AddBytes(buffer_, problem_.held[holder].buffer_bytes);
    result_.buffer_bytes = std::max(result_.buffer_bytes, buffer_);
  }

  void Make(std::size_t index) {
    const ShardToMake& job = problem_.jobs[index];
    const bool needs_buffer = std::any_of(job.holders.begin(), job.holders.end(), [&](int holder) {
      return buffered_[static_cast<std::size_t>(holder)] == Buffered::kInThisStep;
    });
    if (needs_buffer || !FitsBeside(job)) EndStep();
    for (const int p : problem_.PoolsOf(job.made)) {
      const std::size_t pool = static_cast<std::size_t>(p);
      used_[pool] += problem_.pools[pool].BytesIn(job.bytes);
      peak_[pool] = std::max(peak_[pool], Taken(pool));
    }
    MadeShard made{job.made, {}};
    for (const SourcedPart& part : job.parts) {
      MovedPart moved = part.moved;
      if (part.holder >= 0 && buffered_[static_cast<std::size_t>(part.holder)] == Buffered::kYes) {
        moved.link = PartLink::kBuffer;
      }
      if (moved.moves()) {
        AddBytes(result_.bytes_by_link[static_cast<std::size_t>(moved.link)],
                 moved.weights_bytes + moved.optimizer_bytes);
      }
      made.parts.push_back(moved);
    }
    for (const int holder : job.holders) {
      if (--users_[static_cast<std::size_t>(holder)] == 0) {
        going_.push_back(static_cast<std::size_t>(holder));
      }
    }
    step_.made.push_back(std::move(made));
  }

  void EndStep() {
    for (const std::size_t holder : going_) {
      const HeldShard& held = problem_.held[holder];
      if (buffered_[holder] == Buffered::kYes) {
        buffer_ -= held.buffer_bytes;
        continue;
      }
      buffered_[holder] =
          buffered_[holder] == Buffered::kInThisStep ? Buffered::kYes : Buffered::kNo;
      for (const int p : problem_.PoolsOf(held.held)) {
        const std::size_t pool = static_cast<std::size_t>(p);
        free_[pool] += problem_.pools[pool].BytesIn(held.bytes);
      }
      step_.freed.push_back(held.held);
    }
    going_.clear();
    for (std::size_t pool = 0; pool < free_.size(); ++pool) free_[pool] -= used_[pool];
    std::fill(used_.begin(), used_.end(), 0);
    if (step_ != ReshardingStep()) result_.steps.push_back(std::move(step_));
    step_ = {};
  }

  const ReshardingProblem& problem_;
  Resharding& result_;
  std::vector<std::int64_t> free_;  // by pool, at the beginning of the step
  std::vector<std::int64_t> used_;  // of it, in the step
  std::vector<std::int64_t> peak_;
  std::vector<int> users_;
  std::vector<Buffered> buffered_;
  std::vector<std::size_t> going_;  // at the end of the step
  std::int64_t buffer_ = 0;
  ReshardingStep step_;
};

}  // namespace

StatusOr<Resharding> Reshard(const PlanRequest& request, const Plan& plan) {
  if (!request.migration) return FailedPrecondition("the request has no plan in place");
  NS_ASSIGN_OR_RETURN(ReshardingProblem problem, MakeReshardingProblem(request, plan));
  Resharding result;
  for (HeldShard& held : problem.held) {
    if (held.stays || held.users > 0) continue;
    for (const int pool : problem.PoolsOf(held.held)) {
      problem.free_bytes[static_cast<std::size_t>(pool)] +=
          problem.pools[static_cast<std::size_t>(pool)].BytesIn(held.bytes);
    }
    result.freed_first.push_back(held.held);
  }
  ReshardingOrder order = FindReshardingOrder(problem);
  result.order = order.kind;
  result.cycle = std::move(order.cycle);
  StepMaker(problem, result).Take(order.events);
  return result;
}

}  // namespace neuroshard
