#include "server/pretrain/fit/fit_run.h"

#include <algorithm>
#include <memory>

#include "server/pretrain/content_hash.h"

namespace neuroshard {
namespace {

template <typename T>
void AddBytes(const std::vector<T>& values, std::string& bytes) {
  bytes += fmt::format("|{}|", values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

const SampleSplit& SplitOf(const FitTask& task, int member) {
  return task.member_splits.empty() ? *task.split
                                    : task.member_splits[static_cast<std::size_t>(member)];
}

// Everything that the result depends on.
std::string Fingerprint(const FitTask& task) {
  const OptimizationConfig& config = *task.config;
  std::string bytes = fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", task.name, task.members,
                                  ToText(config.loss), config.learning_rate, config.batch_samples,
                                  config.max_epochs, config.patience_epochs,
                                  ToText(config.schedule), config.learning_rate_decay,
                                  config.decay_patience_epochs, config.permute_ranks, config.seed);
  const FitProblem& problem = *task.problem;
  bytes += fmt::format(" {} {} {} {} {} {} {}", static_cast<int>(problem.loss), problem.floor,
                       problem.row_columns, problem.sample_columns, problem.outputs,
                       problem.total_counts, problem.permuted_ranks);
  for (const auto* values : {&problem.rows, &problem.sample_values, &problem.scale,
                             &problem.targets, &problem.weights}) {
    AddBytes(*values, bytes);
  }
  for (const auto* values : {&problem.sample_begin, &problem.sample_rows}) {
    AddBytes(*values, bytes);
  }
  for (int i = 0; i < (task.member_splits.empty() ? 1 : task.members); ++i) {
    AddBytes(SplitOf(task, i).train, bytes);
    AddBytes(SplitOf(task, i).validation, bytes);
  }
  for (const GraphStep& step : task.graph->steps()) {
    bytes += fmt::format(" {},{},{},{},{},{},{},{},{}", static_cast<int>(step.kind),
                         static_cast<int>(step.level), step.width, step.input, step.other,
                         static_cast<int>(step.activation), static_cast<int>(step.form),
                         step.formed_inputs, step.formed_bias);
  }
  for (const auto& parameters : task.initial_parameters) AddBytes(parameters, bytes);
  return ContentHash(bytes);
}

EpochReport Summary(const FitTask& task, const std::vector<MemberState>& members) {
  EpochReport report{task.name, 0, task.config->max_epochs, 0, 0, 0, members[0].best_epoch};
  for (const MemberState& member : members) {
    report.epoch = std::max(report.epoch, member.epoch);
    report.train_loss += member.train_loss;
    report.validation_loss += member.validation_loss;
    report.best_validation_loss += member.best_validation_loss;
  }
  const auto count = static_cast<double>(members.size());
  report.train_loss /= count;
  report.validation_loss /= count;
  report.best_validation_loss /= count;
  return report;
}

class Run {
 public:
  Run(const FitTask& task, const FitContext& context) : task_(task), context_(context) {
    for (int i = 0; i < task.members; ++i) {
      const std::uint64_t seed = task.config->seed + static_cast<std::uint64_t>(i);
      fits_.push_back(std::make_unique<MemberFit>(*task.problem, SplitOf(task, i), *task.graph,
                                                  *task.config, seed));
      members_.push_back(InitialState(*task.graph, *task.config, seed));
      if (task.initial_parameters.empty()) continue;
      members_.back().parameters = task.initial_parameters[static_cast<std::size_t>(i)];
    }
    statuses_.resize(members_.size());
  }

  StatusOr<std::vector<MemberState>> ToTheEnd();

 private:
  bool IsDone(const MemberState& member) const {
    return member.epoch >= task_.config->max_epochs ||
           member.epoch - member.best_epoch >= task_.config->patience_epochs;
  }
  Status NextEpoch();
  Status Save();

  const FitTask& task_;
  const FitContext& context_;
  std::string fingerprint_;
  std::vector<std::unique_ptr<MemberFit>> fits_;
  std::vector<MemberState> members_;
  std::vector<Status> statuses_;
};

Status Run::Save() {
  if (context_.checkpoints == nullptr) return absl::OkStatus();
  return context_.checkpoints->Save(task_.name, fingerprint_, members_);
}

// Members side by side where there are several; otherwise the one member's batches are shared.
Status Run::NextEpoch() {
  const auto epoch_of = [&](std::size_t i, WorkerTeam& team) {
    if (!IsDone(members_[i])) statuses_[i] = fits_[i]->RunEpoch(*context_.stop, team, members_[i]);
  };
  if (members_.size() == 1) {
    epoch_of(0, *context_.team);
  } else {
    context_.team->Run(static_cast<int>(members_.size()), [&](int i) {
      WorkerTeam alone(1);
      epoch_of(static_cast<std::size_t>(i), alone);
    });
  }
  for (const Status& status : statuses_) NS_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

StatusOr<std::vector<MemberState>> Run::ToTheEnd() {
  if (context_.checkpoints != nullptr) {
    fingerprint_ = Fingerprint(task_);
    if (auto saved = context_.checkpoints->Load(task_.name, fingerprint_)) {
      members_ = std::move(*saved);
      context_.observer->OnWarning(fmt::format("{}: goes on after epoch {} of a checkpoint",
                                               task_.name, Summary(task_, members_).epoch));
    }
  }
  const auto done = [&] {
    return std::all_of(members_.begin(), members_.end(),
                       [&](const MemberState& member) { return IsDone(member); });
  };
  while (!done()) {
    const Status status = NextEpoch();
    if (absl::IsCancelled(status)) {
      NS_RETURN_IF_ERROR(Save());
    }
    if (!status.ok()) return Annotate(status, task_.name);
    context_.observer->OnEpoch(Summary(task_, members_));
    if (context_.checkpoints != nullptr && context_.checkpoints->IsDue()) {
      NS_RETURN_IF_ERROR(Save());
    }
  }
  const EpochReport last = Summary(task_, members_);
  const bool all_epochs = last.epoch >= task_.config->max_epochs;
  context_.observer->OnFinished(
      last, all_epochs ? "all epochs done"
                       : fmt::format("stopped early: no better validation loss for {} epochs",
                                     task_.config->patience_epochs));
  NS_RETURN_IF_ERROR(Save());
  return std::move(members_);
}

}  // namespace

StatusOr<std::vector<MemberState>> RunFit(const FitTask& task, const FitContext& context) {
  return Run(task, context).ToTheEnd();
}

}  // namespace neuroshard
