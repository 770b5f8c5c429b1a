#include "client/cli/what_if_row.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include "client/cli/command_options.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report.h"
#include "common/base/violations.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_codec.h"
#include "common/codec/topology_codec.h"
#include "common/devices/device_table.h"

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

std::int64_t GlobalBatchSize(const v1::WhatIfTopology& topology,
                             const v1::ShardPlanRequest& request) {
  if (topology.has_global_batch_size()) return topology.global_batch_size();
  if (topology.has_batch_size_per_device()) {
    return topology.batch_size_per_device() * CountDevices(topology.topology());
  }
  return GlobalBatchSizeOf(request);
}

std::int64_t CountHosts(const v1::Topology& topology) {
  std::int64_t hosts = 0;
  for (const v1::HostGroup& group : topology.hosts()) {
    hosts += group.has_count() ? group.count() : 1;
  }
  return hosts;
}

// The request of the row; with groups, that of one of them.
v1::ShardPlanRequest RequestFor(const PlannedRow& asked, v1::ShardPlanRequest request) {
  const std::int64_t batch = GlobalBatchSize(*asked.topology, request);
  const std::int64_t replicas = asked.groups ? asked.groups->replicas : 1;
  SetGlobalBatchSize((batch + replicas - 1) / replicas, request);
  *request.mutable_topology() = asked.topology->topology();
  if (asked.groups) {
    // Only what cutting changes is set: what the request leaves open stays open.
    const v1::Topology cut = EncodeTopology(asked.groups->of_one);
    *request.mutable_topology()->mutable_hosts() = cut.hosts();
    request.mutable_topology()->clear_pod_size();
    if (cut.has_pod_size()) request.mutable_topology()->set_pod_size(cut.pod_size());
  }
  if (asked.topology->has_cost_model()) {
    *request.mutable_cost_model() = asked.topology->cost_model();
  }
  // Models of devices that other topologies have. What is no device is for the planner to refuse.
  const auto has = [&](const PublishedDevice* device) {
    const auto& hosts = request.topology().hosts();
    return std::ranges::any_of(
        hosts, [&](const v1::HostGroup& host) { return FindDevice(host.device()) == device; });
  };
  EraseIf(*request.mutable_device_cost_models(), [&](const v1::DeviceCostModel& of) {
    const PublishedDevice* device = FindDevice(of.device());
    return device != nullptr && !has(device);
  });
  return request;
}

// TorchRec's planner has one rate for all bytes of an exchange (server/cost/analytic,
// CommBandwidth).
void AddHostsWarning(const v1::Topology& topology, v1::WhatIfRow& row) {
  const std::int64_t pod_size = topology.has_pod_size() ? topology.pod_size() : 1;
  if (CountHosts(topology) <= pod_size || row.cost_model().name() != "analytic") return;
  row.add_warnings(
      "on more than one host, TorchRec's formulas send all that ranks exchange with all others at "
      "the rate between hosts, also what stays on a host: a second host may look useless here and "
      "help a trainer");
}

// The arguments of DMPCollection, and how often groups average.
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

// Sets what averaging costs with this plan in row.two_dimensional, and warns of what DMPCollection
// does otherwise than the row's price says. Nothing where there is one group.
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

double SyncMsABatch(const v1::WhatIfRow& row) {
  if (!row.has_two_dimensional()) return 0;
  return row.two_dimensional().sync_ms() / row.two_dimensional().sync_interval_batches();
}

void PrepareRow(const v1::ShardPlanRequest& request, PlannedRow& planned) {
  const v1::WhatIfTopology& topology = *planned.topology;
  const std::optional<Groups>& groups = planned.groups;
  v1::WhatIfRow& row = planned.row;
  row.set_name(groups ? fmt::format("{} in {}", topology.name(), groups->name()) : topology.name());
  row.set_devices(static_cast<std::int32_t>(CountDevices(topology.topology())));
  row.set_hosts(static_cast<std::int32_t>(CountHosts(topology.topology())));
  row.set_global_batch_size(GlobalBatchSize(topology, request));
  if (groups && !groups->fault.ok()) {
    planned.failure = groups->fault;
    row.set_failure(Message(groups->fault));
    return;
  }
  planned.request = RequestFor(planned, request);
  if (!groups) return;
  *row.mutable_two_dimensional() = RowOf(*groups, topology.two_dimensional());
  if (row.global_batch_size() % groups->replicas != 0) {
    row.add_warnings(fmt::format(
        "the batch of {} does not divide into {} groups: plans are for the larger share",
        row.global_batch_size(), groups->replicas));
  }
}

void PlanRow(const PlannerClient& planner, PlannedRow& planned) {
  if (!planned.failure.ok()) return;
  const v1::WhatIfTopology& topology = *planned.topology;
  auto answer = planner.ShardPlan(planned.request);
  planned.failure = answer.status();
  if (answer.ok() && planned.groups) {
    planned.failure = PriceSync(topology.topology(), *planned.groups, planned.request,
                                answer->plan(), planned.row);
  }
  if (!planned.failure.ok()) {
    planned.row.set_failure(MessageWithoutServer(planned.failure));
    return;
  }
  planned.answer = *std::move(answer);
  v1::WhatIfRow& row = planned.row;
  TakeCost(planned.answer.cost(), topology, row);
  if (planned.answer.has_lower_bound()) *row.mutable_lower_bound() = planned.answer.lower_bound();
  *row.mutable_price_basis() = planned.answer.price_basis();
  *row.mutable_cost_model() = planned.answer.cost_model();
  row.mutable_warnings()->MergeFrom(planned.answer.warnings());
  AddHostsWarning(planned.request.topology(), row);
}

void TakeCost(const v1::PlanCost& cost, const v1::WhatIfTopology& topology, v1::WhatIfRow& row) {
  row.set_embedding_cost_ms(cost.embedding_cost_ms());
  const double cost_ms = row.embedding_cost_ms() + SyncMsABatch(row);
  if (cost_ms > 0) {
    row.set_samples_per_second(1e3 * static_cast<double>(row.global_batch_size()) / cost_ms);
  }
  const auto& ranks = cost.ranks();
  const auto fullest = std::ranges::max_element(ranks, [](const auto& a, const auto& b) {
    return UsedShare(a.memory()) < UsedShare(b.memory());
  });
  if (fullest != ranks.end()) {
    row.set_fullest_rank(fullest->rank());
    *row.mutable_fullest_memory() = fullest->memory();
  }
  if (topology.has_price_per_device_hour() && row.samples_per_second() > 0) {
    row.set_price_per_million_samples(topology.price_per_device_hour() * row.devices() / 3600 *
                                      1e6 / row.samples_per_second());
  }
}

}  // namespace neuroshard
