// Everything about a shard that does not depend on where it goes, computed once per distinct
// (table, cols).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/search/search_context.h"

namespace neuroshard {

class ShardCatalog {
 public:
  // `context` must outlive the catalog; its statistics count the single-table costs.
  explicit ShardCatalog(SearchContext& context);

  // The id of all rows and `cols` columns of a table: 0, 1, ... in order of first appearance.
  int Intern(int table, std::int64_t cols);

  // Predicts representation and cost of what was interned since the last call, in one batch. Only
  // then are phi(), load() and single_cost_ms() known.
  void PredictNew();

  std::int64_t cols(int id) const { return entries_[static_cast<std::size_t>(id)].cols; }
  std::int64_t bytes(int id) const { return entries_[static_cast<std::size_t>(id)].bytes; }
  // Predicted compute cost of a rank that holds only this shard.
  float single_cost_ms(int id) const {
    return entries_[static_cast<std::size_t>(id)].single_cost_ms;
  }
  const CommLoad& load(int id) const { return loads_[static_cast<std::size_t>(id)]; }
  const float* phi(int id) const { return phi_.data() + static_cast<std::size_t>(id) * width_; }
  std::size_t width() const { return width_; }

 private:
  struct Entry {
    int table;
    std::int64_t cols;
    std::int64_t bytes;
    float single_cost_ms;
  };

  SearchContext& context_;
  const PricingConditions conditions_;
  const std::size_t width_;
  std::vector<Entry> entries_;
  std::size_t predicted_ = 0;                                      // entries before this one
  std::vector<float> phi_;                                         // [entries, width]
  std::vector<CommLoad> loads_;                                    // [entries]
  std::vector<std::unordered_map<std::int64_t, int>> id_of_cols_;  // per table
};

}  // namespace neuroshard
