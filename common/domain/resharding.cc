#include "common/domain/resharding.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "common/domain/memory_use.h"
#include "common/domain/resharding_order.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

TierBytes HeldBytes(const PlanRequest& request, const Table& table, const ShardLayout& layout,
                    const Shard& shard) {
  const MemoryUse use = ShardMemory(request, table, layout, shard.rows, shard.cols);
  TierBytes held = use.by_tier();
  held[MemoryTier::kDevice] -= use.input_bytes + use.output_bytes;
  return held;
}

// As if its rows were on a device: whole, and once.
std::int64_t BufferBytes(const PlanRequest& request, const Table& table, ShardLayout layout,
                         const Shard& shard) {
  if (TierOf(layout.kernel) != MemoryTier::kDevice) layout.kernel = ComputeKernel::kFused;
  const MemoryUse use = ShardMemory(request, table, layout, shard.rows, shard.cols);
  return use.row_bytes();
}

// `shard` without `cut`, which is inside it.
void AddRest(const Shard& shard, const Shard& cut, std::vector<Shard>& rest) {
  const std::int64_t cut_rows_end = cut.row_offset + cut.rows;
  const std::int64_t cut_cols_end = cut.col_offset + cut.cols;
  const Shard pieces[] = {
      {shard.row_offset, cut.row_offset - shard.row_offset, shard.col_offset, shard.cols,
       shard.rank},
      {cut_rows_end, shard.row_offset + shard.rows - cut_rows_end, shard.col_offset, shard.cols,
       shard.rank},
      {cut.row_offset, cut.rows, shard.col_offset, cut.col_offset - shard.col_offset, shard.rank},
      {cut.row_offset, cut.rows, cut_cols_end, shard.col_offset + shard.cols - cut_cols_end,
       shard.rank}};
  for (const Shard& piece : pieces) {
    if (piece.rows > 0 && piece.cols > 0) rest.push_back(piece);
  }
}

class ProblemMaker {
 public:
  ProblemMaker(const PlanRequest& request, const Plan& plan)
      : request_(request),
        plan_(plan),
        hosts_(request.topology.hosts()),
        sent_bytes_(request.topology.devices.size()) {
    state_only_.optimizer = request.optimizer;
    state_only_.topology.devices.resize(1);
  }

  StatusOr<ReshardingProblem> Make() {
    AddPools();
    const auto before = EntriesOf(request_.migration->previous, request_.tables);
    const auto after = EntriesOf(plan_, request_.tables);
    NS_RETURN_IF_ERROR(CheckRoom(after));
    for (std::size_t t = 0; t < after.size(); ++t) {
      if (before[t] != nullptr && after[t] != nullptr) {
        AddTable(static_cast<int>(t), *before[t], *after[t]);
      }
    }
    for (const MemoryPool& pool : problem_.pools) {
      problem_.free_bytes.push_back(pool.capacity_bytes);
    }
    for (const HeldShard& held : problem_.held) {
      for (const int pool : problem_.PoolsOf(held.held)) {
        At(problem_.free_bytes, pool) -= problem_.BytesIn(pool, held.bytes);
      }
    }
    return std::move(problem_);
  }

 private:
  void AddPools() {
    problem_.pools_of.resize(request_.topology.devices.size());
    for (int rank = 0; rank < request_.topology.num_ranks(); ++rank) {
      const Device& device = At(request_.topology.devices, rank);
      AddPool({MemoryTier::kDevice, device.host, rank,
               device.memory_bytes - ReserveBytes(request_.memory, device.memory_bytes)});
    }
    for (const SharedMemory& memory : kSharedMemories) AddShared(memory);
  }

  // A memory of hosts, and what their ranks may take of it. Where no host has any, nothing of the
  // new plan is there, and what is in place there is in nobody's way.
  void AddShared(const SharedMemory& memory) {
    const std::vector<std::int64_t>& of_hosts = request_.topology.*memory.of_hosts;
    for (std::size_t h = 0; h < of_hosts.size() && h < hosts_.size(); ++h) {
      const int host = static_cast<int>(h);
      AddPool({memory.tier, host, std::nullopt, of_hosts[h]});
      for (int i = 0; i < hosts_[h].count; ++i) {
        const int rank = hosts_[h].first + i;
        const std::int64_t bytes = At(request_.topology.devices, rank).*memory.most;
        if (bytes > 0) AddPool({memory.tier, host, rank, bytes});
      }
    }
  }

  void AddPool(const MemoryPool& pool) {
    const HostRanks ranks = pool.rank ? HostRanks{*pool.rank, 1} : At(hosts_, pool.host);
    for (int i = 0; i < ranks.count; ++i) {
      At(problem_.pools_of, ranks.first + i).push_back(static_cast<int>(problem_.pools.size()));
    }
    problem_.pools.push_back(pool);
  }

  Status CheckRoom(const std::vector<const TablePlan*>& after) const {
    std::vector<std::int64_t> bytes(problem_.pools.size());
    for (std::size_t t = 0; t < after.size(); ++t) {
      if (after[t] == nullptr) continue;
      for (const Shard& shard : after[t]->shards) {
        if (!HasRank(shard.rank)) {
          return FailedPrecondition("the plan has rank {}, and there are {}", shard.rank,
                                    request_.topology.num_ranks());
        }
        const TierBytes held = HeldBytes(request_, request_.tables[t], LayoutOf(*after[t]), shard);
        for (const int pool : At(problem_.pools_of, shard.rank)) {
          AddBytes(At(bytes, pool), problem_.BytesIn(pool, held));
        }
      }
    }
    for (std::size_t p = 0; p < bytes.size(); ++p) {
      const MemoryPool& pool = problem_.pools[p];
      if (bytes[p] <= pool.capacity_bytes) continue;
      std::string of;
      if (pool.memory != MemoryTier::kDevice) {
        of = fmt::format(" of {}{}", pool.memory == MemoryTier::kHost ? "host " : "",
                         SharedMemoryOf(pool.memory).name);
      }
      return FailedPrecondition("{} {}: the plan's weights and optimizer states take {} of {}{}",
                                pool.rank ? "rank" : "host", pool.rank.value_or(pool.host),
                                FormatBytes(bytes[p]), FormatBytes(pool.capacity_bytes), of);
    }
    return absl::OkStatus();
  }

  bool HasRank(int rank) const {
    return rank >= 0 && rank < static_cast<int>(request_.topology.devices.size());
  }

  PartLink LinkBetween(int from, int to) const {
    if (!HasRank(from)) return PartLink::kOutside;
    if (from == to) return PartLink::kSameRank;
    const std::vector<Device>& devices = request_.topology.devices;
    return At(devices, from).host == At(devices, to).host ? PartLink::kIntraHost
                                                          : PartLink::kInterHost;
  }

  // Where the table is in place and in its size, what of it is new.
  void AddTable(int index, const TablePlan& before, const TablePlan& after) {
    const Table& table = At(request_.tables, index);
    const HeldShards held(before.shards, table.num_embeddings, table.embedding_dim);
    if (held.empty()) return;
    const auto key = [](const Shard& shard) {
      return std::tuple(shard.rank, shard.row_offset, shard.rows, shard.col_offset, shard.cols);
    };
    // Holders by place, and each shard's number among the problem's; -1: outside.
    std::map<decltype(key(Shard())), std::size_t> place_of;
    std::vector<int> holders;
    for (const Shard& shard : held.shards()) {
      place_of[key(shard)] = holders.size();
      holders.push_back(HasRank(shard.rank) ? static_cast<int>(problem_.held.size()) : -1);
      if (!HasRank(shard.rank)) continue;
      problem_.held.push_back({{index, shard},
                               HeldBytes(request_, table, LayoutOf(before), shard),
                               BufferBytes(request_, table, LayoutOf(before), shard)});
    }
    std::vector<const Shard*> wanted;
    for (const Shard& shard : after.shards) {
      if (shard.rows == 0) continue;
      const auto place = place_of.find(key(shard));
      if (place != place_of.end()) {
        HeldShard& same = At(problem_.held, holders[place->second]);
        // A kernel that takes other memory is another tensor.
        if (same.bytes == HeldBytes(request_, table, LayoutOf(after), shard)) {
          same.stays = true;
          continue;
        }
      }
      wanted.push_back(&shard);
    }
    for (const Shard* shard : wanted) {
      ShardToMake job{{index, *shard}, HeldBytes(request_, table, LayoutOf(after), *shard), {}, {}};
      FindParts(table, held.shards(), holders, job);
      for (SourcedPart& part : job.parts) {
        part.moved.from_memory = TierOf(before.compute_kernel);
        part.moved.memory = TierOf(after.compute_kernel);
      }
      problem_.jobs.push_back(std::move(job));
    }
  }

  // Parts of the new shard: what its rank has, then from the nearest, of those from who sends
  // least.
  void FindParts(const Table& table, const std::vector<Shard>& held,
                 const std::vector<int>& holders, ShardToMake& job) {
    const Shard& wanted = job.made.shard;
    std::vector<std::size_t> sources;
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (Overlap(wanted, held[i])) sources.push_back(i);
    }
    std::ranges::stable_sort(
        sources, {}, [&](std::size_t source) { return Preference(held[source], wanted.rank); });
    std::vector<Shard> missing = {wanted};
    for (const std::size_t source : sources) {
      std::vector<Shard> rest;
      for (const Shard& piece : missing) {
        if (const auto common = Overlap(piece, held[source])) {
          AddRest(piece, *common, rest);
          AddPart(table, *common, held[source].rank, holders[source], job);
        } else {
          rest.push_back(piece);
        }
      }
      missing = std::move(rest);
      if (missing.empty()) break;
    }
    // No rank had it, whatever the plan in place says.
    for (const Shard& piece : missing) AddPart(table, piece, -1, -1, job);
    SortUnique(job.holders);
    for (const int holder : job.holders) ++At(problem_.held, holder).users;
  }

  std::pair<PartLink, std::int64_t> Preference(const Shard& source, int to) const {
    return {LinkBetween(source.rank, to), HasRank(source.rank) ? At(sent_bytes_, source.rank) : 0};
  }

  void AddPart(const Table& table, const Shard& part, int from, int holder, ShardToMake& job) {
    const MemoryUse use = ShardMemory(state_only_, table, part.rows, part.cols);
    const std::int64_t weights_bytes = use.weights[MemoryTier::kDevice];
    job.parts.push_back({{part, from, LinkBetween(from, part.rank), weights_bytes,
                          use.optimizer[MemoryTier::kDevice]},
                         holder});
    if (HasRank(from) && from != part.rank) AddBytes(At(sent_bytes_, from), weights_bytes);
    if (holder >= 0 && !At(problem_.held, holder).stays) job.holders.push_back(holder);
  }

  const PlanRequest& request_;
  const Plan& plan_;
  const std::vector<HostRanks> hosts_;
  PlanRequest state_only_;  // whose memory rule counts what travels
  std::vector<std::int64_t> sent_bytes_;
  ReshardingProblem problem_;
};

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
    for (const int pool : Positions<int>(free_.size())) peak_.push_back(Taken(pool));
  }

  void Take(const std::vector<ReshardingEvent>& events) {
    for (const ReshardingEvent& event : events) {
      if (event.kind == ReshardingEvent::Kind::kToBuffer) {
        ToBuffer(event.index);
      } else {
        Make(event.index);
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

  std::int64_t Taken(int pool) const {
    return At(problem_.pools, pool).capacity_bytes - At(free_, pool) + At(used_, pool);
  }

  bool FitsBeside(const ShardToMake& job) const {
    const std::vector<int>& pools = problem_.PoolsOf(job.made);
    return std::ranges::all_of(pools, [&](int pool) {
      const std::int64_t bytes = problem_.BytesIn(pool, job.bytes);
      return bytes == 0 || At(used_, pool) + bytes <= At(free_, pool);
    });
  }

  void ToBuffer(int holder) {
    step_.to_buffer.push_back(At(problem_.held, holder).held);
    At(buffered_, holder) = Buffered::kInThisStep;
    going_.push_back(holder);
    AddBytes(buffer_, At(problem_.held, holder).buffer_bytes);
    result_.buffer_bytes = std::max(result_.buffer_bytes, buffer_);
  }

  void Make(int index) {
    const ShardToMake& job = At(problem_.jobs, index);
    const bool needs_buffer = std::ranges::any_of(
        job.holders, [&](int holder) { return At(buffered_, holder) == Buffered::kInThisStep; });
    if (needs_buffer || !FitsBeside(job)) EndStep();
    for (const int pool : problem_.PoolsOf(job.made)) {
      At(used_, pool) += problem_.BytesIn(pool, job.bytes);
      At(peak_, pool) = std::max(At(peak_, pool), Taken(pool));
    }
    MadeShard made{job.made, {}};
    for (const SourcedPart& part : job.parts) {
      MovedPart moved = part.moved;
      if (part.holder >= 0 && At(buffered_, part.holder) == Buffered::kYes) {
        moved.link = PartLink::kBuffer;
      }
      if (moved.moves()) {
        AddBytes(result_.bytes_by_link[static_cast<std::size_t>(moved.link)],
                 moved.weights_bytes + moved.optimizer_bytes);
      }
      made.parts.push_back(moved);
    }
    for (const int holder : job.holders) {
      if (--At(users_, holder) == 0) {
        going_.push_back(holder);
      }
    }
    step_.made.push_back(std::move(made));
  }

  void EndStep() {
    for (const int holder : going_) {
      const HeldShard& held = At(problem_.held, holder);
      if (At(buffered_, holder) == Buffered::kYes) {
        buffer_ -= held.buffer_bytes;
        continue;
      }
      At(buffered_, holder) =
          At(buffered_, holder) == Buffered::kInThisStep ? Buffered::kYes : Buffered::kNo;
      for (const int pool : problem_.PoolsOf(held.held)) {
        At(free_, pool) += problem_.BytesIn(pool, held.bytes);
      }
      step_.freed.push_back(held.held);
    }
    going_.clear();
    for (std::size_t pool = 0; pool < free_.size(); ++pool) free_[pool] -= used_[pool];
    std::ranges::fill(used_, 0);
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
  std::vector<int> going_;  // at the end of the step
  std::int64_t buffer_ = 0;
  ReshardingStep step_;
};

}  // namespace

StatusOr<Resharding> Reshard(const PlanRequest& request, const Plan& plan) {
  if (!request.migration) return FailedPrecondition("the request has no plan in place");
  NS_ASSIGN_OR_RETURN(ReshardingProblem problem, ProblemMaker(request, plan).Make());
  Resharding result;
  for (HeldShard& held : problem.held) {
    if (held.stays || held.users > 0) continue;
    for (const int pool : problem.PoolsOf(held.held)) {
      At(problem.free_bytes, pool) += problem.BytesIn(pool, held.bytes);
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
