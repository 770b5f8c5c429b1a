#include "server/networks/input_dist_section.h"

#include <fmt/format.h>

#include <utility>

#include "server/networks/interval_section.h"
#include "server/networks/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxInputDistRanks = 16384;
constexpr double kMaxFixedMs = 1e6;
constexpr double kMaxNsPerByte = 1e6;

using Rate = std::pair<const char*, double InputDistRates::*>;
constexpr Rate kRates[] = {{"whole_ns_per_byte", &InputDistRates::whole_ns_per_byte},
                           {"cut_ns_per_byte", &InputDistRates::cut_ns_per_byte},
                           {"lengths_ns_per_byte", &InputDistRates::lengths_ns_per_byte}};

InputDistRates ReadRates(ConfigReader& section) {
  InputDistRates rates;
  section.Require({"num_ranks", "fixed_ms"});
  section.Read("num_ranks", &rates.num_ranks, {2, kMaxInputDistRanks});
  section.Read("fixed_ms", &rates.fixed_ms, {0, kMaxFixedMs});
  for (const auto& [key, rate] : kRates) {
    section.Require({key});
    section.Read(key, &(rates.*rate), {0, kMaxNsPerByte});
  }
  return rates;
}

}  // namespace

InputDistManifest ReadInputDist(ConfigReader section) {
  InputDistManifest input_dist;
  MeasuredInputDist& measured = input_dist.measured;
  section.Read("max_hosts", &measured.max_hosts, {1, kMaxInputDistRanks});
  section.Require({"rates"});
  for (ConfigReader& of_ranks : section.Sections("rates")) {
    const int before = measured.rates.empty() ? 0 : measured.rates.back().num_ranks;
    measured.rates.push_back(ReadRates(of_ranks));
    if (measured.rates.back().num_ranks > before) continue;
    of_ranks.AddViolation("num_ranks", fmt::format("must rise from entry to entry, got {} after {}",
                                                   measured.rates.back().num_ranks, before));
  }
  if (measured.rates.empty()) section.AddViolation("rates", "must have at least one entry");
  input_dist.interval = ReadInterval(section);
  return input_dist;
}

void EmitInputDist(YAML::Emitter& out, const InputDistManifest& input_dist) {
  out << YAML::Key << "input_dist" << YAML::Value << YAML::BeginMap;
  EmitScalar(out, "max_hosts", input_dist.measured.max_hosts);
  out << YAML::Key << "rates" << YAML::Value << YAML::BeginSeq;
  for (const InputDistRates& rates : input_dist.measured.rates) {
    out << YAML::BeginMap;
    EmitScalar(out, "num_ranks", rates.num_ranks);
    EmitScalar(out, "fixed_ms", rates.fixed_ms);
    for (const auto& [key, rate] : kRates) EmitScalar(out, key, rates.*rate);
    out << YAML::EndMap;
  }
  out << YAML::EndSeq;
  EmitInterval(out, input_dist.interval);
  out << YAML::EndMap;
}

}  // namespace neuroshard
