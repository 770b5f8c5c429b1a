#include "worker/device/comm_group.h"

#include <fmt/format.h>

#include <future>
#include <set>

#include "common/base/random_token.h"
#include "common/base/violations.h"

namespace neuroshard {
namespace {

void CheckTimeout(const char* field, std::chrono::milliseconds value, Violations& violations) {
  if (value < kMinGroupTimeout || value > kMaxGroupTimeout) {
    violations.Add(field, "must be in [{}, {}], got {}", kMinGroupTimeout.count(),
                   kMaxGroupTimeout.count(), value.count());
  }
}

Status CheckAddresses(const std::vector<RankAddress>& addresses, int world_size) {
  Violations violations;
  std::set<int> seen;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::string field = fmt::format("addresses[{}].rank", i);
    const int rank = addresses[i].rank;
    if (rank < 0 || rank >= world_size) {
      violations.Add(field, "must be in [0, {}), got {}", world_size, rank);
    } else if (!seen.insert(rank).second) {
      violations.Add(field, "rank {} has an address already", rank);
    }
  }
  for (int rank = 0; rank < world_size; ++rank) {
    if (!seen.contains(rank)) violations.Add("addresses", "none of rank {}", rank);
  }
  return violations.ToStatus();
}

}  // namespace

Status CheckCommGroupSpec(const CommGroupSpec& spec, int num_devices) {
  Violations violations;
  if (spec.group_id.empty() || spec.group_id.size() > kMaxGroupIdBytes) {
    violations.Add("group_id", "must have 1 to {} bytes, got {}", kMaxGroupIdBytes,
                   spec.group_id.size());
  }
  if (spec.world_size < 1 || spec.world_size > kMaxWorldSize) {
    violations.Add("world_size", "must be in [1, {}], got {}", kMaxWorldSize, spec.world_size);
  }
  if (spec.local_ranks.empty()) violations.Add("local_ranks", "must have at least one entry");
  std::set<int> ranks;
  std::set<int> devices;
  for (std::size_t i = 0; i < spec.local_ranks.size(); ++i) {
    const auto [rank, device] = spec.local_ranks[i];
    if (rank < 0 || rank >= spec.world_size) {
      violations.Add(fmt::format("local_ranks[{}].rank", i), "must be in [0, {}), got {}",
                     spec.world_size, rank);
    } else if (!ranks.insert(rank).second) {
      violations.Add(fmt::format("local_ranks[{}].rank", i), "rank {} appears twice", rank);
    }
    if (device < 0 || device >= num_devices) {
      violations.Add(fmt::format("local_ranks[{}].device", i), "must be in [0, {}), got {}",
                     num_devices, device);
    } else if (!devices.insert(device).second) {
      violations.Add(fmt::format("local_ranks[{}].device", i),
                     "device {} appears twice; each rank needs its own", device);
    }
  }
  CheckTimeout("timeout_ms", spec.timeout, violations);
  CheckTimeout("idle_timeout_ms", spec.idle_timeout, violations);
  return violations.ToStatus();
}

class CommGroup::Call {
 public:
  static StatusOr<std::unique_ptr<Call>> Begin(CommGroup& group, Phase expected,
                                               const StopSignal& stop) {
    const MutexLock lock(group.mutex_);
    const std::string& id = group.spec_.group_id;
    if (group.phase_ == Phase::kClosed) return NotFound("comm group '{}' is closed", id);
    group.last_used_ = group.clock_.Now();
    if (group.call_stop_ != nullptr) {
      return FailedPrecondition("comm group '{}' is busy with another call", id);
    }
    if (group.phase_ != expected) {
      return FailedPrecondition(
          "comm group '{}' is {}", id,
          expected == Phase::kOpened ? "connected already" : "not connected yet");
    }
    group.call_stop_ = &stop;
    return std::make_unique<Call>(group);
  }
  explicit Call(CommGroup& group) : group_(group) {}
  ~Call() {
    {
      const MutexLock lock(group_.mutex_);
      group_.call_stop_ = nullptr;
      group_.call_stop_seen_.reset();
      group_.last_used_ = group_.clock_.Now();
      if (connected_ && group_.phase_ == Phase::kOpened) group_.phase_ = Phase::kConnected;
    }
    group_.idle_.notify_all();
  }
  void Connected() { connected_ = true; }

 private:
  CommGroup& group_;
  bool connected_ = false;
};

StatusOr<std::shared_ptr<CommGroup>> CommGroup::Open(CommGroupSpec spec, DeviceInventory& inventory,
                                                     const Clock& clock) {
  NS_ASSIGN_OR_RETURN(std::string token, RandomToken());
  std::shared_ptr<CommGroup> group(new CommGroup(std::move(spec), std::move(token), clock));
  NS_RETURN_IF_ERROR(group->OpenRanks(inventory));
  const MutexLock lock(group->mutex_);
  group->last_used_ = clock.Now();
  return group;
}

Status CommGroup::OpenRanks(DeviceInventory& inventory) {
  for (const LocalRank& local : spec_.local_ranks) {
    NS_ASSIGN_OR_RETURN(DeviceLease lease,
                        inventory.Lease(local.device, fmt::format("a comm group (rank {} of {})",
                                                                  local.rank, spec_.world_size)));
    const MutexLock lock(leases_mutex_);
    leases_.push_back(std::move(lease));
  }
  addresses_.resize(spec_.local_ranks.size());
  return ForEachRank([this](int i, DeviceSession& device) -> Status {
    addresses_[i].rank = spec_.local_ranks[i].rank;
    NS_ASSIGN_OR_RETURN(addresses_[i].address, device.OpenRank({.rank = addresses_[i].rank,
                                                                .world_size = spec_.world_size,
                                                                .timeout = spec_.timeout}));
    return absl::OkStatus();
  });
}

CommGroup::~CommGroup() { Close(); }

Status CommGroup::ForEachRank(const std::function<Status(int, DeviceSession&)>& step) {
  Mutex mutex;
  Status first;
  const auto run = [&](int i, DeviceSession& device) {
    Status status = step(i, device);
    if (status.ok()) return;
    const bool breaks = BreaksGroup(status);
    if (breaks) status = Annotate(status, fmt::format("device {}", spec_.local_ranks[i].device));
    {
      const MutexLock lock(mutex);
      if (first.ok() || (breaks && !BreaksGroup(first))) first = std::move(status);
    }
    if (breaks) CutOffRanks();
  };
  std::vector<std::future<void>> running;
  {
    const MutexLock lock(leases_mutex_);
    for (std::size_t i = 0; i < leases_.size(); ++i) {
      running.push_back(
          std::async(std::launch::async, run, static_cast<int>(i), std::ref(*leases_[i])));
    }
  }
  for (std::future<void>& one : running) one.get();
  return first;
}

Status CommGroup::Connect(const std::vector<RankAddress>& addresses, const StopSignal& stop) {
  if (Status bad = CheckAddresses(addresses, spec_.world_size); !bad.ok()) {
    const MutexLock lock(mutex_);
    last_used_ = clock_.Now();
    return bad;
  }
  NS_ASSIGN_OR_RETURN(std::unique_ptr<Call> call, Call::Begin(*this, Phase::kOpened, stop));
  NS_RETURN_IF_ERROR(
      ForEachRank([&](int, DeviceSession& device) { return device.ConnectRank(addresses); }));
  call->Connected();
  return absl::OkStatus();
}

StatusOr<std::vector<CommMeasurement>> CommGroup::Measure(const CommSample& sample,
                                                          const MeasurementSettings& settings,
                                                          const StopSignal& stop) {
  NS_ASSIGN_OR_RETURN(std::unique_ptr<Call> call, Call::Begin(*this, Phase::kConnected, stop));
  const EitherStop either(stop, closing_);
  std::vector<CommMeasurement> records(spec_.local_ranks.size());
  NS_RETURN_IF_ERROR(ForEachRank([&](int i, DeviceSession& device) -> Status {
    NS_ASSIGN_OR_RETURN(records[i], device.MeasureComm(sample, settings, either));
    return absl::OkStatus();
  }));
  return records;
}

void CommGroup::CutOffRanks() {
  const MutexLock lock(leases_mutex_);
  for (const DeviceLease& lease : leases_) lease->CutOff();
}

bool CommGroup::EndIfIdle() {
  const MutexLock lock(mutex_);
  if (call_stop_ != nullptr || clock_.Now() - last_used_ <= spec_.idle_timeout) return false;
  phase_ = Phase::kClosed;
  return true;
}

void CommGroup::CutOffIfOverdue() {
  {
    const MutexLock lock(mutex_);
    const TimePoint now = clock_.Now();
    if (call_stop_ == nullptr || !call_stop_->ShouldStop()) return;
    if (!call_stop_seen_.has_value()) call_stop_seen_ = now;
    if (now - *call_stop_seen_ <= kStopGrace) return;
  }
  CutOffRanks();
}

void CommGroup::Close() {
  closing_.Stop();
  {
    MutexLock lock(mutex_);
    phase_ = Phase::kClosed;
    const auto deadline = std::chrono::steady_clock::now() + kStopGrace;
    while (call_stop_ != nullptr && lock.WaitUntil(idle_, deadline)) {
    }
    if (call_stop_ != nullptr) {
      lock.Unlock();
      CutOffRanks();
      lock.Lock();
      while (call_stop_ != nullptr) lock.Wait(idle_);
    }
  }
  // A call that failed and its client may both close; a device takes one call at a time.
  const MutexLock ends(ends_mutex_);
  // All at once: tearing one end down can wait for the other to do the same.
  ForEachRank([](int, DeviceSession& device) {
    device.CloseRank();
    return absl::OkStatus();
  }).IgnoreError();
  std::vector<DeviceLease> leases;
  const MutexLock lock(leases_mutex_);
  leases.swap(leases_);
}

}  // namespace neuroshard
