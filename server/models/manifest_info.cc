#include "server/models/manifest_info.h"

namespace neuroshard {

CostModelInfo InfoOfManifest(const ModelManifest& manifest) {
  CostModelInfo info;
  info.name = manifest.name;
  info.version = manifest.version;
  info.measured_with = {manifest.device, manifest.backend, manifest.collective_backend};
  info.coverage.global_batch_size = manifest.global_batch_size;
  info.coverage.weight_dtype = manifest.weight_dtype;
  info.coverage.optimizer = manifest.optimizer;
  info.unusable_reason = manifest.unusable_reason;
  info.drift = manifest.drift;
  for (const auto& [key, value] : manifest.metrics) info.details["metrics." + key] = value;
  for (const auto& [key, value] : manifest.provenance) info.details["provenance." + key] = value;
  return info;
}

}  // namespace neuroshard
