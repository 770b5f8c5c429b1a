#include "server/models/interval_section.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

#include "common/base/printable_text.h"
#include "server/cost/comm_features.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxNoisePoints = 8;
constexpr std::size_t kMaxRankCounts = 64;
constexpr double kMostRanks = 16384;
constexpr double kMostMs = 1e12;
constexpr double kLeastFactor = 1e-6;
constexpr double kMostFactor = 1e6;

void ReadRankFactors(const ManifestSection& section, IntervalManifest& interval) {
  const bool any = section.Find("ranks") != nullptr || section.Find("rank_factors") != nullptr;
  if (!any) return;
  interval.rank_factors = section.RequiredNumbers("rank_factors", kLeastFactor, kMostFactor);
  for (const double count : section.RequiredNumbers("ranks", 2, kMostRanks)) {
    if (count != std::floor(count)) section.Fault("ranks", fmt::format("{} is no count", count));
    interval.ranks.push_back(static_cast<std::int64_t>(count));
  }
  const std::vector<std::int64_t>& ranks = interval.ranks;
  if (ranks.empty() || ranks.size() > kMaxRankCounts) {
    section.Fault("ranks",
                  fmt::format("must list 1 to {} counts, got {}", kMaxRankCounts, ranks.size()));
  }
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    section.Fault("ranks", "must rise from entry to entry");
  }
  if (interval.rank_factors.size() != ranks.size()) {
    section.Fault("rank_factors", fmt::format("must have an entry for each of ranks, {}, got {}",
                                              ranks.size(), interval.rank_factors.size()));
  }
}

IntervalManifest ReadOne(const YAML::Node& node, const std::string& path, Violations& violations) {
  const ManifestSection section(
      node, path, {"coverage", "factor", "noise_cost_ms", "noise", "ranks", "rank_factors"},
      violations);
  IntervalManifest interval;
  if (!section.valid()) return interval;
  interval.coverage = section.RequiredNumber("coverage", 0.01, 0.9999);
  interval.factor = section.RequiredNumber("factor", kLeastFactor, kMostFactor);
  interval.noise_cost_ms = section.RequiredNumbers("noise_cost_ms", 1e-12, kMostMs);
  interval.noise = section.RequiredNumbers("noise", 0, 100);
  const std::vector<double>& at = interval.noise_cost_ms;
  if (at.empty() || at.size() > kMaxNoisePoints) {
    section.Fault("noise_cost_ms",
                  fmt::format("must list 1 to {} costs, got {}", kMaxNoisePoints, at.size()));
  }
  if (std::adjacent_find(at.begin(), at.end(), std::greater_equal<>()) != at.end()) {
    section.Fault("noise_cost_ms", "must rise from entry to entry");
  }
  if (interval.noise.size() != at.size()) {
    section.Fault("noise", fmt::format("must have an entry for each of noise_cost_ms, {}, got {}",
                                       at.size(), interval.noise.size()));
  }
  ReadRankFactors(section, interval);
  return interval;
}

template <typename T>
void EmitFlowList(YAML::Emitter& out, const std::string& key, const std::vector<T>& values) {
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
  // As the shortest text that reads back the same.
  for (const T& value : values) out << fmt::format("{}", value);
  out << YAML::EndSeq;
}

void EmitOne(YAML::Emitter& out, const std::string& key, const IntervalManifest& interval) {
  out << YAML::Key << key << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "coverage" << YAML::Value << fmt::format("{}", interval.coverage);
  out << YAML::Key << "factor" << YAML::Value << fmt::format("{}", interval.factor);
  EmitFlowList(out, "noise_cost_ms", interval.noise_cost_ms);
  EmitFlowList(out, "noise", interval.noise);
  if (!interval.ranks.empty()) {
    EmitFlowList(out, "ranks", interval.ranks);
    EmitFlowList(out, "rank_factors", interval.rank_factors);
  }
  out << YAML::EndMap;
}

}  // namespace

std::optional<IntervalManifest> ReadInterval(const ManifestSection& owner, Violations& violations) {
  const YAML::Node* node = owner.Find("interval");
  if (node == nullptr) return std::nullopt;
  return ReadOne(*node, owner.Path("interval"), violations);
}

std::map<std::string, IntervalManifest> ReadIntervals(const ManifestSection& owner,
                                                      Violations& violations) {
  std::map<std::string, IntervalManifest> intervals;
  const YAML::Node* node = owner.Find("intervals");
  if (node == nullptr) return intervals;
  const ManifestSection section(
      *node, owner.Path("intervals"),
      {CollectiveName(CollectiveKind::kAllToAllForward),
       CollectiveName(CollectiveKind::kAllToAllBackward),
       CollectiveName(CollectiveKind::kReduceScatter), CollectiveName(CollectiveKind::kAllGather),
       CollectiveName(CollectiveKind::kAllReduce)},
      violations);
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    const std::string name(CollectiveName(static_cast<CollectiveKind>(kind)));
    const YAML::Node* of_kind = section.Find(name);
    if (of_kind != nullptr) intervals[name] = ReadOne(*of_kind, section.Path(name), violations);
  }
  return intervals;
}

void EmitInterval(YAML::Emitter& out, const std::optional<IntervalManifest>& interval) {
  if (interval) EmitOne(out, "interval", *interval);
}

void EmitIntervals(YAML::Emitter& out, const std::map<std::string, IntervalManifest>& intervals) {
  if (intervals.empty()) return;
  out << YAML::Key << "intervals" << YAML::Value << YAML::BeginMap;
  for (const auto& [collective, interval] : intervals) EmitOne(out, collective, interval);
  out << YAML::EndMap;
}

}  // namespace neuroshard
