#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "server/search/hugectr/hugectr_strategy.h"

namespace neuroshard {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// MLPerf's DLRM-DCNv2: 26 tables of 128 columns, 8 bytes an element with Adagrad.
constexpr std::pair<double, double> kRowsAndHotness[] = {
    {40000000, 3}, {39060, 2},     {17295, 1},      {7424, 2},      {20265, 6},   {3, 1},
    {7122, 1},     {1543, 1},      {63, 1},         {40000000, 7},  {3067956, 3}, {405282, 8},
    {10, 1},       {2209, 6},      {11938, 9},      {155, 5},       {4, 1},       {976, 1},
    {14, 1},       {40000000, 12}, {40000000, 100}, {40000000, 27}, {590152, 10}, {12973, 3},
    {108, 1},      {36, 1}};

HugeCtrProblem MlPerf(int buckets, double capacity_gb, const HugeCtrOptions& options) {
  HugeCtrProblem problem;
  for (const auto& [rows, hotness] : kRowsAndHotness) {
    problem.tables.push_back({hotness, rows * 128 * 8 * 1e-9});
  }
  problem.bucket_capacity.assign(static_cast<std::size_t>(buckets), capacity_gb);
  const auto tables = problem.tables;
  problem.shard_memory = [tables](int table, int holders) {
    return tables[static_cast<std::size_t>(table)].gigabytes / holders;
  };
  problem.replica_memory = [tables](int table) {
    return tables[static_cast<std::size_t>(table)].gigabytes;
  };
  problem.options = options;
  return problem;
}

struct Outcome {
  std::vector<HugeCtrCandidate> candidates;
  HugeCtrCandidate best;
};

Outcome AllCandidates(const HugeCtrProblem& problem) {
  Outcome outcome;
  ForEachHugeCtrCandidate(
      problem, [] { return false; },
      [&](HugeCtrCandidate candidate) { outcome.candidates.push_back(std::move(candidate)); });
  if (outcome.candidates.empty()) return outcome;
  outcome.best =
      *std::min_element(outcome.candidates.begin(), outcome.candidates.end(),
                        [](const auto& a, const auto& b) { return a.max_cost < b.max_cost; });
  return outcome;
}

// Tables that the greedy candidates replicate.
std::vector<int> Replicated(const Outcome& outcome) {
  std::vector<int> tables;
  const auto& holders = outcome.candidates.back().holders;
  for (std::size_t t = 0; t < holders.size(); ++t) {
    if (holders[t].empty()) tables.push_back(static_cast<int>(t));
  }
  return tables;
}

std::vector<std::vector<int>> TablesOfBuckets(const HugeCtrCandidate& candidate, int buckets) {
  std::vector<std::vector<int>> tables(static_cast<std::size_t>(buckets));
  for (std::size_t t = 0; t < candidate.holders.size(); ++t) {
    for (const int bucket : candidate.holders[t]) {
      tables[static_cast<std::size_t>(bucket)].push_back(static_cast<int>(t));
    }
  }
  return tables;
}

TEST(HugeCtrPlannerTest, OneNodeOfMlPerfIsPlannedAsThePeerPlansIt) {
  const Outcome outcome =
      AllCandidates(MlPerf(8, 60, {.bandwidth_ratio = 7, .data_parallel_threshold_gb = 0.008}));
  EXPECT_THAT(Replicated(outcome), ElementsAre(3, 5, 6, 7, 8, 12, 13, 15, 16, 17, 18, 24, 25));
  EXPECT_EQ(outcome.candidates.size(), 21U);
  EXPECT_EQ(outcome.candidates[0].max_cost, 72.25);
  EXPECT_EQ(outcome.candidates[1].max_cost, 101.75);
  EXPECT_EQ(outcome.best.max_cost, 29.5);
  // The peer has 23 with 9 and 10 with 4: 10 and 23 are equally hot, and it does not fix their
  // order.
  EXPECT_THAT(TablesOfBuckets(outcome.best, 8),
              ElementsAre(ElementsAre(20, 21), ElementsAre(20, 21), ElementsAre(19, 20),
                          ElementsAre(2, 20, 22), ElementsAre(1, 14, 20), ElementsAre(0, 11, 20),
                          ElementsAre(9, 10, 20), ElementsAre(4, 20, 23)));
}

TEST(HugeCtrPlannerTest, TheDefaultRatioCutsTheHottestTableFourWays) {
  const Outcome outcome = AllCandidates(MlPerf(8, 60, {}));
  EXPECT_THAT(Replicated(outcome), IsEmpty());
  EXPECT_EQ(outcome.candidates.size(), 21U);
  EXPECT_THAT(outcome.candidates[0].max_cost, DoubleNear(75.14, 0.005));
  EXPECT_THAT(outcome.best.max_cost, DoubleNear(34.583, 0.0005));
  EXPECT_EQ(outcome.best.holders[20].size(), 4U);
}

TEST(HugeCtrPlannerTest, ManyNodesOfMlPerfArePlannedAsThePeerPlansThem) {
  for (const auto& [nodes, uniform, best] : {std::tuple(8, 462.25, 61.5), {16, 448.875, 41.75}}) {
    const Outcome outcome = AllCandidates(
        MlPerf(nodes, 480, {.bandwidth_ratio = 67, .data_parallel_threshold_gb = 0.0125}));
    EXPECT_THAT(Replicated(outcome),
                ElementsAre(3, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17, 18, 24, 25));
    EXPECT_EQ(outcome.candidates.size(), 21U);
    EXPECT_EQ(outcome.candidates[0].max_cost, uniform);
    EXPECT_EQ(outcome.best.max_cost, best);
    EXPECT_EQ(outcome.best.holders[20].size(), 4U);
    EXPECT_EQ(outcome.best.holders[21].size(), nodes == 16 ? 2U : 1U);
  }
}

TEST(HugeCtrPlannerTest, ATableThatFitsNowhereIsCutUntilItDoes) {
  HugeCtrProblem problem = MlPerf(4, 0, {.bandwidth_ratio = 0});
  problem.tables = {{1, 12}, {100, 1}};
  problem.shard_memory = [](int table, int holders) { return (table == 0 ? 12.0 : 1.0) / holders; };
  problem.bucket_capacity = {4, 4, 4, 4};
  problem.options.iterations = 3;
  const Outcome outcome = AllCandidates(problem);
  ASSERT_EQ(outcome.candidates.size(), 2U);  // uniform, then two rounds that only cut table 0
  EXPECT_THAT(outcome.candidates[1].holders, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(0)));

  problem.bucket_capacity = {4, 4, 4, 2};  // no room for a quarter of table 0 on the last
  EXPECT_THAT(AllCandidates(problem).candidates, IsEmpty());
}

// Where all tables are replicated, rounds place no shard at which the stop could be asked.
TEST(HugeCtrPlannerTest, StopsBetweenCandidatesWithoutShards) {
  HugeCtrOptions options;
  options.data_parallel_threshold_gb = 1e9;
  options.iterations = 1000;
  int candidates = 0;
  ForEachHugeCtrCandidate(
      MlPerf(8, 1e9, options), [&] { return candidates >= 3; },
      [&](const HugeCtrCandidate&) { ++candidates; });
  EXPECT_EQ(candidates, 3);
}

}  // namespace
}  // namespace neuroshard
