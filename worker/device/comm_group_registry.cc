#include "worker/device/comm_group_registry.h"

#include "common/base/random_token.h"

namespace neuroshard {

CommGroupRegistry::~CommGroupRegistry() { CloseAll(); }

void CommGroupRegistry::ReportCount() const {
  if (observer_) observer_(static_cast<int>(groups_.size()));
}

StatusOr<std::shared_ptr<const CommGroup>> CommGroupRegistry::Open(CommGroupSpec spec) {
  NS_RETURN_IF_ERROR(CheckCommGroupSpec(spec, inventory_.size()));
  const std::string id = spec.group_id;
  {
    const MutexLock lock(mutex_);
    if (!groups_.try_emplace(id, nullptr).second) {
      return AlreadyExists("comm group '{}' is open already", id);
    }
  }
  StatusOr<std::shared_ptr<CommGroup>> group = CommGroup::Open(std::move(spec), inventory_, clock_);
  const MutexLock lock(mutex_);
  if (!group.ok()) {
    groups_.erase(id);
    return group.status();
  }
  groups_[id] = *group;
  ReportCount();
  return *std::move(group);
}

StatusOr<std::shared_ptr<CommGroup>> CommGroupRegistry::Find(const CommGroupKey& key) const {
  const MutexLock lock(mutex_);
  const auto found = groups_.find(key.group_id);
  if (found == groups_.end() || found->second == nullptr) {
    return NotFound("no comm group '{}': never opened here, closed, idle for too long, or aborted",
                    key.group_id);
  }
  if (!SameSecret(key.token, found->second->token())) {
    return PermissionDenied("token: not the one that comm group '{}' was opened with",
                            key.group_id);
  }
  return found->second;
}

Status CommGroupRegistry::Call(const CommGroupKey& key,
                               const std::function<Status(CommGroup&)>& body) {
  NS_ASSIGN_OR_RETURN(const std::shared_ptr<CommGroup> group, Find(key));
  Status status = body(*group);
  if (BreaksGroup(status)) Remove(key.group_id, group);
  return status;
}

Status CommGroupRegistry::Connect(const CommGroupKey& key,
                                  const std::vector<RankAddress>& addresses,
                                  const StopSignal& stop) {
  return Call(key, [&](CommGroup& group) { return group.Connect(addresses, stop); });
}

StatusOr<CommGroupSpec> CommGroupRegistry::Spec(const CommGroupKey& key) const {
  NS_ASSIGN_OR_RETURN(std::shared_ptr<CommGroup> group, Find(key));
  return group->spec();
}

StatusOr<std::vector<CommMeasurement>> CommGroupRegistry::Measure(
    const CommGroupKey& key, const CommSample& sample, const MeasurementSettings& settings,
    const StopSignal& stop) {
  std::vector<CommMeasurement> records;
  NS_RETURN_IF_ERROR(Call(key, [&](CommGroup& group) -> Status {
    NS_ASSIGN_OR_RETURN(records, group.Measure(sample, settings, stop));
    return absl::OkStatus();
  }));
  return records;
}

void CommGroupRegistry::Remove(const std::string& group_id,
                               const std::shared_ptr<CommGroup>& group) {
  {
    const MutexLock lock(mutex_);
    const auto found = groups_.find(group_id);
    if (found != groups_.end() && found->second == group) {
      groups_.erase(found);
      ReportCount();
    }
  }
  group->Close();
}

Status CommGroupRegistry::Close(const CommGroupKey& key) {
  StatusOr<std::shared_ptr<CommGroup>> group = Find(key);
  if (absl::IsNotFound(group.status())) return absl::OkStatus();
  NS_RETURN_IF_ERROR(group.status());
  Remove(key.group_id, *group);
  return absl::OkStatus();
}

std::vector<std::string> CommGroupRegistry::CloseIdle() {
  return CloseWhere(&CommGroup::EndIfIdle);
}

void CommGroupRegistry::CloseAll() {
  CloseWhere([](CommGroup&) { return true; });
}

std::vector<std::string> CommGroupRegistry::CloseWhere(
    const std::function<bool(CommGroup&)>& closes) {
  std::vector<std::string> ids;
  std::vector<std::shared_ptr<CommGroup>> groups;
  {
    const MutexLock lock(mutex_);
    std::erase_if(groups_, [&](const auto& each) {
      if (each.second == nullptr || !closes(*each.second)) return false;
      ids.push_back(each.first);
      groups.push_back(each.second);
      return true;
    });
    if (!groups.empty()) ReportCount();
  }
  for (const auto& group : groups) group->Close();
  return ids;
}

void CommGroupRegistry::CutOffOverdueCalls() {
  std::vector<std::shared_ptr<CommGroup>> groups;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, group] : groups_) {
      if (group != nullptr) groups.push_back(group);
    }
  }
  for (const auto& group : groups) group->CutOffIfOverdue();
}

}  // namespace neuroshard
