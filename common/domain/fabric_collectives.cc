#include "common/domain/fabric_collectives.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace neuroshard {
namespace {

// ceil(log2 count)
double TreeSteps(int count) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(count - 1)));
}

}  // namespace

FabricCollectives::FabricCollectives(const Fabric& fabric, std::span<const HostRanks> hosts,
                                     int pod_size)
    : num_hosts_(static_cast<int>(hosts.size())),
      pod_size_(pod_size),
      intra_latency_ms_(fabric.intra_host.latency_us / 1e3),
      inter_latency_ms_(fabric.inter_host.latency_us / 1e3),
      intra_bytes_per_ms_(fabric.intra_host.bytes_per_s / 1e3),
      inter_bytes_per_ms_(fabric.inter_host.bytes_per_s / 1e3) {
  assert(!hosts.empty());
  assert(num_hosts_ % pod_size == 0);
  for (int host = 0; host < num_hosts_; ++host) {
    const HostRanks& ranks = hosts[static_cast<std::size_t>(host)];
    assert(ranks.count >= 1);
    if (host % pod_size == 0) pods_.push_back({ranks.first, 0});
    pods_.back().count += ranks.count;
    num_ranks_ += ranks.count;
    largest_host_ = std::max(largest_host_, ranks.count);
  }
  smallest_pod_ = num_ranks_;
  for (const HostRanks& pod : pods_) {
    largest_pod_ = std::max(largest_pod_, pod.count);
    smallest_pod_ = std::min(smallest_pod_, pod.count);
  }
}

double FabricCollectives::IntraMs(double bytes, int ranks) const {
  return ranks < 2 ? 0 : TreeSteps(ranks) * intra_latency_ms_ + bytes / intra_bytes_per_ms_;
}

double FabricCollectives::InterMs(double bytes) const {
  const int pods = static_cast<int>(pods_.size());
  return pods < 2 ? 0 : TreeSteps(pods) * inter_latency_ms_ + bytes / inter_bytes_per_ms_;
}

void FabricCollectives::AllToAll(std::span<const double> bytes_per_peer,
                                 std::span<double> ms) const {
  assert(bytes_per_peer.size() == static_cast<std::size_t>(num_ranks_));
  assert(ms.size() == bytes_per_peer.size());
  double all = 0;
  for (const double bytes : bytes_per_peer) all += bytes;
  double through_fullest_adapter = 0;
  for (const HostRanks& pod : pods_) {
    const auto own = bytes_per_peer.subspan(pod.first, pod.count);
    double of_pod = 0;
    double most = 0;
    for (const double bytes : own) {
      of_pod += bytes;
      most = std::max(most, bytes);
    }
    through_fullest_adapter =
        std::max({through_fullest_adapter, (num_ranks_ - pod.count) * most, all - of_pod});
    const double within = IntraMs((pod.count - 1) * most, pod.count);
    std::fill_n(ms.begin() + pod.first, pod.count, within);
  }
  const double between = InterMs(through_fullest_adapter);
  for (double& each : ms) each = std::max(each, between);
}

double FabricCollectives::RingMs(double bytes, int ranks, int most, int least) const {
  const double sent = bytes * (ranks - 1) / ranks;
  return std::max(IntraMs(sent, most), InterMs(sent / least));
}

double FabricCollectives::ReduceScatter(double bytes) const {
  return RingMs(bytes, num_ranks_, largest_pod_, smallest_pod_);
}

double FabricCollectives::HostReduceScatter(double bytes) const {
  return IntraMs(bytes * (largest_host_ - 1) / largest_host_, largest_host_) +
         RingMs(bytes / largest_host_, num_hosts_, pod_size_, pod_size_);
}

void AddWaiting(std::span<const float> start_offsets_ms, std::span<double> cost_ms) {
  assert(start_offsets_ms.size() == cost_ms.size());
  if (cost_ms.empty()) return;
  const double last = *std::ranges::max_element(start_offsets_ms);
  for (std::size_t r = 0; r < cost_ms.size(); ++r) cost_ms[r] += last - start_offsets_ms[r];
}

}  // namespace neuroshard
