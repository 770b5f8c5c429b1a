#include "common/domain/sharding_groups.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "common/domain/fabric_collectives.h"
#include "common/domain/memory_use.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

int PodOf(const Topology& topology, int rank) {
  return topology.devices[static_cast<std::size_t>(rank)].host / topology.pod_size;
}

// Hosts of each pod that the group is on; 0: pods have different numbers of them.
int PodSizeOfGroup(const std::vector<int>& pod_of_host) {
  int pod_size = 0;
  for (auto first = pod_of_host.begin(); first != pod_of_host.end();) {
    const auto last =
        std::find_if(first, pod_of_host.end(), [&](int pod) { return pod != *first; });
    const int hosts = static_cast<int>(last - first);
    if (pod_size != 0 && hosts != pod_size) return 0;
    pod_size = hosts;
    first = last;
  }
  return pod_size;
}

// `cut`: without devices.
StatusOr<Topology> TopologyOfOneGroup(const Topology& topology, int group_size, GroupRanks ranks,
                                      int group, const std::vector<HostRanks>& hosts,
                                      Topology cut) {
  std::vector<int> pod_of_host;
  std::vector<int> host_of_host;  // in `topology`
  std::vector<int> ranks_of_host;
  for (int place = 0; place < group_size; ++place) {
    const int rank = RankOfGroup(topology.num_ranks(), group_size, ranks, group, place);
    Device device = topology.devices[static_cast<std::size_t>(rank)];
    if (host_of_host.empty() || host_of_host.back() != device.host) {
      host_of_host.push_back(device.host);
      pod_of_host.push_back(PodOf(topology, rank));
      ranks_of_host.push_back(0);
    }
    ++ranks_of_host.back();
    device.host = static_cast<int>(host_of_host.size()) - 1;
    cut.devices.push_back(std::move(device));
  }
  cut.pod_size = PodSizeOfGroup(pod_of_host);
  if (cut.pod_size == 0) {
    return FailedPrecondition(
        "pods of {} hosts do not tile a group of {} ranks, which has different numbers of hosts in "
        "them: state a pod_size that does, or other groups",
        topology.pod_size, group_size);
  }
  for (std::size_t h = 0; h < host_of_host.size(); ++h) {
    const std::size_t host = static_cast<std::size_t>(host_of_host[h]);
    for (const SharedMemory& memory : kSharedMemories) {
      const std::vector<std::int64_t>& of_hosts = topology.*memory.of_hosts;
      if (of_hosts.empty()) continue;
      (cut.*memory.of_hosts).push_back(of_hosts[host] / hosts[host].count * ranks_of_host[h]);
    }
  }
  return cut;
}

}  // namespace

int RankOfGroup(int world_size, int group_size, GroupRanks ranks, int group, int place) {
  return ranks == GroupRanks::kContiguous ? group * group_size + place
                                          : world_size / group_size * place + group;
}

StatusOr<Topology> TopologyOfGroup(const Topology& topology, int group_size, GroupRanks ranks) {
  assert(group_size >= 1);
  const int world_size = topology.num_ranks();
  if (world_size % group_size != 0) {
    return FailedPrecondition("a group's size must divide the {} ranks, got {}", world_size,
                              group_size);
  }
  const std::vector<HostRanks> hosts = topology.hosts();
  Topology none;  // no copy of the devices for each group
  none.bandwidths = topology.bandwidths;
  none.fabric = topology.fabric;
  none.compute_device = topology.compute_device;
  NS_ASSIGN_OR_RETURN(Topology first,
                      TopologyOfOneGroup(topology, group_size, ranks, 0, hosts, none));
  for (int group = 1; group < world_size / group_size; ++group) {
    NS_ASSIGN_OR_RETURN(const Topology other,
                        TopologyOfOneGroup(topology, group_size, ranks, group, hosts, none));
    if (other != first) {
      return FailedPrecondition(
          "groups of {} ranks differ in hosts or devices, and one plan is for all of them",
          group_size);
    }
  }
  return first;
}

SyncBytes SyncBytesOf(const PlanRequest& request, const Plan& plan) {
  PlanRequest counted;  // the rule kFull
  counted.optimizer = request.optimizer;
  std::vector<SyncBytes> of_rank(static_cast<std::size_t>(request.topology.num_ranks()));
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const TablePlan& table = plan.tables[t];
    const Table& of = request.tables[static_cast<std::size_t>(table_of[t])];
    if (table.sharding_type == ShardingType::kDataParallel) continue;
    for (const Shard& shard : table.shards) {
      const MemoryUse use = ShardMemory(counted, of, shard.rows, shard.cols);
      const std::int64_t bytes = use.row_bytes();
      SyncBytes& sum = of_rank[static_cast<std::size_t>(shard.rank)];
      sum.total += bytes;
      if (TierOf(table.compute_kernel) != MemoryTier::kDevice) sum.off_device += bytes;
    }
  }
  SyncBytes most;
  for (const SyncBytes& sum : of_rank) {
    most.total = std::max(most.total, sum.total);
    most.off_device = std::max(most.off_device, sum.off_device);
  }
  return most;
}

double SyncMs(const Topology& topology, int group_size, GroupRanks ranks, const SyncBytes& bytes) {
  const int world_size = topology.num_ranks();
  if (group_size == world_size) return 0;
  const Bandwidths& bandwidths = topology.bandwidths;
  const Fabric fabric = topology.fabric.value_or(
      Fabric{"", {0, bandwidths.intra_host_bytes_per_s}, {0, bandwidths.inter_host_bytes_per_s}});
  double slowest = 0;
  for (int place = 0; place < group_size; ++place) {
    std::vector<HostRanks> hosts;  // pods: their links are as fast as a host's
    int pod = -1;
    for (int group = 0; group < world_size / group_size; ++group) {
      const int rank = RankOfGroup(world_size, group_size, ranks, group, place);
      if (hosts.empty() || PodOf(topology, rank) != pod) hosts.push_back({group, 0});
      ++hosts.back().count;
      pod = PodOf(topology, rank);
    }
    const FabricCollectives replicas(fabric, hosts);
    slowest = std::max(slowest, replicas.AllReduce(static_cast<double>(bytes.total)));
  }
  constexpr double kMsPerSecond = 1000;
  return slowest + 2 * kMsPerSecond * static_cast<double>(bytes.off_device) /
                       bandwidths.host_to_device_bytes_per_s;
}

}  // namespace neuroshard
