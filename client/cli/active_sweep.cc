#include "client/cli/active_sweep.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "client/stub/model_reference.h"
#include "client/sweep/repeated_passes.h"

namespace neuroshard {
namespace {

std::string HashOf(const ActivePool& pool, const CostModelRef& model) {
  return fmt::format("{}:{}", pool.info.config_hash, ModelReferenceText(model));
}

struct ChosenSweep {
  CostModelRef model;
  SweepStatistics statistics;
};

// Sweeps of this configuration that a version of this model chose.
StatusOr<std::vector<ChosenSweep>> SweepsInStore(const ActivePool& pool, const std::string& name,
                                                 const ProfileStore& store) {
  NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> all, store.Statistics());
  const std::string prefix = pool.info.config_hash + ":";
  std::vector<ChosenSweep> chosen;
  for (const SweepStatistics& sweep : all) {
    if (sweep.kind != SweepKind::kCompute || !sweep.config_hash.starts_with(prefix)) continue;
    const auto model = ParseModelReference(sweep.config_hash.substr(prefix.size()));
    if (model.ok() && model->name == name) chosen.push_back({*model, sweep});
  }
  return chosen;
}

StatusOr<CostModelRef> Resolve(const ActiveOptions& options,
                               const std::vector<ChosenSweep>& before) {
  if (!options.planner.empty()) {
    return ResolveChoosingModel(PlannerClient(options.planner, options.policy), options.model);
  }
  std::string known;
  for (const ChosenSweep& sweep : before) {
    known += fmt::format("{}{}", known.empty() ? "; without one, it has sweeps chosen by " : ", ",
                         ModelReferenceText(sweep.model));
  }
  return InvalidArgument(
      "--planner is required: the store has no sweep of this configuration chosen by {}{}",
      ModelReferenceText(options.model), known);
}

Status CheckNoneIsUnfinished(const std::vector<ChosenSweep>& before, const CostModelRef& now) {
  for (const ChosenSweep& sweep : before) {
    if (sweep.statistics.pending() == 0) continue;
    return FailedPrecondition(
        "sweep {} of this configuration was chosen by {} and lacks {} of {} samples, and the "
        "planner now has {}: name a version, --model {} to go on with that sweep or --model {} to "
        "choose anew",
        sweep.statistics.sweep_id, ModelReferenceText(sweep.model), sweep.statistics.pending(),
        sweep.statistics.samples, ModelReferenceText(now), ModelReferenceText(sweep.model),
        ModelReferenceText(now));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<ActiveSweep> BeginActiveSweep(const ActivePool& pool, const ActiveOptions& options,
                                       ProfileStore& store, const StopSignal& stop,
                                       std::ostream& log) {
  NS_ASSIGN_OR_RETURN(const auto before, SweepsInStore(pool, options.model.name, store));
  const auto chosen_by = [&](const CostModelRef& model) {
    return std::find_if(before.begin(), before.end(),
                        [&](const ChosenSweep& sweep) { return sweep.model == model; });
  };
  auto found = chosen_by(options.model);
  CostModelRef model = options.model;
  if (found == before.end()) {
    NS_ASSIGN_OR_RETURN(model, Resolve(options, before));
    found = chosen_by(model);
  }
  if (found != before.end()) {
    return ActiveSweep{found->statistics.sweep_id, found->statistics.samples, model, true};
  }
  if (options.model.version == 0) NS_RETURN_IF_ERROR(CheckNoneIsUnfinished(before, model));

  log << fmt::format("asking {} which {} of {} samples it is least sure of\n",
                     ModelReferenceText(model), pool.num_samples, pool.candidates.size());
  NS_ASSIGN_OR_RETURN(
      std::vector<ComputeSample> samples,
      ChooseLeastSure(PlannerClient(options.planner, options.policy), model, pool.candidates,
                      static_cast<std::size_t>(pool.num_samples), stop));
  samples = InPasses(std::move(samples), pool.repeats);
  SweepInfo info = pool.info;
  info.config_hash = HashOf(pool, model);
  info.config_text += fmt::format("# chosen by {}\n", ModelReferenceText(model));
  NS_ASSIGN_OR_RETURN(const std::int64_t sweep_id, store.BeginComputeSweep(info, samples));
  return ActiveSweep{sweep_id, static_cast<std::int64_t>(samples.size()), model, false};
}

}  // namespace neuroshard
