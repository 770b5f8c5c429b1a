// Text of an answer besides the cost of its plan: bound, migration, explanations.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <string>

#include "client/cli/text_table.h"
#include "common/domain/plan_cost.h"
#include "neuroshard/v1/cost.pb.h"
#include "neuroshard/v1/plan.pb.h"
#include "neuroshard/v1/report.pb.h"

namespace neuroshard {

// ", batch 65536 (4096 a rank)"; empty where the planner does not say it.
std::string BatchText(std::int64_t global_batch_size, int num_ranks);

// "sharding: 10 table_wise, 2 column_wise (5 shards)\n": tables of each type, and their shards
// where those are more. Where tables are in host memory or on SSD, by kernel behind it, with
// names where they are few: "; in host memory: 12 fused_uvm_caching, 2 fused_uvm (a, b)".
std::string ShardingLine(const v1::Plan& plan);

// "host 0: 1.5 GiB of 4 GiB host memory\n" for every host whose memory holds tables, and so for SSDs.
std::string HostMemoryLines(const v1::PlanCost& cost);

// "measured with " before it, and the line's end; empty where nothing is stated.
std::string MeasuredWithLine(const MeasuredWith& with);

// What the prices of an answer rest on; of a planner that does not say it yet, what was timed.
// With the line's end; empty where neither is stated.
std::string BasisLine(const v1::PriceBasis& basis, const v1::MeasuredWith& measured_with);

// The bound, its kind, and how much more the plan costs; with the line's end. kWide: also what it
// bounds.
std::string BoundLine(const v1::LowerBound& bound, Detail detail);

// What the plan costs by the formulas, where another model priced it. Empty where that was measured
// on CPUs: unless a request says otherwise, the formulas are of a GPU's bandwidths.
std::string AnalyticLine(double cost_ms, const v1::MeasuredWith& measured_with);

// How many bytes move, and of which tables: the ones that move most are named.
std::string MigrationLine(const v1::MigrationReport& report);

// A line for every alternative of every table; below those that are not possible, by table and
// reason, once what is not possible for all tables, and how many of the plan's `num_tables` are not
// explained. Changes are against `plan_cost_ms`.
std::string ExplanationTable(
    const google::protobuf::RepeatedPtrField<v1::TableExplanation>& explanations, int num_tables,
    double plan_cost_ms, const TextStyle& style);

}  // namespace neuroshard
