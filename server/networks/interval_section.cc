#include "server/networks/interval_section.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "server/cost/comm_features.h"
#include "server/networks/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxNoisePoints = 8;
constexpr std::size_t kMaxRankCounts = 64;
constexpr std::int64_t kMaxFactorRanks = 16384;
constexpr RealRange kCostMs{1e-12, 1e12};
constexpr RealRange kFactor{1e-6, 1e6};

// 1 to `most` rising values, and as many in the list beside them.
template <typename T>
void CheckPoints(ConfigReader& section, std::string_view key, const std::vector<T>& points,
                 std::size_t most, std::string_view beside_key, std::size_t beside) {
  if (points.empty() || points.size() > most) {
    section.AddViolation(key, fmt::format("must list 1 to {} values, got {}", most, points.size()));
  }
  if (std::adjacent_find(points.begin(), points.end(), std::greater_equal<>()) != points.end()) {
    section.AddViolation(key, "must rise from entry to entry");
  }
  if (beside != points.size()) {
    section.AddViolation(beside_key, fmt::format("must have an entry for each of {}, {}, got {}",
                                                 key, points.size(), beside));
  }
}

IntervalManifest ReadOne(ConfigReader section) {
  IntervalManifest interval;
  section.Require({"coverage", "factor", "noise_cost_ms", "noise"});
  section.Read("coverage", &interval.coverage, {0.01, 0.9999});
  section.Read("factor", &interval.factor, kFactor);
  section.Read("noise_cost_ms", &interval.noise_cost_ms, kCostMs);
  section.Read("noise", &interval.noise, {0, 100});
  CheckPoints(section, "noise_cost_ms", interval.noise_cost_ms, kMaxNoisePoints, "noise",
              interval.noise.size());
  if (section.Has("ranks") || section.Has("rank_factors")) {
    section.Read("ranks", &interval.ranks, {2, kMaxFactorRanks});
    section.Read("rank_factors", &interval.rank_factors, kFactor);
    CheckPoints(section, "ranks", interval.ranks, kMaxRankCounts, "rank_factors",
                interval.rank_factors.size());
  }
  return interval;
}

void EmitOne(YAML::Emitter& out, const std::string& key, const IntervalManifest& interval) {
  out << YAML::Key << key << YAML::Value << YAML::BeginMap;
  EmitScalar(out, "coverage", interval.coverage);
  EmitScalar(out, "factor", interval.factor);
  EmitList(out, "noise_cost_ms", interval.noise_cost_ms);
  EmitList(out, "noise", interval.noise);
  if (!interval.ranks.empty()) {
    EmitList(out, "ranks", interval.ranks);
    EmitList(out, "rank_factors", interval.rank_factors);
  }
  out << YAML::EndMap;
}

}  // namespace

std::optional<IntervalManifest> ReadInterval(ConfigReader& owner) {
  auto section = owner.SectionIfGiven("interval");
  return section ? std::optional(ReadOne(*section)) : std::nullopt;
}

std::map<std::string, IntervalManifest> ReadIntervals(ConfigReader& owner) {
  std::map<std::string, IntervalManifest> intervals;
  auto section = owner.SectionIfGiven("intervals");
  if (!section) return intervals;
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    const std::string name(CollectiveName(static_cast<CollectiveKind>(kind)));
    if (auto of_kind = section->SectionIfGiven(name)) intervals[name] = ReadOne(*of_kind);
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
