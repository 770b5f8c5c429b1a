// Everything about a shard that does not depend on where it goes, computed once per distinct shard
// of any sharding type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/search/refine/unit.h"
#include "server/search/search_context.h"

namespace neuroshard {

class ShardBook {
 public:
  // `context` must outlive the book; its statistics count the predictions.
  explicit ShardBook(SearchContext& context);

  // The shards of `cols` columns of a table that go to one place together, on `ranks` ranks (1
  // where the type has one shard a place). Their prices are known after the next PredictNew.
  UnitShards Shards(int table, ShardingType type, std::int64_t cols, int ranks);

  // Represents what was added since the last call, in one batch.
  void PredictNew();

  const float* phi(int id) const { return phi_.data() + static_cast<std::size_t>(id) * width_; }
  const CommLoad& load(int id) const { return loads_[static_cast<std::size_t>(id)]; }
  std::int64_t bytes(int id) const { return entries_[static_cast<std::size_t>(id)].bytes; }
  // Compute cost of a rank that holds this shard alone.
  float single_cost_ms(int id) const { return single_cost_ms_[static_cast<std::size_t>(id)]; }
  std::size_t width() const { return width_; }
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  struct Key {
    int table;
    ShardingType type;
    int row_shards;
    std::int64_t rows;
    std::int64_t cols;
    bool operator==(const Key&) const = default;
  };
  static std::size_t HashOf(const Key& key);
  struct Entry {
    Key key;
    std::int64_t bytes;
  };

  int Intern(const Key& key);
  int Add(const Key& key);
  // Where the id of a key is, or belongs.
  int& Probe(const Key& key);
  // Of a shard with all rows, whole granules of columns and a place of its own, which searches ask
  // for most; otherwise null.
  int* QuickId(const Key& key);

  SearchContext& context_;
  const PricingConditions conditions_;
  const std::size_t width_;
  std::vector<int> ids_;  // open addressing, a power of two, at most half full; -1: free
  std::size_t num_ids_ = 0;
  // By table, type and granules; -1: unknown.
  std::vector<int> quick_ids_;
  std::vector<std::size_t> quick_begin_;  // by table
  std::vector<Entry> entries_;
  std::vector<float> phi_;  // [entries, width]
  std::vector<CommLoad> loads_;
  std::vector<float> single_cost_ms_;
};

}  // namespace neuroshard
