// Traffic over a rank's link to its host for rows that are in host memory or on SSD, to and from the
// SSDs, and lookups by the host.
#pragma once

#include "server/cost/pricing_conditions.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Time of a batch's traffic, in ms.
struct HostTraffic {
  // Rows that the kernel reads and writes in host memory itself; of kOffload all that it does.
  double forward_ms = 0;
  double backward_ms = 0;
  // Rows that a cache fetches and, later, writes back, and all that is read from SSDs and written
  // there: ahead of the batch where the trainer prefetches.
  double cache_ms = 0;

  double total_ms() const { return forward_ms + backward_ms + cache_ms; }
};

// Bytes of a row of `cols` values.
double RowBytes(DataType weight_dtype, double cols);

// All 0 where the rows are in device memory. Otherwise, in rows of w bytes, at
// host_to_device_bytes_per_s in either direction, one after the other:
// - a row that is not in a cache, each distinct id of the batch once a pass: w forward, then w read
//   and written backward. All rows of fused_uvm; of fused_uvm_caching as many as the batch's
//   distinct ids are more than the cache holds.
// - the other rows that a cache misses: w fetched, and w of the rows that make room written back.
// - optimizer state that has a value for each weight is never in the cache (FBGEMM): that of each
//   distinct row is read and written backward.
// Distinct ids and misses are ExpectedCacheHits'. So a larger cache never costs more, at load
// factor 1 only such state is left, and the traffic rises with the bytes of a value. Left out: that
// ranks of a host share its memory, and what the cache's own bookkeeping takes.
//
// Of kKeyValue (FBGEMM's SSDTableBatchedEmbeddingBags), whose rows pass through host memory:
// - over the link as of fused_uvm_caching, without optimizer state, which is on the device.
// - at ssd_bytes_per_s: w read, and w written, of each row that misses a cache of as many rows as
//   those on the device and in host memory hold together: host memory has what the device lets go.
// One after the other. Left out: that ranks of a host share its SSDs, that SSDs read whole blocks,
// and what RocksDB writes more than once.
//
// Of kOffload (distributed-embeddings' offload, DistributedEmbedding under gpu_embedding_size: the
// lookup and its update run on the CPU), with v bytes of vectors:
// - over the link: ids, lengths and weights (InputBytesOf) and v back forward, v backward.
// - in the host's memory, at host_memory_bytes_per_s over its ranks, which are taken to use it all
//   at once: forward a row for each id, and v written; backward v read, and each distinct row and
//   its state read and written.
// One after the other. Nothing is known of how much of its memory's speed a CPU reaches on random
// rows, nor of the work of merging gradients, so this is the least that it takes.
HostTraffic HostTrafficOf(const PricingConditions& conditions, const ShardFeatures& shard);

}  // namespace neuroshard
