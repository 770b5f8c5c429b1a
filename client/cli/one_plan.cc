#include "client/cli/one_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "common/codec/topology_codec.h"

namespace neuroshard {
namespace {

constexpr int kMaxTopologiesOfOne = 32;  // each plan is priced on each
constexpr double kNotLegal = std::numeric_limits<double>::infinity();

// What a plan costs on a topology, or why it has no price there.
struct Priced {
  double cost_ms = kNotLegal;
  Status status;
};

Priced PriceOn(const PlannerClient& planner, const PlannedRow& on, const v1::Plan& plan) {
  const auto answer = planner.EvaluatePlan(on.request, plan);
  if (!answer.ok()) return {kNotLegal, answer.status()};
  if (!answer->legal() || !answer->has_cost()) return {};
  return {answer->cost().embedding_cost_ms(), {}};
}

// A plan, and the row whose topology it was made for.
struct Candidate {
  int row = 0;
  v1::Plan plan;
};

// How many times the own plan's cost a cost is; 1 where both are 0.
double Ratio(double cost_ms, double own_ms) {
  if (own_ms > 0) return cost_ms / own_ms;
  return cost_ms > 0 ? kNotLegal : 1;
}

// First the topologies' own plans. Then, for each topology with a device that has more memory than
// the smallest device of all, a plan for no more than that: own plans fill what they have, which
// fits nowhere else.
StatusOr<std::vector<Candidate>> Candidates(const PlannerClient& planner,
                                            std::span<const PlannedRow> planned) {
  std::vector<Candidate> candidates;
  std::int64_t least_bytes = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> most_bytes;
  for (const PlannedRow& own : planned) {
    Violations none;  // the planner has planned for it
    const Topology topology = DecodeTopology(own.request.topology(), none);
    const auto [least, most] = std::ranges::minmax(topology.devices, {}, &Device::memory_bytes);
    least_bytes = std::min(least_bytes, least.memory_bytes);
    most_bytes.push_back(most.memory_bytes);
    candidates.push_back({static_cast<int>(candidates.size()), own.answer.plan()});
  }
  std::vector<int> larger;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (most_bytes[i] > least_bytes) larger.push_back(static_cast<int>(i));
  }
  std::vector<StatusOr<v1::ShardPlanResponse>> answers(larger.size());
  RunSideBySide(larger.size(), [&](std::size_t i) {
    v1::ShardPlanRequest request = planned[static_cast<std::size_t>(larger[i])].request;
    for (v1::HostGroup& hosts : *request.mutable_topology()->mutable_hosts()) {
      hosts.clear_device_memory_bytes();
      hosts.set_memory_bytes(least_bytes);
    }
    answers[i] = planner.ShardPlan(request);
  });
  for (std::size_t i = 0; i < larger.size(); ++i) {
    if (absl::IsUnavailable(answers[i].status())) return answers[i].status();
    if (answers[i].ok()) candidates.push_back({larger[i], answers[i]->plan()});
  }
  return candidates;
}

}  // namespace

void CheckOnePlan(const v1::WhatIf& what_if, Violations& violations) {
  if (!what_if.one_plan()) return;
  if (what_if.topologies_size() > kMaxTopologiesOfOne) {
    violations.Add("topologies", "must have at most {} entries with one_plan, got {}",
                   kMaxTopologiesOfOne, what_if.topologies_size());
  }
  for (int i = 0; i < what_if.topologies_size(); ++i) {
    const v1::WhatIfTopology& topology = what_if.topologies(i);
    const std::string path = fmt::format("topologies[{}]", i);
    if (topology.has_two_dimensional()) {
      violations.Add(path + ".two_dimensional", "must not be given beside one_plan");
    }
    const std::int64_t devices = CountDevices(topology.topology());
    const std::int64_t first = CountDevices(what_if.topologies(0).topology());
    if (devices != first) {
      violations.Add(path + ".topology",
                     "has {} devices, topologies[0] has {}: one plan is for equally many", devices,
                     first);
    }
  }
}

Status AddOnePlan(const PlannerClient& planner, std::span<const PlannedRow> planned,
                  v1::WhatIfAnswer& answer) {
  v1::OnePlan& one = *answer.mutable_one_plan();
  auto& rows = *answer.mutable_rows();
  const auto failed =
      std::ranges::find_if(rows, [](const v1::WhatIfRow& row) { return !row.failure().empty(); });
  if (failed != rows.end()) {
    one.set_failure(fmt::format("{} has no plan", failed->name()));
    return absl::OkStatus();
  }
  NS_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(planner, planned));
  const std::size_t count = planned.size();
  std::vector<Priced> priced(candidates.size() * count);  // [candidate][topology]
  RunSideBySide(priced.size(), [&](std::size_t i) {
    const std::size_t a = i / count, b = i % count;
    priced[i] = a == b ? Priced{rows[static_cast<int>(a)].embedding_cost_ms(), {}}
                       : PriceOn(planner, planned[b], candidates[a].plan);
  });
  double least = kNotLegal;
  std::size_t best = 0;
  Status unpriced;
  for (std::size_t a = 0; a < candidates.size(); ++a) {
    double worst = 0;
    for (std::size_t b = 0; b < count; ++b) {
      const Priced& here = priced[a * count + b];
      if (absl::IsUnavailable(here.status)) return here.status;
      unpriced.Update(here.status);
      worst = std::max(worst, Ratio(here.cost_ms, priced[b * count + b].cost_ms));
    }
    if (worst >= least) continue;
    least = worst;
    best = a;
  }
  if (least == kNotLegal) {
    one.set_failure("no plan that was made for one of the topologies is legal for all others");
    if (!unpriced.ok()) one.mutable_failure()->append("; " + Message(unpriced));
    return absl::OkStatus();
  }
  one.set_made_for(rows[candidates[best].row].name());
  one.set_worst_ratio(least);
  *one.mutable_plan() = candidates[best].plan;
  for (std::size_t b = 0; b < count; ++b) {
    rows[static_cast<int>(b)].set_one_plan_cost_ms(priced[best * count + b].cost_ms);
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
