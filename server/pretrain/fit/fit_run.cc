#include "server/pretrain/fit/fit_run.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>

#include "common/base/sha256.h"
#include "server/pretrain/fit/member_fit.h"

namespace neuroshard {
namespace {

// Runs job(0) .. job(count - 1), which must not throw, on at most `threads` threads; on fewer where
// the system has none left.
void RunSideBySide(int threads, int count, const std::function<void(int)>& job) {
  std::atomic<int> next{0};
  const auto serve = [&] {
    for (int i = next++; i < count; i = next++) job(i);
  };
  std::vector<std::jthread> others;
  try {
    for (int t = 1; t < std::min(threads, count); ++t) others.emplace_back(serve);
  } catch (const std::system_error&) {
  }
  serve();
}

template <typename T>
void AddBytes(const std::vector<T>& values, std::string& bytes) {
  bytes += fmt::format("|{}|", values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Everything that the result depends on.
std::string Fingerprint(const FitTask& task) {
  const OptimizationConfig& config = *task.config;
  std::string bytes = fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {}", task.name, ToText(config.loss), config.learning_rate,
      config.batch_samples, config.max_epochs, config.patience_epochs, ToText(config.schedule),
      config.learning_rate_decay, config.decay_patience_epochs, config.permute_ranks, config.seed);
  const TrainingProblem& problem = *task.problem;
  bytes += fmt::format(" {} {} {} {} {} {}", problem.floor_ms, problem.num_columns(),
                       problem.sample_columns, problem.outputs, problem.total_counts,
                       problem.interchangeable_ranks);
  AddBytes(problem.scale, bytes);
  for (const auto* values :
       {&problem.rows, &problem.sample_values, &problem.targets, &problem.weights}) {
    AddBytes(*values, bytes);
  }
  AddBytes(problem.sample_begin, bytes);
  AddBytes(problem.sample_rows, bytes);
  for (const SampleSplit* split : task.splits) {
    AddBytes(split->train, bytes);
    AddBytes(split->validation, bytes);
  }
  bytes += fmt::format(" {}", static_cast<int>(task.network->kind));
  for (const TensorSpec& tensor : task.network->tensors) {
    bytes += fmt::format(" {} [{}] {}", tensor.name, fmt::join(tensor.shape, ", "),
                         tensor.non_negative_columns);
  }
  for (const auto& parameters : task.initial_parameters) AddBytes(parameters, bytes);
  return Sha256Hex(bytes);
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
    for (std::size_t i = 0; i < task.splits.size(); ++i) {
      fits_.push_back(std::make_unique<MemberFit>(*task.problem, *task.splits[i], *task.network,
                                                  *task.config, task.config->seed + i));
      members_.push_back(InitialState(task.initial_parameters[i], task.config->learning_rate));
    }
  }

  StatusOr<std::vector<MemberState>> ToTheEnd() {
    if (context_.checkpoints != nullptr) {
      fingerprint_ = Fingerprint(task_);
      auto saved = context_.checkpoints->Load(task_.name, fingerprint_);
      if (saved && saved->size() == members_.size()) {
        members_ = std::move(*saved);
        context_.observer->OnWarning(fmt::format("{}: goes on after epoch {} of a checkpoint",
                                                 task_.name, Summary(task_, members_).epoch));
      }
    }
    const auto done = [&] {
      return std::ranges::all_of(members_,
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

 private:
  bool IsDone(const MemberState& member) const {
    return member.epoch >= task_.config->max_epochs ||
           member.epoch - member.best_epoch >= task_.config->patience_epochs;
  }

  Status NextEpoch() {
    std::vector<Status> statuses(members_.size());
    RunSideBySide(context_.threads, static_cast<int>(members_.size()), [&](int i) {
      if (!IsDone(members_[i])) statuses[i] = fits_[i]->RunEpoch(*context_.stop, members_[i]);
    });
    for (const Status& status : statuses) NS_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  Status Save() {
    if (context_.checkpoints == nullptr) return absl::OkStatus();
    return context_.checkpoints->Save(task_.name, fingerprint_, members_);
  }

  const FitTask& task_;
  const FitContext& context_;
  std::string fingerprint_;
  std::vector<std::unique_ptr<MemberFit>> fits_;
  std::vector<MemberState> members_;
};

}  // namespace

StatusOr<std::vector<MemberState>> RunFit(const FitTask& task, const FitContext& context) {
  return Run(task, context).ToTheEnd();
}

}  // namespace neuroshard
