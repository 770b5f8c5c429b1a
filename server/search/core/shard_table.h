// Table of shards: everything about a shard that does not depend on its rank, computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/evaluate/lay_out.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/core/search_context.h"

namespace neuroshard {

// Shards with blocks of rows in proportion, by place. There are few sizes: one per kind of rank,
// and for each the same plus one row (or bucket).
struct RaggedShards {
  const int* size_of_place;  // [places], of the table
  std::vector<int> ids;      // by size
};

// The shards of a block of columns that move together, as ids of the ShardTable: those in [0,
// full_end) are equal, [full_end, rest_end) have fewer rows, and [rest_end, count) have none. With
// `ragged` both ends are 0 and it has the shards, of which `full` has the most rows.
struct UnitShards {
  int full = 0;
  int rest = 0;
  int empty = 0;
  int full_end = 1;
  int rest_end = 1;
  int count = 1;
  const RaggedShards* ragged = nullptr;  // owned by the ShardTable; equal for equal units

  int at(int i) const {
    if (i < full_end) return full;
    if (i < rest_end) return rest;
    return ragged == nullptr ? empty : At(ragged->ids, ragged->size_of_place[i]);
  }
  // Calls visit(shard, count) for equal shards. Not for units with `ragged`.
  template <typename Visit>
  void ForEachKind(const Visit& visit) const {
    if (full_end > 0) visit(full, full_end);
    if (rest_end > full_end) visit(rest, rest_end - full_end);
    if (count > rest_end) visit(empty, count - rest_end);
  }
  bool operator==(const UnitShards&) const = default;
};

// The distinct shards of a request, of any sharding type, with their representation, loads, memory
// and cost. Ids are 0, 1, ... in order of first appearance and never change. A look-up takes
// constant time; predictions are made in batches. For one thread.
class ShardTable {
 public:
  // Makes a table for shards in device memory with TorchRec's cuts of rows. `context` must outlive
  // the table; its statistics count the predictions.
  explicit ShardTable(SearchContext& context);
  // Makes a table for the rules' residencies and cuts of rows.
  ShardTable(SearchContext& context, const CompiledRules& rules);

  // Returns the shards of `cols` columns of a table that move together, on `ranks` ranks (1 where
  // the type has one shard per place). Their predictions are valid after the next PredictNew.
  UnitShards Shards(int table, ShardingType type, std::int64_t cols, int ranks, int residency = 0);
  // Returns the same shards in another residency.
  UnitShards InResidency(const UnitShards& shards, int residency);
  // Returns the shard of all rows and `cols` columns, as in NeuroShard and table_wise.
  int Whole(int table, std::int64_t cols) {
    return Intern({table, kWhole, 1, RowsOf(table), cols}, 0);
  }

  // Predicts what was added since the last call, in one batch.
  void PredictNew();

  // Representation of a shard, width() entries.
  const float* phi(int id) const { return phi_.data() + static_cast<std::size_t>(id) * width_; }
  const CommLoad& load(int id) const { return At(loads_, id); }
  // Compute of a shard at compute_scale 1, averaged over ranks of several kinds: of a rank that
  // holds only it, or, in a table made for rules, what it adds to a rank that holds an even share
  // of all tables. Where compute adds up these are equal; networks charge a rank once for what its
  // shards share, such as launches, so that many small shards alone cost far more than together.
  float shard_cost_ms(int id) const { return At(shard_cost_ms_, id); }
  // The cost of the shard on `rank`.
  float shard_cost_ms(int id, int rank) const {
    if (kind_cost_ms_.empty()) return shard_cost_ms(id);
    const std::size_t kind =
        static_cast<std::size_t>(context_.model().kind(static_cast<std::size_t>(rank)));
    return kind_cost_ms_[static_cast<std::size_t>(id) * ranks_of_kind_.size() + kind];
  }
  // Bytes of a shard on its device, and in every memory.
  std::int64_t bytes(int id) const { return tier_bytes(id)[MemoryTier::kDevice]; }
  const TierBytes& tier_bytes(int id) const { return At(entries_, id).bytes; }
  std::int64_t cols(int id) const { return shape(At(entries_, id)).cols; }
  std::size_t width() const { return width_; }
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  static constexpr ShardingType kWhole = ShardingType::kTableWise;

  // Shape of a shard, common to all residencies.
  struct Shape {
    int table;
    ShardingType type;
    int row_shards;
    std::int64_t rows;
    std::int64_t cols;

    bool operator==(const Shape&) const = default;
    template <typename H>
    friend H AbslHashValue(H state, const Shape& shape) {
      return H::combine(std::move(state), shape.table, shape.type, shape.row_shards, shape.rows,
                        shape.cols);
    }
  };
  struct Entry {
    int shape;  // in shapes_
    int residency;
    TierBytes bytes;
  };

  std::int64_t RowsOf(int table) const {
    return At(context_.request().tables, table).num_embeddings;
  }
  ShardTable(SearchContext& context, std::vector<Residency> residencies, RowCuts row_cuts);

  // Row counts of a table's row_wise blocks in proportion.
  struct RaggedRows {
    std::vector<std::int64_t> sizes;  // distinct, descending
    std::vector<int> size_of_place;
  };

  const Shape& shape(const Entry& entry) const { return At(shapes_, entry.shape); }
  int Intern(const Shape& shape, int residency) { return InResidency(NumberOf(shape), residency); }
  // Returns the number of a shape in shapes_, adding it if new.
  int NumberOf(const Shape& shape);
  // Returns the id of a shape in a residency.
  int InResidency(int shape, int residency) {
    int& id = ids_[static_cast<std::size_t>(shape) * residencies_.size() +
                   static_cast<std::size_t>(residency)];
    if (id < 0) id = Add(shape, residency);
    return id;
  }
  int Add(int shape, int residency);
  // Returns the shards of row_wise in proportion. O(1), but O(ranks) for the first of a table.
  UnitShards ShardsInProportion(int table, std::int64_t cols, int ranks, int residency);
  ShardLayout LayoutOf(const Shape& shape, int residency) const {
    return LayoutIn(At(residencies_, residency), shape.type, shape.row_shards,
                    row_cuts_.of(shape.table));
  }
  // Returns where quick_numbers_ has a shape with all rows, whole granules of columns and a place
  // of its own, which searches ask for most; null for other shapes.
  int* QuickNumber(const Shape& shape);
  // Fills phi_ and loads_ of what was added since the last call.
  void RepresentNew();
  // Returns shard_cost_ms of the shards of `phi` on ranks of a kind.
  std::vector<float> CostsOf(std::span<const float> phi, int kind);

  SearchContext& context_;
  const std::vector<Residency> residencies_;
  const RowCuts row_cuts_;
  const std::size_t width_;
  std::vector<Shape> shapes_;
  // Shape numbers by table, type and granules; -1: unknown. Local search makes millions of look-ups
  // per second, so these are found by index, all others by hash.
  std::vector<int> quick_numbers_;
  std::vector<std::size_t> quick_begin_;  // by table
  absl::flat_hash_map<Shape, int> numbers_;
  // Ids, [shapes, residencies]; -1: unknown. A shard in another residency is found by index, too.
  std::vector<int> ids_;
  // Rows of tables with rows in proportion; addresses are stable.
  absl::flat_hash_map<int, std::unique_ptr<const RaggedRows>> ragged_rows_;  // by table
  // Ragged shards by the shape with all rows, and residency.
  absl::flat_hash_map<std::pair<Shape, int>, std::unique_ptr<const RaggedShards>> ragged_shards_;
  std::vector<Entry> entries_;
  // Predictions of entries.
  std::vector<float> phi_;  // [entries, width]
  std::vector<CommLoad> loads_;
  // [width], of the tables whole and on devices; empty: costs are those of shards alone.
  std::vector<float> mean_rank_;
  std::vector<float> mean_rank_ms_;  // its compute, by kind
  std::vector<float> shard_cost_ms_;
  std::vector<float> kind_cost_ms_;    // [entries, kinds]; empty where there is one kind
  std::vector<double> ranks_of_kind_;  // by kind
};

}  // namespace neuroshard
