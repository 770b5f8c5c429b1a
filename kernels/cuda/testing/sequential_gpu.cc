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
  void Agree() const {}
};

template <typename Occurrence>
void UpdateChunkOnHost(const UpdateTable& table, UpdateStep step, std::int64_t chunk) {
  constexpr int kWidest = kWarp * kMaxVectorsPerLane;
  if (HasMoments(step.optimizer)) {
    if (table.vectors <= 16) {
      return UpdateChunk<16, Occurrence, true>(table, step, chunk, SingleLane{});
    }
    return UpdateChunk<kWidest, Occurrence, true>(table, step, chunk, SingleLane{});
  }
  // Up to two vectors: as on a device, with several entries in flight and rows loaded ahead.
  if (table.vectors <= 1) return UpdateChunk<1, Occurrence>(table, step, chunk, SingleLane{});
  if (table.vectors <= 2) return UpdateChunk<2, Occurrence>(table, step, chunk, SingleLane{});
  if (table.vectors <= 16) return UpdateChunk<16, Occurrence>(table, step, chunk, SingleLane{});
  if (table.vectors <= 80) return UpdateChunk<80, Occurrence>(table, step, chunk, SingleLane{});
  UpdateChunk<kWidest, Occurrence>(table, step, chunk, SingleLane{});
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

}  // namespace

StatusOr<std::byte*> SequentialGpu::Allocate(std::int64_t bytes) {
  if (bytes > available_bytes_) {
    return ResourceExhausted("{} do not fit the {} that are available", FormatBytes(bytes),
                             FormatBytes(available_bytes_));
  }
  available_bytes_ -= bytes;
  Block block{std::make_unique<std::byte[]>(bytes + kAlignmentBytes), bytes};
  std::memset(block.memory.get(), 0xff, bytes + kAlignmentBytes);
  const auto address = reinterpret_cast<std::uintptr_t>(block.memory.get());
  std::byte* aligned =
      block.memory.get() + (kAlignmentBytes - address % kAlignmentBytes) % kAlignmentBytes;
  blocks_.emplace(aligned, std::move(block));
  return aligned;
}

void SequentialGpu::Free(std::byte* memory) {
  available_bytes_ += blocks_.at(memory).bytes;
  blocks_.erase(memory);
}

Status SequentialGpu::CopyIn(void* device, const void* host, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
  return absl::OkStatus();
}

Status SequentialGpu::CopyOut(void* host, const void* device, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
  return absl::OkStatus();
}

void SequentialGpu::Fill(const Batched<FillTable>& batch) {
  ForEachThread(batch, FillBlockOfAnyType);
}

void SequentialGpu::Generate(const Batched<LookupTable>& batch) {
  ForEachThread(batch, GenerateLookups);
}

void SequentialGpu::Pool(const Batched<PoolTable>& batch) {
  ForEachThread(batch, PoolBagsOfAnyType);
}

void SequentialGpu::Gather(const Batched<GatherTable>& batch) {
  ForEachThread(batch, GatherRowsOfAnyType);
}

void SequentialGpu::AddSegments(const Batched<SegmentTable>& batch) {
  ForEachThread(batch, SumSegments);
}

void SequentialGpu::MakeRowKeys(const Batched<KeyTable>& batch, std::uint32_t* keys,
                                void* occurrences, bool scaled) {
  ForEachThread(batch, [&](const KeyTable& table, std::int64_t block, int thread) {
    if (scaled) {
      MakeKeys(table, keys, static_cast<ScaledOccurrence*>(occurrences), block, thread);
    } else {
      MakeKeys(table, keys, static_cast<PlainOccurrence*>(occurrences), block, thread);
    }
  });
}

StatusOr<std::int64_t> SequentialGpu::SortScratchBytes(std::int64_t, bool, int) { return 1; }

void SequentialGpu::Sort(const SortLaunch& launch) {
  if (launch.scaled) {
    SortOnHost<ScaledOccurrence>(launch);
  } else {
    SortOnHost<PlainOccurrence>(launch);
  }
}

void SequentialGpu::Update(const UpdateLaunch& launch) {
  ++updates_;
  ForEachThread(launch.batch, [&](const UpdateTable& table, std::int64_t block, int thread) {
    const int lanes = UpdateLanes(table.vectors);
    if (thread % lanes != 0) return;  // the first lane does the work of its group
    const std::int64_t chunk = block * (kThreads / lanes) + thread / lanes;
    if (chunk >= Chunks(table.entries)) return;
    switch (launch.entries) {
      case EntryKind::kPlain:
        return UpdateChunkOnHost<PlainOccurrence>(table, launch.step, chunk);
      case EntryKind::kScaled:
        return UpdateChunkOnHost<ScaledOccurrence>(table, launch.step, chunk);
      case EntryKind::kPartial:
        return UpdateChunkOnHost<void>(table, launch.step, chunk);
    }
  });
}

}  // namespace neuroshard::cuda
