#include "server/cost/comm_bandwidth.h"

namespace neuroshard {

double CommBandwidth(const CommTopology& topology, Collective collective, double ranks,
                     double ranks_per_host) {
  if (collective == Collective::kAllReduce) {
    return topology.inter_host_bytes_per_ms * ranks_per_host;
  }
  return ranks <= ranks_per_host ? topology.intra_host_bytes_per_ms
                                 : topology.inter_host_bytes_per_ms;
}

}  // namespace neuroshard
