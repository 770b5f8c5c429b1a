// Which sharding types each table may use.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "common/domain/plan_request.h"
#include "common/domain/vocabulary.h"
#include "server/cost/cost_model.h"

namespace neuroshard {

class TableTypes {
 public:
  // The rules that name the table say; else the request's constraints; else the model.
  TableTypes(const PlanRequest& request, const CostModelInfo& info);

  bool Allows(int table, ShardingType type) const {
    return allowed_[static_cast<std::size_t>(table)][static_cast<std::size_t>(type)];
  }
  // For a table in `pieces` column blocks that are on a rank each. None: not allowed.
  std::optional<ShardingType> OnRanks(int table, int pieces) const;

 private:
  std::vector<std::array<bool, kWords<ShardingType>.size()>> allowed_;
};

}  // namespace neuroshard
