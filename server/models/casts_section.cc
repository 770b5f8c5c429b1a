#include "server/models/casts_section.h"

#include <optional>
#include <utility>

#include "server/models/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr double kMaxNsPerValue = 1e6;
using CastRate = std::pair<const char*, std::optional<double> MeasuredCasts::*>;
constexpr CastRate kCastRates[] = {{"fp16_ns_per_value", &MeasuredCasts::fp16_ns_per_value},
                                   {"bf16_ns_per_value", &MeasuredCasts::bf16_ns_per_value}};

}  // namespace

MeasuredCasts ReadCasts(ConfigReader section) {
  MeasuredCasts casts;
  for (const auto& [key, rate] : kCastRates) {
    if (section.Has(key)) section.Read(key, &(casts.*rate).emplace(), {0, kMaxNsPerValue});
  }
  if (casts == MeasuredCasts()) {
    section.AddViolation("fp16_ns_per_value", "or bf16_ns_per_value is required");
  }
  return casts;
}

void EmitCasts(YAML::Emitter& out, const MeasuredCasts& casts) {
  out << YAML::Key << "casts" << YAML::Value << YAML::BeginMap;
  for (const auto& [key, rate] : kCastRates) {
    if (const auto& value = casts.*rate) EmitScalar(out, key, *value);
  }
  out << YAML::EndMap;
}

}  // namespace neuroshard
