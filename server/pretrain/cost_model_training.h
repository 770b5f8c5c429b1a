// From selected measurements to the networks of one cost model, with what each is worth on samples
// it has not seen.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/vocabulary.h"
#include "server/pretrain/network_trainer.h"
#include "server/pretrain/record_selection.h"
#include "server/pretrain/regression_metrics.h"
#include "server/pretrain/trained_network.h"
#include "server/pretrain/training_config.h"

namespace neuroshard {

struct NetworkReport {
  std::string name;  // "compute", "forward_comm x4"
  std::int64_t train_samples = 0;
  std::int64_t validation_samples = 0;
  std::int64_t epochs = 0;
  std::int64_t best_epoch = 0;
  // On the held-out samples. Compute: the total cost. Communication: pooled over ranks, and
  // `samples` counts collectives.
  RegressionMetrics held_out;
  std::vector<double> predicted_ms;  // what held_out is computed from
  std::vector<double> measured_ms;
};

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
                                          const TrainingConfig& config, const StopSignal& stop,
                                          TrainingObserver* observer);

}  // namespace neuroshard
