// Selection of the measurements that one model can learn from: all made under the same conditions,
// as far as its features do not tell them apart.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_cost.h"
#include "common/store/profile_store.h"
#include "server/pretrain/data/training_config.h"

namespace neuroshard {

// The values of each condition over what a record touches, its shards or its ranks. "" is a value
// that is not stated.
using RecordConditions = std::map<std::string, std::set<std::string>>;

// Returns batch_size, optimizer, weight_dtype, pooling_mode, compute_kernel, weighted, device and
// compute backend.
RecordConditions RecordConditionsOf(const ComputeRecord& record);
// Returns batch_size, element_bytes, cadence, device, collective backend and network.
RecordConditions RecordConditionsOf(const CommRecord& record);

// Conditions that every selected record has in common. Empty or 0: not stated (imported data).
struct MeasuredConditions : MeasuredWith {
  std::int64_t batch_size = 0;
  std::string weight_dtype;
  std::string optimizer;

  bool operator==(const MeasuredConditions&) const = default;
};

struct SelectedRecords {
  std::vector<ComputeRecord> compute;
  std::vector<CommRecord> comm;        // collectives, some with casts
  std::vector<CommRecord> input_dist;  // distributions of ids
  MeasuredConditions conditions;
  std::int64_t filtered_out = 0;
  // Warnings about filtered collectives of another cadence, and about networks: ranks of one group
  // on different ones, samples of one fabric over different ones.
  std::vector<std::string> warnings;
};

// Conditions that a model's features tell apart.
enum class ConditionSupport {
  // None: batch size, dtype, optimizer, pooling mode, weighting and devices must agree, tables are
  // in device memory, and distributions of ids and exchanges with casts are left out.
  kOne,
  kAny  // all but devices and backends, which must agree
};

// Returns what the filter keeps. FAILED_PRECONDITION when it still mixes conditions that must
// agree, listing each with its values, their counts and how to choose; when tables are in host
// memory and the features do not have it; when a cost is negative or not finite, naming the
// samples; and when nothing is left, saying what there was.
StatusOr<SelectedRecords> SelectRecords(std::vector<ComputeRecord> compute,
                                        std::vector<CommRecord> comm, const RecordFilter& filter,
                                        ConditionSupport support = ConditionSupport::kOne);

}  // namespace neuroshard
