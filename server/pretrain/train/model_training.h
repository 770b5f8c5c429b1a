// Training of a model: a universal one on measurements under any conditions, or the networks of the
// NeuroShard paper (section 3), one for compute, and one for each direction and rank count of
// all-to-alls.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/cost/measured_rates.h"
#include "server/pretrain/data/comm_records.h"
#include "server/pretrain/data/record_selection.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/fit/fit_run.h"
#include "server/pretrain/report/training_report.h"

namespace neuroshard {

// A universal model to go on from, as ReadModelManifest and ReadTensorFile read it.
struct ModelStart {
  ModelManifest manifest;
  std::map<std::string, TensorFile> files;  // of its networks
  // Records that it was trained on, to be learned again beside the new ones so that they are not
  // forgotten; may be empty.
  SelectedRecords replay;
};

// Returns `config` for going on from a model: its layers, members and cache, a quarter of the
// learning rates, half of the epochs, and no learning curve.
TrainingConfig ConfigForGoingOn(TrainingConfig config, const ModelManifest& manifest);

// Trains a model of the configuration's preset. The same records and config give the same bytes on
// the same machine, whatever the number of threads. Networks ignore features that do not vary over
// the training samples, with a warning; the paper divides them by 1e-6.
//
// The members of a universal ensemble are trained concurrently; those with the least validation loss
// come first and price (NetworkManifest::pricing_members). Intervals are calibrated on the
// validation samples, and their coverage is reported on the held-out ones. With `start`, members
// begin at its weights and with its standardization, and the report also has its errors on the same
// held-out samples, new and replayed ones apart; `config` is then ConfigForGoingOn.
//
// FAILED_PRECONDITION when there are fewer than config.min_samples compute samples, or when `start`
// is of another shape or device; communication with fewer is left out with a warning. Otherwise the
// errors of RunFit.
StatusOr<TrainingOutcome> TrainModel(const SelectedRecords& records, const TrainingConfig& config,
                                     const ModelStart* start, const FitContext& context);

// The parts of a training: compute and communication fit ensembles, the distribution of ids and
// casts their rates; each adds its sections, files and reports to the outcome.

// Records of one kind, the new ones first.
template <typename Record>
struct CombinedRecords {
  std::vector<Record> all;
  std::int64_t new_ones = 0;
};

Status TrainUniversalCompute(const CombinedRecords<ComputeRecord>& merged,
                             const TrainingConfig& config, const ModelStart* start,
                             const FitContext& context, TrainingOutcome& outcome);

Status TrainUniversalComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                          const ModelStart* start, const FitContext& context,
                          TrainingOutcome& outcome);

// Communication networks with fewer than config.min_samples samples are left out with a warning.
Status TrainPaperCompute(const std::vector<ComputeRecord>& records, const TrainingConfig& config,
                         const FitContext& context, TrainingOutcome& outcome);

Status TrainPaperComm(const std::vector<CommRecord>& records, const TrainingConfig& config,
                      const FitContext& context, TrainingOutcome& outcome);

// Returns the rates, none negative, with the least squares of predicted / measured - 1: the best of
// all subsets of rates whose unconstrained fit has no negative one, so exact. Takes at least one
// observation, none of 0 ms. Deterministic.
InputDistRates FitInputDist(int num_ranks, std::span<const InputDistObservation> observations);

// Fits the rates of distributions of ids. Numbers of ranks with too few samples are left out, with
// a warning where none has enough.
Status TrainInputDist(const std::vector<CommRecord>& records, const TrainingConfig& config,
                      const FitContext& context, TrainingOutcome& outcome);

// All casts of one rank in one exchange.
struct CastObservation {
  double values = 0;
  double ms = 0;
};

// Returns the least squares fit of predicted / measured - 1 over both rates and, among quantiles of
// the observed values, over how many are cached; a single rate where a second that is no lower does
// not fit better. Takes at least one observation, none of 0 values or 0 ms. O(n log n).
// Deterministic.
CastRates FitCasts(std::span<const CastObservation> observations);

// Fits the rates of casts alone (comm_records.h) for each type with enough of them; the others stay
// as they were.
void TrainCasts(const std::vector<CommRecord>& records, const TrainingConfig& config,
                TrainingOutcome& outcome);

}  // namespace neuroshard
