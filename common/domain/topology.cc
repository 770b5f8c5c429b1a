#include "common/domain/topology.h"

#include <map>

namespace neuroshard {

int Topology::ranks_per_host() const {
  std::map<int, int> ranks_on_host;
  for (const Device& device : devices) ++ranks_on_host[device.host];
  if (ranks_on_host.empty()) return 0;
  const int first = ranks_on_host.begin()->second;
  for (const auto& [host, ranks] : ranks_on_host) {
    if (ranks != first) return 0;
  }
  return first;
}

}  // namespace neuroshard
