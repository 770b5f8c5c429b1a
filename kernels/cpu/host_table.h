// One table in host memory, a tier behind the device's own that costs more to reach: fused_uvm and
// fused_uvm_caching on a CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/api/embedding_op.h"
#include "kernels/cpu/row_cache.h"

namespace neuroshard {

// Weights, and optimizer state with a value for each of them, in host memory; with
// fused_uvm_caching also slots of a RowCache in the device's. Lookups and updates see one array of
// rows, the slots and then the table: `places` says where each id's row is (without slots: row id).
// A row in a slot is newer than that of the table, and goes back when it makes room.
//
// The slots end where the table begins, at the beginning of a page of an unlinked temporary file
// (memfd). The file is in memory and never on a disk; what makes it the colder tier is that it is
// mapped in pages of 4 KiB, and that Forget takes them out of the page table: the next access to
// each is a fault that the kernel answers, as for managed memory of a GPU (a read maps the 15 pages
// around it too). Readable past both ends as MemoryArena's blocks are. Not thread-safe.
class HostTable {
 public:
  // What it takes of the device's memory and of the host's; clamped far beyond any machine's.
  static std::int64_t DeviceBytes(const EmbeddingTableSpec& table);
  static std::int64_t HostBytes(const EmbeddingTableSpec& table, const OptimizerStateShape& state);

  // Weights are for the caller to set, state is 0. UNAVAILABLE when the system refuses the memory,
  // which the caller has checked to be there.
  static StatusOr<std::unique_ptr<HostTable>> Create(const EmbeddingTableSpec& table,
                                                     const OptimizerStateShape& state);
  HostTable(HostTable&&) = delete;

  // The table's weights, without what slots hold. Padded as blocks of a MemoryArena are.
  std::span<float> table_weights() const { return weights_; }
  // Empty where a row has no or one value.
  std::span<float> momentum1() const { return momentum1_; }
  std::span<float> momentum2() const { return momentum2_; }

  // Row p of it is that of place p.
  float* rows() const { return rows_; }
  std::int64_t num_slots() const { return cache_ ? cache_->slots() : 0; }
  const std::int64_t* slot_rows() const { return cache_ ? cache_->slot_rows().data() : nullptr; }

  // Makes room for places, none of which are known. With a cache only (num_slots() > 0).
  void NewInputs(std::size_t num_ids);
  bool fetched() const { return fetched_; }
  // Fetches what the cache misses of ids, writing back what makes room, and sets places. Scratch as
  // of RowCache::Use.
  void Fetch(std::span<const std::int64_t> ids, std::span<std::uint64_t> scratch,
             std::span<std::uint64_t> spare);
  // One an id, after Fetch.
  std::span<const std::uint64_t> places() const { return places_; }

  // Takes the pages of the file out of the page table; their content stays.
  void Forget();
  CacheCounts counts() const { return cache_ ? cache_->counts() : CacheCounts(); }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };
  using Mapping = std::unique_ptr<std::byte[], Unmap>;

  HostTable(const EmbeddingTableSpec& table, const OptimizerStateShape& state, Mapping memory,
            std::size_t near_bytes);

  const std::int64_t num_rows_;
  const std::int64_t cols_;
  const Mapping memory_;            // pages of the slots, then those of the file
  const std::span<std::byte> far_;  // the file
  std::optional<RowCache> cache_;
  std::span<float> weights_, momentum1_, momentum2_;
  float* rows_ = nullptr;
  std::vector<std::uint64_t> places_;
  bool fetched_ = false;
};

}  // namespace neuroshard
