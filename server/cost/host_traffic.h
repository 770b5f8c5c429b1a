// Traffic for rows in host memory or on SSD: over the link between a rank and its host, to and from
// the SSDs, and of lookups by the host.
#pragma once

#include "server/cost/pricing_conditions.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Time of a batch's traffic, in ms.
struct HostTraffic {
  // Access to rows in host memory by the kernel itself; all of the traffic of kOffload.
  double forward_ms = 0;
  double backward_ms = 0;
  // Rows that a cache fetches and writes back, and all reads and writes of SSDs. It runs ahead of
  // the batch where the trainer prefetches.
  double cache_ms = 0;

  double total_ms() const { return forward_ms + backward_ms + cache_ms; }
};

// Returns the bytes of a row of `cols` values.
double RowBytes(DataType weight_dtype, double cols);

// Returns the traffic of a shard's batch, 0 where the rows are in device memory. All terms are
// added, as if nothing overlapped. Rows have w bytes; distinct ids and misses are
// ExpectedCacheHits'.
//
// fused_uvm and fused_uvm_caching, at host_to_device_bytes_per_s in either direction:
// - A row outside of the cache moves once per pass and distinct id: w forward, then w read and
//   written backward. These are all rows of fused_uvm; of fused_uvm_caching, the distinct ids of
//   the batch beyond what the cache holds.
// - Another row that misses the cache is fetched, and the row that makes room is written back.
// - Optimizer state with a value per weight is never cached (FBGEMM): backward reads and writes it
//   for each distinct row.
// So a larger cache never costs more, only such state is left at load factor 1, and the traffic
// rises with the bytes of a value. The ranks of a host are taken not to share its memory; the
// bookkeeping of the cache is left out.
//
// kDynamicCaching moves rows as fused_uvm_caching does, with their state, which the device holds as
// well. Of kDynamicHybrid the rows in host memory move as outside of a cache, and are as hot as the
// others: which they are is up to a hash.
//
// kKeyValue (FBGEMM's SSDTableBatchedEmbeddingBags) passes rows through host memory:
// - Over the link they move as under fused_uvm_caching, without optimizer state, which is on the
//   device.
// - At ssd_bytes_per_s, w is read and written for each row that misses a cache of the rows that
//   device and host memory hold together, since host memory keeps what the device evicts.
// Sharing of SSDs, reads of whole blocks and RocksDB's write amplification are left out.
//
// kOffload (distributed-embeddings under gpu_embedding_size) looks up and updates on the CPU; with
// v bytes of vectors:
// - Over the link go ids, lengths and weights (InputBytesOf) and v forward, and v backward.
// - In host memory, at host_memory_bytes_per_s divided among its ranks, forward reads a row per id
//   and writes v; backward reads v, and reads and writes each distinct row and its state.
// This is a lower limit: a CPU's speed on random rows and the merging of gradients are not modeled.
HostTraffic HostTrafficOf(const PricingConditions& conditions, const ShardFeatures& shard);

}  // namespace neuroshard
