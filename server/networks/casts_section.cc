#include "server/networks/casts_section.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "server/networks/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr RealRange kNsPerValue{0, 1e6};
constexpr RealRange kCachedValues{0, 1e15};

using OfType = std::pair<const char*, std::optional<CastRates> MeasuredCasts::*>;
constexpr OfType kTypes[] = {{"fp16", &MeasuredCasts::fp16}, {"bf16", &MeasuredCasts::bf16}};

CastRates ReadCastRates(ConfigReader section) {
  CastRates rates;
  section.Require({"ns_per_value", "cached_values", "ns_per_value_beyond"});
  section.Read("ns_per_value", &rates.ns_per_value, kNsPerValue);
  section.Read("cached_values", &rates.cached_values, kCachedValues);
  // Where it cannot be read, that alone is the fault.
  rates.ns_per_value_beyond = rates.ns_per_value;
  section.Read("ns_per_value_beyond", &rates.ns_per_value_beyond, kNsPerValue);
  if (rates.ns_per_value_beyond < rates.ns_per_value) {
    section.AddViolation("ns_per_value_beyond",
                         fmt::format("must be at least ns_per_value, {}, got {}",
                                     rates.ns_per_value, rates.ns_per_value_beyond));
  }
  return rates;
}

}  // namespace

MeasuredCasts ReadCasts(ConfigReader section) {
  MeasuredCasts casts;
  for (const auto& [key, rates] : kTypes) {
    if (auto of_type = section.SectionIfGiven(key)) casts.*rates = ReadCastRates(*of_type);
  }
  if (casts == MeasuredCasts()) section.AddViolation("fp16", "or bf16 is required");
  return casts;
}

void EmitCasts(YAML::Emitter& out, const MeasuredCasts& casts) {
  out << YAML::Key << "casts" << YAML::Value << YAML::BeginMap;
  for (const auto& [key, member] : kTypes) {
    const std::optional<CastRates>& rates = casts.*member;
    if (!rates) continue;
    out << YAML::Key << key << YAML::Value << YAML::BeginMap;
    EmitScalar(out, "ns_per_value", rates->ns_per_value);
    EmitScalar(out, "cached_values", rates->cached_values);
    EmitScalar(out, "ns_per_value_beyond", rates->ns_per_value_beyond);
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
}

}  // namespace neuroshard
