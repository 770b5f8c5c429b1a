#include "kernels/cuda/testing/sequential_gpu.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/base/bytes.h"
#include "kernels/cuda/table_blocks.h"

namespace neuroshard::cuda {
namespace {

constexpr std::int64_t kAlignmentBytes = 256;

template <typename Table, typename Body>
void ForEachThread(const Batched<Table>& batch, const Body& body) {
  for (std::int64_t block = 0; block < batch.blocks; ++block) {
    const TableBlock found = FindTable(batch.first_block, batch.num_tables, block);
    for (int thread = 0; thread < kThreads; ++thread) {
      body(batch.tables[found.table], found.block, thread);
    }
  }
}

// The one lane of a row.
struct SingleLane {
  int lane() const { return 0; }
  int lanes() const { return 1; }
  float Sum(float value) const { return value; }
  std::uint64_t Min(std::uint64_t value) const { return value; }
  void Agree() const {}
};

template <typename Occurrence, bool kCached>
void UpdateChunkOnHost(const UpdateTable& table, UpdateStep step, std::int64_t chunk) {
  constexpr int kWidest = kWarp * kMaxVectorsPerLane;
  const auto update = [&]<int kVectors, bool kMoments>() {
    UpdateChunk<kVectors, Occurrence, kMoments, kCached>(table, step, chunk, SingleLane{});
  };
  if (HasMoments(step.optimizer)) {
    if (table.vectors <= 16) return update.template operator()<16, true>();
    return update.template operator()<kWidest, true>();
  }
  // Up to two vectors: as on a device, with several entries in flight and rows loaded ahead.
  if (table.vectors <= 1) return update.template operator()<1, false>();
  if (table.vectors <= 2) return update.template operator()<2, false>();
  if (table.vectors <= 16) return update.template operator()<16, false>();
  if (table.vectors <= 80) return update.template operator()<80, false>();
  update.template operator()<kWidest, false>();
}

template <bool kCached>
void UpdateChunkOfKind(EntryKind kind, const UpdateTable& table, UpdateStep step,
                       std::int64_t chunk) {
  switch (kind) {
    case EntryKind::kPlain:
      return UpdateChunkOnHost<PlainOccurrence, kCached>(table, step, chunk);
    case EntryKind::kScaled:
      return UpdateChunkOnHost<ScaledOccurrence, kCached>(table, step, chunk);
    case EntryKind::kPartial:
      return UpdateChunkOnHost<void, kCached>(table, step, chunk);
  }
}

template <typename Occurrence>
void SortOnHost(const SortLaunch& launch) {
  std::vector<std::int64_t> order(launch.entries);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const std::uint32_t mask =
      launch.key_bits == 32 ? ~0u : (std::uint32_t{1} << launch.key_bits) - 1;
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return (launch.keys[a] & mask) < (launch.keys[b] & mask);
  });
  const auto* from = static_cast<const Occurrence*>(launch.occurrences);
  auto* to = static_cast<Occurrence*>(launch.sorted_occurrences);
  for (std::int64_t i = 0; i < launch.entries; ++i) {
    launch.sorted_keys[i] = launch.keys[order[i]];
    to[i] = from[order[i]];
  }
}

void Run(const FillLaunch& launch) { ForEachThread(launch, FillBlockOfAnyType); }

void Run(const LookupLaunch& launch) { ForEachThread(launch, GenerateLookups); }

void Run(const PoolLaunch& launch) {
  ForEachThread(launch, launch.cached ? PoolBagsOfAnyType<true> : PoolBagsOfAnyType<false>);
}

void Run(const GatherLaunch& launch) {
  ForEachThread(launch, launch.cached ? GatherRowsOfAnyType<true> : GatherRowsOfAnyType<false>);
}

void Run(const SegmentLaunch& launch) { ForEachThread(launch, SumSegments); }

void Run(const KeyLaunch& launch) {
  ForEachThread(launch, [&](const KeyTable& table, std::int64_t block, int thread) {
    if (launch.scaled) {
      MakeKeys(table, launch.keys, static_cast<ScaledOccurrence*>(launch.occurrences), block,
               thread, BagOf);
    } else {
      MakeKeys(table, launch.keys, static_cast<PlainOccurrence*>(launch.occurrences), block, thread,
               BagOf);
    }
  });
}

void Run(const SortLaunch& launch) {
  if (launch.scaled) {
    SortOnHost<ScaledOccurrence>(launch);
  } else {
    SortOnHost<PlainOccurrence>(launch);
  }
}

void Run(const UpdateLaunch& launch) {
  ForEachThread(launch, [&](const UpdateTable& table, std::int64_t block, int thread) {
    const int lanes = UpdateLanes(table.vectors);
    if (thread % lanes != 0) return;  // the first lane does the work of its group
    const std::int64_t chunk = block * (kThreads / lanes) + thread / lanes;
    if (chunk >= Chunks(table.entries)) return;
    const auto update = launch.cached ? UpdateChunkOfKind<true> : UpdateChunkOfKind<false>;
    update(launch.entries, table, launch.step, chunk);
  });
}

void Run(const CacheKeyLaunch& launch) {
  ForEachThread(launch, [&](const CacheKeyTable& table, std::int64_t block, int thread) {
    MakeCacheKeysOfBlock(table, launch.row_bits, launch.keys, block, thread);
  });
}

void Run(const DistinctLaunch& launch) {
  std::uint64_t* const end = launch.keys + launch.entries;
  const std::uint64_t mask =
      launch.key_bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << launch.key_bits) - 1;
  std::stable_sort(launch.keys, end,
                   [mask](std::uint64_t a, std::uint64_t b) { return (a & mask) < (b & mask); });
  std::copy(launch.keys, end, launch.sorted_keys);
  *launch.num_kept = std::unique(launch.keys, end) - launch.keys;
}

void Run(const CacheUse& use) {
  for (std::int64_t chunk = 0; chunk < use.blocks * kCacheChunksPerBlock; ++chunk) {
    UseSets(use, chunk, SingleLane{});
  }
}

}  // namespace

StatusOr<std::byte*> SequentialGpu::TakeBlock(std::int64_t bytes, std::int64_t& available) {
  if (bytes > available) {
    return ResourceExhausted("{} do not fit the {} that are available", FormatBytes(bytes),
                             FormatBytes(available));
  }
  available -= bytes;
  Block block{std::make_unique<std::byte[]>(bytes + kAlignmentBytes), bytes};
  std::memset(block.memory.get(), 0xff, bytes + kAlignmentBytes);
  const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  std::byte* aligned =
      block.memory.get() + (kAlignmentBytes - address % kAlignmentBytes) % kAlignmentBytes;
  blocks_.emplace(aligned, std::move(block));
  return aligned;
}

void SequentialGpu::GiveBlock(std::byte* memory, std::int64_t& available) {
  available += blocks_.at(memory).bytes;
  blocks_.erase(memory);
}

StatusOr<std::byte*> SequentialGpu::Allocate(std::int64_t bytes) {
  return TakeBlock(bytes, available_bytes_);
}

void SequentialGpu::Free(std::byte* memory) { GiveBlock(memory, available_bytes_); }

StatusOr<std::byte*> SequentialGpu::AllocateOnHost(std::int64_t bytes) {
  return TakeBlock(bytes, available_host_bytes_);
}

void SequentialGpu::FreeOnHost(std::byte* memory) { GiveBlock(memory, available_host_bytes_); }

Status SequentialGpu::CopyIn(void* device, const void* host, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
  return absl::OkStatus();
}

Status SequentialGpu::CopyOut(void* host, const void* device, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
  return absl::OkStatus();
}

void SequentialGpu::Launch(const GpuLaunch& launch) {
  if (std::holds_alternative<UpdateLaunch>(launch)) ++updates_;
  std::visit(
      [](const auto& one) {
        if (!one.empty()) Run(one);
      },
      launch);
}

}  // namespace neuroshard::cuda
