// Time of collectives on a fabric by the alpha-beta model: steps x latency + bytes / bandwidth.
// Pure formulas over published figures; how they were chosen is in the README of configs/fabrics.
#pragma once

#include <span>
#include <vector>

#include "common/domain/topology.h"

namespace neuroshard {

// Times of collectives over all ranks of `hosts`, in ms. Hosts of a pod have a host's links between
// them; only the rows of one table stay on one host (HostReduceScatter), as TorchRec's do unless it
// is told to take pods for hosts. What all formulas share:
// - a rank sends and receives at full speed at the same time, and so do its two links, so the
//   slower of what goes through either counts;
// - a link's latency is paid ceil(log2 m) times in a collective of m ranks (or hosts): a tree;
// - a collective in which nothing is sent costs its latency; one rank alone costs 0;
// - times rise with every rank's bytes, and permuting ranks within hosts, or whole hosts,
//   permutes them.
class FabricCollectives {
 public:
  // hosts: in the order of ranks, at least one, each with at least one rank. pod_size: hosts of a
  // pod, consecutive ones; divides their number.
  FabricCollectives(const Fabric& fabric, std::span<const HostRanks> hosts, int pod_size = 1);

  int num_ranks() const { return num_ranks_; }

  // bytes_per_peer[r]: what rank r exchanges with each other rank: sends (forward, pooled vectors
  // of its tables) or receives (backward, their gradients); transposed traffic takes as long. All
  // wait for the rank with the most, since all exchange with it: on a pod its time is the pod's;
  // between pods the time of the busiest adapter is everyone's. One entry a rank in both.
  void AllToAll(std::span<const double> bytes_per_peer, std::span<double> ms) const;

  // Rings over all ranks that enter and leave a pod through all of its adapters, so that the
  // smallest pod is the bottleneck. `bytes`: every rank's buffer before reduce-scatter, after
  // all-gather, before and after all-reduce.
  double ReduceScatter(double bytes) const;
  double AllGather(double bytes) const { return ReduceScatter(bytes); }
  double AllReduce(double bytes) const { return 2 * ReduceScatter(bytes); }

  // Rows of a table over the ranks of one host of the largest size: a reduce-scatter there, then
  // a reduce-scatter of the sums over the ranks in the same place on other hosts. One after the
  // other.
  double HostReduceScatter(double bytes) const;

 private:
  double IntraMs(double bytes, int ranks) const;  // 0 for one rank
  double InterMs(double bytes) const;             // 0 for one pod
  // A ring over `ranks` ranks, at most `most` of them and at least `least` on each pod.
  double RingMs(double bytes, int ranks, int most, int least) const;

  std::vector<HostRanks> pods_;
  int num_ranks_ = 0;
  int num_hosts_ = 0;
  int pod_size_ = 1;
  int largest_host_ = 0;
  int largest_pod_ = 0;
  int smallest_pod_ = 0;
  double intra_latency_ms_, inter_latency_ms_;
  double intra_bytes_per_ms_, inter_bytes_per_ms_;
};

// A collective starts when the last rank enters: each rank's cost also has its wait for that rank.
// So cost = own completion - own start.
void AddWaiting(std::span<const float> start_offsets_ms, std::span<double> cost_ms);

}  // namespace neuroshard
