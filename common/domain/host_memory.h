// Host memory: what is left of the memory and of the SSDs of hosts for tables that are not in device
// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/domain/memory_use.h"
#include "common/domain/topology.h"

namespace neuroshard {

// Bytes on a host, but for its devices' own memory.
struct HostBytes {
  std::int64_t memory = 0;
  std::int64_t ssd = 0;

  bool operator==(const HostBytes&) const = default;
};
inline HostBytes HostBytesOf(const MemoryUse& use) {
  return {use.host_total_bytes(), use.ssd_total_bytes()};
}

// What all hosts together have for tables: each as much as it has itself, and no more than the limits
// of its ranks add up to. Sums saturate far below the type's end. O(ranks).
HostBytes AllHostBytes(const Topology& topology);

// Of each host's memory and SSDs, which its ranks share, and of each rank's own limits. Every
// question takes O(1). Copies are independent.
class HostMemory {
 public:
  explicit HostMemory(const Topology& topology);

  // Whether hosts have any at all.
  bool present() const { return !host_of_rank_.empty(); }
  // Whether so many more bytes of the rank's tables may be there; always if they are 0.
  bool Fits(int rank, const HostBytes& bytes) const {
    return (bytes.memory <= 0 || bytes.memory <= LeftOf(memory_, rank)) &&
           (bytes.ssd <= 0 || bytes.ssd <= LeftOf(ssd_, rank));
  }
  // The most that may be added for the rank; below 0 where more was added.
  HostBytes Left(int rank) const { return {LeftOf(memory_, rank), LeftOf(ssd_, rank)}; }
  // sign: 1 or -1.
  void Add(int rank, const HostBytes& bytes, int sign = 1) {
    AddTo(memory_, rank, sign * bytes.memory);
    AddTo(ssd_, rank, sign * bytes.ssd);
  }

  int host_of(int rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }

 private:
  // Empty: no host has any.
  struct Pool {
    std::vector<std::int64_t> left_of_host;
    std::vector<std::int64_t> left_of_rank;  // of its own limit
  };

  std::int64_t LeftOf(const Pool& pool, int rank) const {
    if (pool.left_of_host.empty()) return 0;
    return std::min(pool.left_of_rank[static_cast<std::size_t>(rank)],
                    pool.left_of_host[static_cast<std::size_t>(host_of(rank))]);
  }
  void AddTo(Pool& pool, int rank, std::int64_t bytes) {
    if (bytes == 0 || pool.left_of_host.empty()) return;
    pool.left_of_rank[static_cast<std::size_t>(rank)] -= bytes;
    pool.left_of_host[static_cast<std::size_t>(host_of(rank))] -= bytes;
  }

  Pool memory_;
  Pool ssd_;
  std::vector<int> host_of_rank_;
};

}  // namespace neuroshard
