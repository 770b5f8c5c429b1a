#include "client/cli/what_if_row.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "client/cli/command_options.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report.h"
#include "common/codec/topology_codec.h"
#include "common/devices/device_table.h"

namespace neuroshard {
namespace {

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

}  // namespace

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
    planned.row.set_failure(ReasonOf(planned.failure));
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
