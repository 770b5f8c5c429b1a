// Features of the universal communication network, for any number of ranks in any host layout.
// Training and serving share them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/domain/topology.h"

namespace neuroshard {

// Kinds of collectives. Their order is that of the one-hot features and of tensors with an entry
// for each kind.
enum class CollectiveKind {
  kAllToAllForward,
  kAllToAllBackward,
  kReduceScatter,
  kAllGather,
  kAllReduce
};
inline constexpr std::size_t kCollectiveKinds = 5;
// Returns "all_to_all_forward", "all_to_all_backward", "reduce_scatter", "all_gather" or
// "all_reduce".
std::string_view CollectiveName(CollectiveKind kind);
std::optional<CollectiveKind> CollectiveFromName(std::string_view name);

// Features in a row: kMonotoneCommFeatures that rise with the bytes of every rank, then those of
// start offsets, then the others.
inline constexpr std::size_t kCommFeatures = 22;
inline constexpr std::size_t kMonotoneCommFeatures = 9;
using CommFeatureRow = std::array<double, kCommFeatures>;

std::span<const std::string_view> CommFeatureNames();

// Layout of ranks on hosts, with the logarithms that features need. Immutable; thread-safe.
class CommLayout {
 public:
  // `hosts` are in the order of ranks; empty: all on one host. There is at least one rank.
  CommLayout(int num_ranks, std::vector<HostRanks> hosts);

  std::size_t num_ranks() const { return num_ranks_; }
  const std::vector<HostRanks>& hosts() const { return hosts_; }
  double log_ranks() const { return log_ranks_; }
  double log_hosts() const { return log_hosts_; }
  // ln of the number of ranks on hosts()[host].
  double log_local_ranks(std::size_t host) const { return log_local_ranks_[host]; }

 private:
  std::vector<HostRanks> hosts_;
  std::size_t num_ranks_;
  double log_ranks_;
  double log_hosts_;
  std::vector<double> log_local_ranks_;
};

// Fills one row per rank for one collective over n >= 2 ranks. v_s are the bytes of rank s
// (all-to-all: columns x batch x element bytes; others: its buffer), o_s its start offset in ms
// (`start_offsets_ms` empty: all 0), L_r the ranks on r's host, h the number of hosts.
//   rising, ln(1024 + x) of x in bytes:
//     own_intra v_r (L_r - 1) / n, own_inter v_r (n - L_r) / n, peer_intra and peer_inter: the sum
//     of v_s / n over the other ranks of r's host, and over those of other hosts; host_inter: the
//     sum of v_s on r's host times (n - L_r) / n; mean, rms, max of v_s times (n - 1) / n;
//     max_host_inter: the largest host_inter
//   offsets, ln(1 + 10 x) of x in ms:
//     wait max o - o_r, mean_wait (its mean), own_offset o_r - min o, max_offset max o - min o,
//     last_alone max o - second largest o
//   others: log_ranks ln n, log_local_ranks ln L_r, log_hosts ln h, collective_<name> 1 or 0
// `wait_ms`, with an entry per rank, receives max o - o_r. O(n).
void CommFeaturesOf(const CommLayout& layout, CollectiveKind kind, std::span<const double> bytes,
                    std::span<const double> start_offsets_ms, std::span<CommFeatureRow> rows,
                    std::span<double> wait_ms);

}  // namespace neuroshard
