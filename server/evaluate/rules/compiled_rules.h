// Compiled rules: a request's constraints worked out table by table, so that a search can ask
// instead of interpreting.
//
// How demands act on each other:
// - Several rules that name a table all hold: what they allow is intersected, the smallest maximum
//   and the largest minimum win. A table without a rule on types may use Constraints'
//   sharding_types, else the default types.
// - In device memory kernel dense belongs to data_parallel and fused to all other types, so a table
//   that may only be dense is data_parallel, and one that may only be fused is not. The kernels with
//   rows in host memory are for all types but data_parallel, where a host has memory; offload only
//   where rules list it, and so key_value, where a host has SSDs.
// - A load factor that a rule asks for is the only one of the table's caches; of two there is none.
// - row_wise and data_parallel take every rank: they are out where a rank is forbidden.
//   table_row_wise and grid_shard take every rank of a host: they need a host without a forbidden
//   rank. row_wise_subset needs two ranks.
// - Shards are what a plan lists: a replica is a shard, and so is a row block without rows. They
//   count for max_shards of a table, and on their rank for max_shards_per_rank and
//   max_tables_per_rank.
// - Co-located tables have the ranks (or hosts) in common that each of them may use. Groups that
//   share a table are one. At rank level, all shards of all of them are on one rank: what cuts
//   columns still may, what takes several ranks may not. At host level, all are on one host.
// - A table in a separate group is neither row_wise nor data_parallel: that would leave the others
//   no rank.
// - A table in buckets (row_multiple) has its rows cut by row_wise alone, which is what TorchRec
//   does with them, and only where there is a bucket for every rank. Of several rules the least
//   common multiple.
// - A table with rows in proportion (row_proportion) is cut by row_wise alone, too: the other types
//   that cut rows cut them evenly. Of two proportions there is none.
// - Under TorchRec's column rule, a type that cuts columns has TorchRec's blocks and no others; the
//   width comes from min_column_width, or 128 where nobody asks for one.
// - A table with more columns than the trainer's kernels take (common/domain/kernel_limits.h) is cut
//   in columns.
// - An unpooled table is table_wise, column_wise or row_wise. TorchRec runs column_wise tables of
//   one EmbeddingCollection only if all their blocks have one width (1.9.2,
//   distributed/embedding.py, _local_embedding_dim), so that TorchRec's column rule is theirs
//   whatever the request's is, with the largest width that anybody asks for among the tables of a
//   module and an embedding_dim.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/residency.h"
#include "server/evaluate/rules/row_cuts.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

// A set of ranks with the hosts that it touches or fills. Immutable.
class RankSet {
 public:
  // has[rank] for each rank of the topology; `hosts` are Topology::hosts().
  RankSet(const std::vector<HostRanks>& hosts, std::vector<bool> has);

  bool contains(int rank) const { return At(has_, rank); }
  const std::vector<bool>& has() const { return has_; }
  const std::vector<int>& ranks() const { return ranks_; }  // ascending
  // Hosts, as positions in Topology::hosts(), ascending: with one rank at least, and with all.
  const std::vector<int>& hosts() const { return hosts_; }
  const std::vector<int>& whole_hosts() const { return whole_hosts_; }
  // How many ranks hosts have that it has whole: ascending, distinct.
  const std::vector<int>& whole_host_sizes() const { return whole_host_sizes_; }
  // The most ranks that one host has.
  int most_of_a_host() const { return most_of_a_host_; }
  // Ranks of the smallest host that it has whole; 0: there is none.
  int fewest_of_a_whole_host() const {
    return whole_hosts_.empty() ? 0 : whole_host_sizes_.front();
  }
  bool all() const { return ranks_.size() == has_.size(); }

 private:
  std::vector<bool> has_;
  std::vector<int> ranks_;
  std::vector<int> hosts_;
  std::vector<int> whole_hosts_;
  std::vector<int> whole_host_sizes_;
  int most_of_a_host_ = 0;
};

// What shards of the tables of a group claim: co-located ones the one rank or host of all of them,
// separate ones each rank or host for their table.
struct GroupClaims {
  GroupLevel level = GroupLevel::kRank;
  bool is_separate = false;
  int first = 0;  // of the claims that RuleState counts: one, or one for each rank or host
};

// The constraints of one table, all rules that name it intersected.
struct TableRules {
  // Types that a plan of this table can have as far as the demands above show, in some memory.
  // Empty: no plan keeps the constraints. A type may stay in that other tables or memory leave no
  // place for.
  TypeSet types;
  TypeSet device_types;  // those of them that it can have in device memory
  // Positions in CompiledRules::residencies(): kKeyValue by ascending caches, kFusedUvm, kOffload,
  // kDynamicHybrid, kDynamicCaching, kFusedUvmCaching by ascending caches but for a dynamic table
  // that is all on the device, which follows its other shares, and device memory itself last;
  // equal lists are shared. So of a tier the first takes least device memory. {0} where there is
  // device memory alone.
  std::shared_ptr<const std::vector<int>> residencies;
  std::shared_ptr<const RankSet> ranks;  // for every shard; equal sets are shared. May be empty
  int max_shards = 0;                    // INT_MAX: any number
  // Columns of each shard, at least; between 1 and the table's own. Cuts fall on multiples of
  // kColumnAlignment all the same: only the last shard of a table whose dim is no multiple of it
  // may have fewer columns than that.
  std::int64_t min_column_width = 1;
  // Columns of each shard, at most: what the trainer's kernels take, or all that the table has.
  // Where they are fewer than all, no type is left that does not cut columns.
  std::int64_t max_column_width = 1;
  std::int64_t column_block = 0;  // TorchRec's one block width; 0: cuts may fall anywhere
  bool distinct_ranks = false;
  int rank_group = -1;  // in CompiledRules::rank_groups(); -1: in none
  int host_group = -1;
  std::vector<int> separate_groups;  // in CompiledRules::separate_groups(), ascending
  std::vector<GroupClaims> claims;   // of all of its groups
  // The one plan that the table may have, the one in place (Migration::only_types); null: any.
  std::shared_ptr<const TablePlan> kept;

  // Blocks that a type which cuts columns has, at least; of `dim` columns, the table's.
  std::int64_t fewest_blocks(std::int64_t dim) const {
    const std::int64_t width = column_block > 0 ? column_block : max_column_width;
    return (dim + width - 1) / width;
  }
};

// Positions in CompiledRules::residencies(), one for each memory, the fastest memory first.
struct OffDevice {
  std::array<int, kSharedMemories.size()> positions = {};
  std::size_t count = 0;

  void Add(int position) { positions[count++] = position; }
  bool empty() const { return count == 0; }
  std::size_t size() const { return count; }
  const int* begin() const { return positions.data(); }
  const int* end() const { return positions.data() + count; }
  int operator[](std::size_t i) const { return positions[i]; }
};

// The constraints of a request by table and by group. Immutable.
class CompiledRules {
 public:
  // Compiles a decoded request (indices exist), as if no memory were slower than `slowest`, and as
  // if tables that may have one of the types `within` had no others. O(size of the request).
  CompiledRules(const PlanRequest& request, TypeSet default_types,
                MemoryTier slowest = kWords<MemoryTier>.back().value,
                TypeSet within = TypeSet::All());

  const TableRules& of(int table) const { return At(tables_, table); }
  const std::vector<TableRules>& tables() const { return tables_; }

  // Co-located tables, ascending; groups of one level have no table in common.
  const std::vector<std::vector<int>>& rank_groups() const { return rank_groups_; }
  const std::vector<std::vector<int>>& host_groups() const { return host_groups_; }
  // As in the request.
  const std::vector<TableGroup>& separate_groups() const { return separate_groups_; }
  // The claims of all groups together.
  int num_claims() const { return num_claims_; }

  // How row_wise cuts the table.
  const RowCut& row_cut(int table) const { return row_cuts_.of(table); }
  const RowCuts& row_cuts() const { return row_cuts_; }

  // INT_MAX: any number.
  int max_shards_per_rank() const { return max_shards_per_rank_; }
  int max_tables_per_rank() const { return max_tables_per_rank_; }

  // What a table may be in; the first one is device memory.
  const std::vector<Residency>& residencies() const { return residencies_; }
  const Residency& residency(int index) const { return At(residencies_, index); }
  // `residency` must be in residencies(); that of a plan in place is, where the rules allow it.
  int PositionOf(const Residency& residency) const;
  // Whether tables may be anywhere but in device memory.
  bool has_off_device() const { return slowest_tier_ != MemoryTier::kDevice; }
  // The slowest memory that some table may be in.
  MemoryTier slowest_tier() const { return slowest_tier_; }
  // What hosts share up to it, the fastest first, without memories that no table may be in, but for
  // the hosts' own.
  std::vector<SharedMemory> shared_memories() const;
  // The residency of the table in each shared memory that takes the least device memory, of those
  // that the rules leave it; but for optimizer state of whole rows, which fused_uvm has there and
  // offload has not. O(1), with SSDs O(residencies).
  OffDevice LeastOnDevice(int table) const;
  // Positions off the device of which one fits wherever any fits: those of LeastOnDevice; the least of
  // every other kernel, unless it only adds copies in a cache to one that is there; and every share of
  // a kernel that takes less host memory the more it takes of the device.
  std::vector<int> PlacesOffDevice(int table) const;
  // Whether a table that may be in the residency may be so in the type.
  bool Allows(int table, int residency, ShardingType type) const {
    return residency == 0 ? of(table).device_types.contains(type)
                          : type != ShardingType::kDataParallel && of(table).types.contains(type);
  }

  int num_ranks() const { return static_cast<int>(host_of_rank_.size()); }
  // Topology::hosts(), and each rank's position in it.
  const std::vector<HostRanks>& hosts() const { return hosts_; }
  int host_of(int rank) const { return At(host_of_rank_, rank); }

 private:
  void CollectDemands(const PlanRequest& request, TypeSet default_types);
  // Fills residencies, and device_types of kernels alone.
  void FindResidencies(const PlanRequest& request, MemoryTier slowest);
  // Takes device memory from the residencies of tables that have no type left there.
  void KeepOffDevice();
  void FindColumnBlocks(const PlanRequest& request);
  void KeepInPlace(const PlanRequest& request);
  void CollectGroups(const Constraints& constraints);
  void AddClaims(const std::vector<int>& tables, GroupLevel level, bool is_separate);

  std::vector<TableRules> tables_;
  RowCuts row_cuts_;
  std::vector<Residency> residencies_;
  MemoryTier slowest_tier_ = MemoryTier::kDevice;
  std::vector<std::vector<int>> rank_groups_;
  std::vector<std::vector<int>> host_groups_;
  std::vector<TableGroup> separate_groups_;
  int num_claims_ = 0;
  int max_shards_per_rank_ = 0;
  int max_tables_per_rank_ = 0;
  std::vector<HostRanks> hosts_;
  std::vector<int> host_of_rank_;
};

// Whether the type puts one shard on each rank there is.
constexpr bool TakesEveryRank(ShardingType type) {
  return type == ShardingType::kRowWise || type == ShardingType::kDataParallel;
}

}  // namespace neuroshard
