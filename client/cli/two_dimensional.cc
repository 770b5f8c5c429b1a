#include "client/cli/two_dimensional.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include "common/base/violations.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_codec.h"
#include "common/codec/topology_codec.h"

namespace neuroshard {
namespace {

std::vector<int> DefaultGroupSizes(const Topology& topology) {
  const int world_size = topology.num_ranks();
  const int host = topology.ranks_per_host();
  std::vector<int> sizes;
  for (int size = host; host > 0 && size < world_size; size += host) {
    if (world_size % size == 0) sizes.push_back(size);
  }
  sizes.push_back(world_size);
  return sizes;
}

// The groups of this size that TorchRec can make, at most one of each kind of ranks, and why there
// is not the other; where there is neither, why.
StatusOr<std::vector<Groups>> GroupsOf(const v1::TwoDimensional& asked, const Topology& topology,
                                       int size) {
  std::vector<GroupRanks> kinds = {GroupRanks::kAlternating, GroupRanks::kContiguous};
  if (asked.has_use_inter_host_allreduce()) {
    kinds = {asked.use_inter_host_allreduce() ? GroupRanks::kContiguous : GroupRanks::kAlternating};
  } else if (size == 1 || size == topology.num_ranks() || topology.hosts().size() == 1) {
    kinds.pop_back();
  }
  std::vector<Groups> groups;
  for (const GroupRanks ranks : kinds) {
    auto of_one = TopologyOfGroup(topology, size, ranks);
    const Status fault = of_one.status();
    groups.push_back(
        {size, ranks, std::move(of_one).value_or(Topology()), topology.num_ranks() / size, fault});
  }
  const auto is_possible = [](const Groups& each) { return each.fault.ok(); };
  if (std::ranges::none_of(groups, is_possible)) return groups.back().fault;
  // Where the size was not asked for, groups that are not possible are left out.
  if (asked.sharding_group_sizes().empty()) {
    std::erase_if(groups, [](const Groups& each) { return !each.fault.ok(); });
  }
  return groups;
}

// What DMPCollection of TorchRec 1.9.2 does otherwise than the row's price says.
void AddTorchRecWarnings(const PlanRequest& request, const Plan& plan, v1::WhatIfRow& row) {
  std::set<Optimizer> optimizers;
  for (const Table& table : request.tables) optimizers.insert(request.optimizer_of(table));
  for (const Optimizer optimizer : optimizers) {
    if (optimizer == Optimizer::kSgd || optimizer == Optimizer::kAdagrad ||
        optimizer == Optimizer::kRowwiseAdagrad) {
      continue;
    }
    row.add_warnings(
        fmt::format("DMPCollection of TorchRec 1.9.2 averages the state of sgd, adagrad and "
                    "rowwise_adagrad; with {} it fails when it is made",
                    ToText(optimizer)));
  }
  if (std::ranges::any_of(plan.tables, [](const TablePlan& table) {
        return table.sharding_type == ShardingType::kDataParallel;
      })) {
    row.add_warnings(
        "DMPCollection reduces gradients of data_parallel tables over the ranks of all groups; "
        "they are priced over those of one");
  }
}

}  // namespace

std::string Groups::name() const {
  return fmt::format("{}groups of {}", ranks == GroupRanks::kContiguous ? "contiguous " : "", size);
}

std::vector<Groups> AskedGroups(const v1::WhatIfTopology& message, const FieldCheck& check) {
  Violations none;
  const Topology topology = DecodeTopology(message.topology(), none);
  const v1::TwoDimensional& asked = message.two_dimensional();
  std::vector<int> sizes(asked.sharding_group_sizes().begin(), asked.sharding_group_sizes().end());
  if (sizes.empty()) sizes = DefaultGroupSizes(topology);
  std::vector<Groups> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string field = fmt::format("two_dimensional.sharding_group_sizes[{}]", i);
    if (!check.InRange(field, std::int64_t{sizes[i]}, 1, topology.num_ranks())) continue;
    if (std::count(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(i), sizes[i]) > 0) {
      check.Fail(field, "must not be twice in the list, got {}", sizes[i]);
      continue;
    }
    auto groups = GroupsOf(asked, topology, sizes[i]);
    if (!groups.ok()) {
      check.Fail(field, Message(groups.status()));
    } else {
      std::move(groups->begin(), groups->end(), std::back_inserter(all));
    }
  }
  return all;
}

v1::TwoDimensionalRow RowOf(const Groups& groups, const v1::TwoDimensional& stated) {
  v1::TwoDimensionalRow row;
  row.set_sharding_group_size(groups.size);
  row.set_use_inter_host_allreduce(groups.ranks == GroupRanks::kContiguous);
  row.set_node_group_size(groups.of_one.ranks_per_host());
  row.set_replicas(groups.replicas);
  row.set_sync_interval_batches(stated.has_sync_interval_batches() ? stated.sync_interval_batches()
                                                                   : 1);
  return row;
}

Status PriceSync(const v1::Topology& topology, const Groups& groups,
                 const v1::ShardPlanRequest& message, const v1::Plan& message_plan,
                 v1::WhatIfRow& row) {
  if (groups.replicas == 1) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const PlanRequest request, DecodePlanRequest(message, RequestLimits()));
  NS_ASSIGN_OR_RETURN(const Plan plan, DecodePlan(message_plan));
  const SyncBytes bytes = SyncBytesOf(request, plan);
  row.mutable_two_dimensional()->set_sync_bytes(bytes.total);
  Violations none;
  row.mutable_two_dimensional()->set_sync_ms(
      SyncMs(DecodeTopology(topology, none), groups.size, groups.ranks, bytes));
  AddTorchRecWarnings(request, plan, row);
  return absl::OkStatus();
}

double SyncMsABatch(const v1::WhatIfRow& row) {
  if (!row.has_two_dimensional()) return 0;
  return row.two_dimensional().sync_ms() / row.two_dimensional().sync_interval_batches();
}

}  // namespace neuroshard
