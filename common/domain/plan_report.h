// Reports beside a plan's cost: what prices rest on, lower bound, explanations, migration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/plan_cost.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// kPublished: formulas over published figures. kMixed: measured, and formulas for what was not, which
// `differences` name.
enum class BasisKind { kMeasured, kPublished, kMixed };

NS_WORDS(BasisKind, {kMeasured, "measured"}, {kPublished, "published"}, {kMixed, "mixed"});

// Stages of a rank's cost, each with fields of its own in RankCost.
enum class CostStage { kCompute, kForwardComm, kBackwardComm, kInputDist };

NS_WORDS(CostStage, {kCompute, "compute"}, {kForwardComm, "forward_comm"},
         {kBackwardComm, "backward_comm"}, {kInputDist, "input_dist"});

// What one stage's costs rest on, of all ranks.
struct StagePriceBasis {
  CostStage stage = CostStage::kCompute;
  BasisKind kind = BasisKind::kMeasured;

  bool operator==(const StagePriceBasis&) const = default;
};

// What priced the compute of the ranks of one kind of devices.
struct DevicePriceBasis {
  std::string device;  // Device::name
  int num_ranks = 0;
  std::string model;
  int version = 0;
  MeasuredWith measured_with = {};
  BasisKind kind = BasisKind::kMeasured;
  std::string digest = {};  // CostModelRef's

  bool operator==(const DevicePriceBasis&) const = default;
};

// What the prices of an answer rest on, and how far the request is from that.
struct PriceBasis {
  BasisKind kind = BasisKind::kMeasured;  // that of all stages, kMixed where they differ
  std::string text;                       // one line with all of it
  std::string measured_until;             // ISO 8601; empty: not known, or nothing was measured
  std::vector<std::string> differences;   // empty: none that are known
  // Every kind, in the order of ranks, where several models priced compute; else empty.
  std::vector<DevicePriceBasis> devices = {};
  // Those that the request has, in the order of CostStage: communication and distribution of ids of
  // several ranks, the latter where it is priced.
  std::vector<StagePriceBasis> stages = {};
  std::string collective_cadence = {};  // a word of Cadence; empty: no measured collectives in it

  bool operator==(const PriceBasis&) const = default;
};

// kCertified: no legal plan of `scope` costs less under this cost model (up to float rounding).
// kReference: what a perfectly even spread would cost; plans below it may exist.
enum class BoundKind { kCertified, kReference };

NS_WORDS(BoundKind, {kCertified, "certified"}, {kReference, "reference"});

// A demand of a request: where it is, and what it demands.
struct CostLimitRule {
  std::string path;
  std::string text;

  bool operator==(const CostLimitRule&) const = default;
};

// What keeps a lower bound as high as it is.
struct CostLimit {
  // The table whose smallest largest shard has no room below the bound, as in TableExplanation;
  // empty: no single table.
  std::string table;
  std::optional<int> rank;    // of the plan, the costliest one with the table
  double shard_ms = 0;        // what that shard costs at least
  double every_rank_ms = 0;   // what every rank holds beside it
  int every_rank_tables = 0;  // of so many tables
  // A smallest set of demands without which the bound is lower; empty: there is none.
  std::vector<CostLimitRule> rules;
  std::optional<double> bound_without_ms;  // where there are rules
  std::optional<double> cost_without_ms;   // of a plan without them, where one was searched for

  bool operator==(const CostLimit&) const = default;
};

// The least that a plan can cost (kCertified), or what an even spread would cost (kReference), in
// ms.
struct LowerBound {
  double cost_ms = 0;
  BoundKind kind = BoundKind::kReference;
  std::string scope;  // for a person: which plans, e.g. "all plans of the allowed sharding types"
  // Whether it is of PlanCost::mean_of_max_ms, not of embedding_cost_ms.
  bool of_mean_of_max = false;
  // None: the work of all tables together, which no demand makes larger.
  std::optional<CostLimit> limit = {};

  // What of a plan's cost it bounds.
  double BoundedMs(const PlanCost& cost) const {
    return of_mean_of_max ? cost.mean_of_max_ms.value_or(0) : cost.embedding_cost_ms;
  }

  bool operator==(const LowerBound&) const = default;
};

// The cost of the plan with one table laid out otherwise, at the best place found for it while
// everything else stays.
struct TableAlternative {
  ShardingType sharding_type = ShardingType::kTableWise;
  int num_shards = 1;
  std::optional<double> embedding_cost_ms;  // none: not possible, for this `reason`
  std::string reason;
  // Part of the cost that is of exchanges which the plan has not; none: not priced.
  std::optional<double> more_exchanges_ms = {};

  bool operator==(const TableAlternative&) const = default;
};

// The sharding type of a table beside the other types.
struct TableExplanation {
  std::string table;
  ShardingType sharding_type = ShardingType::kTableWise;
  std::vector<TableAlternative> alternatives;  // possible ones first, cheapest first

  bool operator==(const TableExplanation&) const = default;
};

// A table of which weights leave their rank, and how many bytes.
struct MovedTable {
  std::string table;
  std::int64_t bytes = 0;

  bool operator==(const MovedTable&) const = default;
};

// Against Migration::previous.
struct MigrationReport {
  std::int64_t moved_bytes = 0;
  std::vector<MovedTable> tables;  // in plan order, those with bytes > 0

  bool operator==(const MigrationReport&) const = default;
};

// Tables whose weights are in host memory while dense layers run, and bytes of the rank with the most
// of each kind: stashed, on its device while they run, and there with nothing stashed.
struct StashReport {
  std::vector<std::string> tables;  // in the request's order
  std::int64_t max_stashed_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t peak_bytes_without = 0;

  bool operator==(const StashReport&) const = default;
};

}  // namespace neuroshard
