#include "server/model_watcher.h"

#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "server/cost/model_error.h"

namespace neuroshard {
namespace {

void RecordReload(const ReloadReport& report, const ModelSnapshot& snapshot, const Logger& logger,
                  PlannerMetrics& metrics) {
  for (const std::string& model : report.loaded) logger.Audit("model_loaded", {{"model", model}});
  for (const ChangedContent& changed : report.changed_content) {
    logger.Warn(
        "model_content_changed",
        {{"model", changed.model}, {"digest_before", changed.before}, {"digest", changed.now}});
  }
  for (const std::string& model : report.removed) logger.Audit("model_removed", {{"model", model}});
  for (const auto& [name, text] : report.channels) {
    logger.Audit("model_channel", {{"model", name}, {"serves", text}});
  }
  for (const RefusedModel& refused : report.refused) {
    logger.Warn("model_refused", {{"directory", refused.directory},
                                  {"reason", refused.reason},
                                  {"previous_content_serving", refused.previous_content_serving}});
  }
  metrics.ModelsReloaded(report, snapshot);
}

}  // namespace

ModelWatcher::ModelWatcher(ModelRepository& repository, std::chrono::milliseconds interval,
                           const Logger& logger, PlannerMetrics& metrics)
    : repository_(repository), interval_(interval), logger_(logger), metrics_(metrics) {
  const auto now = repository_.Current();
  RecordReload(ChangesBetween(ModelSnapshot(), *now), *now, logger_, metrics_);
  if (now->loaded().empty()) logger_.Warn("no_models");
  {
    const MutexLock lock(mutex_);
    NoteDefaultModel();
  }
  thread_ = std::thread([this] { Run(); });
}

ModelWatcher::~ModelWatcher() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ModelWatcher::ReloadNow() {
  {
    const MutexLock lock(mutex_);
    reload_ = true;
  }
  wake_.notify_all();
}

void ModelWatcher::OnDefaultModel(std::function<void(bool)> tell) {
  const MutexLock lock(mutex_);
  tell_ = std::move(tell);
  told_.reset();
  TellDefaultModel();
}

void ModelWatcher::TellDefaultModel() {
  const auto model = repository_.Current()->Find({});
  if (tell_ == nullptr || told_ == model.ok()) return;
  told_ = model.ok();
  if (!model.ok()) logger_.Warn("no_default_model", {{"reason", model.status()}});
  tell_(model.ok());
}

void ModelWatcher::NoteDefaultModel() {
  const auto model = repository_.Current()->Find({});
  if (!model.ok()) return;
  const CostModelInfo& info = (*model)->info();
  std::string name = fmt::format("{}/{}", info.name, info.version);
  if (name == noted_) return;
  noted_ = std::move(name);
  logger_.Audit("default_model", {{"model", noted_}});
  if (const auto reasons = ReasonsAgainst(info); !reasons.empty()) {
    logger_.Warn("poor_default_model",
                 {{"model", noted_}, {"reason", fmt::format("{}", fmt::join(reasons, "; "))}});
  }
}

void ModelWatcher::Run() {
  bool root_was_readable = true;
  MutexLock lock(mutex_);
  while (true) {
    const auto next = std::chrono::steady_clock::now() + interval_;
    while (!reload_ && !stopping_) {
      if (interval_.count() == 0) {
        lock.Wait(wake_);
      } else if (!lock.WaitUntil(wake_, next)) {
        break;
      }
    }
    if (stopping_) return;
    reload_ = false;
    lock.Unlock();
    const ReloadReport report = repository_.Reload();
    // A root that stays away is one event, not one every interval.
    if (root_was_readable && !report.root_status.ok()) {
      logger_.Error("model_root_unreadable", {{"reason", report.root_status}});
    }
    root_was_readable = report.root_status.ok();
    RecordReload(report, *repository_.Current(), logger_, metrics_);
    lock.Lock();
    NoteDefaultModel();
    TellDefaultModel();
  }
}

}  // namespace neuroshard
