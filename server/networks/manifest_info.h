// CostModelInfo of a manifest: what every kind of model passes on.
#pragma once

#include "server/cost/cost_model.h"
#include "server/networks/model_manifest.h"

namespace neuroshard {

// Name, version, hardware, conditions, quality, drift, metrics and provenance; the rest is for the
// kind to fill in.
CostModelInfo InfoOfManifest(const ModelManifest& manifest);

}  // namespace neuroshard
