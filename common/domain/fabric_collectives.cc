#include "common/domain/fabric_collectives.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace neuroshard {
namespace {

// ceil(log2 count)
double TreeSteps(int count) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(count - 1)));
}

}  // namespace

FabricCollectives::FabricCollectives(const Fabric& fabric, std::vector<HostRanks> hosts)
    : hosts_(std::move(hosts)),
      intra_latency_ms_(fabric.intra_host.latency_us / 1e3),
      inter_latency_ms_(fabric.inter_host.latency_us / 1e3),
      intra_bytes_per_ms_(fabric.intra_host.bytes_per_s / 1e3),
      inter_bytes_per_ms_(fabric.inter_host.bytes_per_s / 1e3) {
  assert(!hosts_.empty());
  smallest_host_ = hosts_.front().count;
  for (const HostRanks& host : hosts_) {
    assert(host.count >= 1);
    num_ranks_ += host.count;
    largest_host_ = std::max(largest_host_, host.count);
    smallest_host_ = std::min(smallest_host_, host.count);
  }
}

double FabricCollectives::IntraMs(double bytes, int ranks) const {
  return ranks < 2 ? 0 : TreeSteps(ranks) * intra_latency_ms_ + bytes / intra_bytes_per_ms_;
}

double FabricCollectives::InterMs(double bytes) const {
  const int hosts = static_cast<int>(hosts_.size());
  return hosts < 2 ? 0 : TreeSteps(hosts) * inter_latency_ms_ + bytes / inter_bytes_per_ms_;
}

void FabricCollectives::AllToAll(std::span<const double> bytes_per_peer,
                                 std::span<double> ms) const {
  assert(bytes_per_peer.size() == static_cast<std::size_t>(num_ranks_));
  assert(ms.size() == bytes_per_peer.size());
  double all = 0;
  for (const double bytes : bytes_per_peer) all += bytes;
  double through_fullest_adapter = 0;
  for (const HostRanks& host : hosts_) {
    const auto own = bytes_per_peer.subspan(host.first, host.count);
    double of_host = 0;
    double most = 0;
    for (const double bytes : own) {
      of_host += bytes;
      most = std::max(most, bytes);
    }
    through_fullest_adapter =
        std::max({through_fullest_adapter, (num_ranks_ - host.count) * most, all - of_host});
    const double within = IntraMs((host.count - 1) * most, host.count);
    std::fill_n(ms.begin() + host.first, host.count, within);
  }
  const double between = InterMs(through_fullest_adapter);
  for (double& each : ms) each = std::max(each, between);
}

double FabricCollectives::ReduceScatter(double bytes) const {
  const double sent = bytes * (num_ranks_ - 1) / num_ranks_;
  return std::max(IntraMs(sent, largest_host_), InterMs(sent / smallest_host_));
}

double FabricCollectives::HostReduceScatter(double bytes) const {
  const double hosts = static_cast<double>(hosts_.size());
  return IntraMs(bytes * (largest_host_ - 1) / largest_host_, largest_host_) +
         InterMs(bytes / largest_host_ * (hosts - 1) / hosts);
}

void AddWaiting(std::span<const float> start_offsets_ms, std::span<double> cost_ms) {
  assert(start_offsets_ms.size() == cost_ms.size());
  if (cost_ms.empty()) return;
  const double last = *std::max_element(start_offsets_ms.begin(), start_offsets_ms.end());
  for (std::size_t r = 0; r < cost_ms.size(); ++r) cost_ms[r] += last - start_offsets_ms[r];
}

}  // namespace neuroshard
