#include "server/networks/manifest_info.h"

#include <optional>
#include <utility>

namespace neuroshard {

CostModelInfo InfoOfManifest(const ModelManifest& manifest) {
  CostModelInfo info;
  info.name = manifest.name;
  info.version = manifest.version;
  info.digest = manifest.digest;
  info.measured_with = {manifest.device, manifest.backend, manifest.collective_backend,
                        CadenceOf(manifest)};
  info.coverage.global_batch_size = manifest.global_batch_size;
  info.coverage.weight_dtype = manifest.weight_dtype;
  info.coverage.optimizer = manifest.optimizer;
  info.unusable_reason = manifest.unusable_reason;
  info.drift = manifest.drift;
  for (const auto& [key, value] : manifest.metrics) info.details["metrics." + key] = value;
  for (const auto& [key, value] : manifest.provenance) info.details["provenance." + key] = value;
  if (!manifest.universal) return info;
  info.kind = kUniversalKind;
  const auto state = [&](const char* stage, const std::optional<IntervalManifest>& interval) {
    if (!interval) return;
    info.properties.interval_coverage = interval->coverage;
    info.typical_errors[stage] = IntervalRule(*interval).TypicalError();
  };
  state("compute", manifest.universal->interval);
  if (manifest.input_dist) state("input_dist", manifest.input_dist->interval);
  if (manifest.comm) {
    for (const auto& [stage, collective] : {std::pair("forward_comm", "all_to_all_forward"),
                                            std::pair("backward_comm", "all_to_all_backward")}) {
      const IntervalManifest* const interval = manifest.comm->IntervalOf(collective);
      state(stage, interval == nullptr ? std::nullopt : std::optional(*interval));
    }
  }
  return info;
}

}  // namespace neuroshard
