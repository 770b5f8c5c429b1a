// Outcome of a training: the model, before it has a name, and the reports on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"
#include "server/pretrain/report/learning_curve.h"
#include "server/pretrain/report/network_report.h"

namespace neuroshard {

struct TrainingOutcome {
  ModelManifest manifest;  // without name, version, metrics and provenance
  std::map<std::string, TensorFile> files;
  std::vector<NetworkReport> reports;          // compute first
  std::vector<std::string> remarks;            // sentences for REPORT.md
  std::vector<LearningCurve> learning_curves;  // empty: not asked for
};

}  // namespace neuroshard
