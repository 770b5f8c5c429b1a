// From selected measurements to the networks of NeuroShard's form, one for compute and one for each
// direction and rank count, with what each is worth on samples it has not seen.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "server/pretrain/network_report.h"
#include "server/pretrain/network_trainer.h"
#include "server/pretrain/record_selection.h"
#include "server/pretrain/trained_network.h"
#include "server/pretrain/training_config.h"
#include "server/pretrain/training_outcome.h"

namespace neuroshard {

struct TrainedCommNetwork {
  CommDirection direction = CommDirection::kForward;
  int num_ranks = 0;
  TrainedNetwork network;
  NetworkReport report;
};

struct TrainedCostModel {
  MeasuredConditions conditions;
  std::vector<std::string> features;
  std::map<std::string, std::string> transforms;
  std::vector<std::string>
      compute_outputs;  // of the model format: total_ms, or forward_ms and backward_ms
  TrainedNetwork compute;
  NetworkReport compute_report;
  std::vector<TrainedCommNetwork> comm;  // ascending rank count, backward before forward
};

// FAILED_PRECONDITION when there are fewer than config.min_samples compute samples; a communication
// network with fewer is left out with a warning. Otherwise the errors of TrainNetwork.
StatusOr<TrainedCostModel> TrainCostModel(const SelectedRecords& records,
                                          const TrainingConfig& config, const FitContext& context);

// The same as the files of a model directory.
TrainingOutcome OutcomeOf(TrainedCostModel model);

}  // namespace neuroshard
