// TorchRec's bandwidths of collectives: one link a collective, chosen by whether it stays on a
// host.
#pragma once

#include "common/domain/vocabulary.h"

namespace neuroshard {

// The ranks of a plan and their links. TorchRec knows hosts of one size L; where hosts differ, L is
// the largest host's.
struct CommTopology {
  double num_ranks = 1;       // W
  double ranks_per_host = 1;  // L
  double intra_host_bytes_per_ms = 0;
  double inter_host_bytes_per_ms = 0;
  double hosts_per_group = 1;  // TorchRec's pod_size: hosts that share the rows of a table
};

// Returns bytes per ms of a collective over `ranks` ranks, `ranks_per_host` on a host
// (BasicCommsBandwidths.get_bw of TorchRec 1.9.2). An all-reduce always crosses hosts, on every
// rank's link, even on a single host; other collectives use the links inside the host when there is
// one.
inline double CommBandwidth(const CommTopology& topology, Collective collective, double ranks,
                            double ranks_per_host) {
  if (collective == Collective::kAllReduce) {
    return topology.inter_host_bytes_per_ms * ranks_per_host;
  }
  return ranks <= ranks_per_host ? topology.intra_host_bytes_per_ms
                                 : topology.inter_host_bytes_per_ms;
}

}  // namespace neuroshard
