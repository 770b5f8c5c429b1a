#include "worker/device/comm_group.h"

#include <fmt/format.h>

#include <exception>
#include <set>

#include "common/base/random_token.h"
#include "common/base/violations.h"

namespace neuroshard {
namespace {

void CheckTimeout(const char* field, std::chrono::milliseconds value, Violations& violations) {
  if (value < kMinGroupTimeout || value > kMaxGroupTimeout) {
    violations.Add(field, fmt::format("must be in [{}, {}], got {}", kMinGroupTimeout.count(),
                                      kMaxGroupTimeout.count(), value.count()));
  }
}

Status CheckAddresses(const std::vector<RankAddress>& addresses, int world_size) {
  Violations violations;
  std::set<int> seen;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const std::string field = fmt::format("addresses[{}].rank", i);
    const int rank = addresses[i].rank;
    if (rank < 0 || rank >= world_size) {
      violations.Add(field, fmt::format("must be in [0, {}), got {}", world_size, rank));
    } else if (!seen.insert(rank).second) {
      violations.Add(field, fmt::format("rank {} has an address already", rank));
    }
  }
  for (int rank = 0; rank < world_size; ++rank) {
    if (!seen.contains(rank)) violations.Add("addresses", fmt::format("none of rank {}", rank));
  }
  return violations.ToStatus();
}

}  // namespace

Status CheckCommGroupSpec(const CommGroupSpec& spec, int num_devices) {
  Violations violations;
  if (spec.group_id.empty() || spec.group_id.size() > kMaxGroupIdBytes) {
    violations.Add("group_id", fmt::format("must have 1 to {} bytes, got {}", kMaxGroupIdBytes,
                                           spec.group_id.size()));
  }
  if (spec.world_size < 1 || spec.world_size > kMaxWorldSize) {
    violations.Add("world_size",
                   fmt::format("must be in [1, {}], got {}", kMaxWorldSize, spec.world_size));
  }
  if (spec.local_ranks.empty()) violations.Add("local_ranks", "must have at least one entry");
  std::set<int> ranks;
  std::set<int> devices;
  for (std::size_t i = 0; i < spec.local_ranks.size(); ++i) {
    const auto [rank, device] = spec.local_ranks[i];
    if (rank < 0 || rank >= spec.world_size) {
      violations.Add(fmt::format("local_ranks[{}].rank", i),
                     fmt::format("must be in [0, {}), got {}", spec.world_size, rank));
    } else if (!ranks.insert(rank).second) {
      violations.Add(fmt::format("local_ranks[{}].rank", i),
                     fmt::format("rank {} appears twice", rank));
    }
    if (device < 0 || device >= num_devices) {
      violations.Add(fmt::format("local_ranks[{}].device", i),
                     fmt::format("must be in [0, {}), got {}", num_devices, device));
    } else if (!devices.insert(device).second) {
      violations.Add(fmt::format("local_ranks[{}].device", i),
                     fmt::format("device {} appears twice; each rank needs its own", device));
    }
  }
  CheckTimeout("timeout_ms", spec.timeout, violations);
  CheckTimeout("idle_timeout_ms", spec.idle_timeout, violations);
  return violations.ToStatus();
}

bool BreaksGroup(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return false;
    default:
      return true;
  }
}

class CommGroup::Call {
 public:
  static StatusOr<std::unique_ptr<Call>> Begin(CommGroup& group, Phase expected,
                                               const StopSignal& stop) {
    const MutexLock lock(group.mutex_);
    const std::string& id = group.spec_.group_id;
    if (group.phase_ == Phase::kClosed) return NotFound("comm group '{}' is closed", id);
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
      if (connected_ && group_.phase_ == Phase::kOpened) group_.phase_ = Phase::kConnected;
    }
    group_.idle_.notify_all();
  }
  void Connected() { connected_ = true; }

 private:
  CommGroup& group_;
  bool connected_ = false;
};

StatusOr<std::shared_ptr<CommGroup>> CommGroup::Open(CommGroupSpec spec,
                                                     DeviceInventory& inventory) {
  NS_ASSIGN_OR_RETURN(std::string token, RandomToken());
  std::shared_ptr<CommGroup> group(new CommGroup(std::move(spec), std::move(token)));
  NS_RETURN_IF_ERROR(group->OpenMembers(inventory));
  return group;
}

Status CommGroup::OpenMembers(DeviceInventory& inventory) {
  for (const LocalRank& local : spec_.local_ranks) {
    NS_ASSIGN_OR_RETURN(DeviceLease lease,
                        inventory.Lease(local.device, fmt::format("a comm group (rank {} of {})",
                                                                  local.rank, spec_.world_size)));
    members_.push_back({.lease = std::move(lease), .pending = nullptr, .communicator = nullptr});
  }
  NS_RETURN_IF_ERROR(ForEachMember([this](int i, Member& member, DeviceBackend& backend) -> Status {
    NS_ASSIGN_OR_RETURN(member.pending, backend.OpenCommunicator({.rank = spec_.local_ranks[i].rank,
                                                                  .world_size = spec_.world_size,
                                                                  .timeout = spec_.timeout}));
    return absl::OkStatus();
  }));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    addresses_.push_back(
        {.rank = spec_.local_ranks[i].rank, .address = members_[i].pending->address()});
  }
  return absl::OkStatus();
}

CommGroup::~CommGroup() { Close(); }

Status CommGroup::ForEachMember(const std::function<Status(int, Member&, DeviceBackend&)>& step) {
  std::vector<std::future<Status>> running;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    running.push_back(member.lease.Run([i, &member, &step](DeviceBackend& backend) -> Status {
      try {
        return step(static_cast<int>(i), member, backend);
      } catch (const std::exception& error) {  // every future must be waited for, so none may throw
        return Internal("uncaught in the work of a comm group: {}", error.what());
      }
    }));
  }
  Status first;
  for (std::future<Status>& one : running) {
    if (Status status = one.get(); first.ok()) first = std::move(status);
  }
  return first;
}

Status CommGroup::Connect(const std::vector<RankAddress>& addresses, const StopSignal& stop) {
  NS_RETURN_IF_ERROR(CheckAddresses(addresses, spec_.world_size));
  std::vector<std::string> by_rank(spec_.world_size);
  for (const RankAddress& one : addresses) by_rank[one.rank] = one.address;

  NS_ASSIGN_OR_RETURN(std::unique_ptr<Call> call, Call::Begin(*this, Phase::kOpened, stop));
  NS_RETURN_IF_ERROR(ForEachMember([&, this](int, Member& member, DeviceBackend&) -> Status {
    StatusOr<std::unique_ptr<Communicator>> connected = member.pending->Connect(by_rank);
    std::unique_ptr<PendingCommunicator> used;
    const MutexLock lock(ends_mutex_);
    used.swap(member.pending);
    // Whatever the backend calls it, a mesh that did not come up cannot be tried again.
    if (!connected.ok()) return absl::AbortedError(connected.status().message());
    member.communicator = *std::move(connected);
    return absl::OkStatus();
  }));
  call->Connected();
  return absl::OkStatus();
}

Status CommGroup::Run(const RankWork& work, const StopSignal& stop) {
  NS_ASSIGN_OR_RETURN(std::unique_ptr<Call> call, Call::Begin(*this, Phase::kConnected, stop));
  return ForEachMember([this, &work](int i, Member& member, DeviceBackend& backend) -> Status {
    if (member.communicator == nullptr) {
      return absl::AbortedError("the group was broken by an earlier failure");
    }
    Status status = work(i, backend, *member.communicator, closing_);
    if (BreaksGroup(status)) {
      std::unique_ptr<Communicator> broken;
      const MutexLock lock(ends_mutex_);
      broken.swap(member.communicator);
    }
    return status;
  });
}

void CommGroup::AbortEnds() {
  const MutexLock lock(ends_mutex_);
  for (Member& member : members_) {
    if (member.pending != nullptr) member.pending->Abort();
    if (member.communicator != nullptr) member.communicator->Abort();
  }
}

void CommGroup::CutOffIfOverdue(TimePoint now) {
  {
    const MutexLock lock(mutex_);
    if (call_stop_ == nullptr || !call_stop_->ShouldStop()) return;
    if (!call_stop_seen_.has_value()) call_stop_seen_ = now;
    if (now - *call_stop_seen_ <= kStopGrace) return;
  }
  AbortEnds();
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
      AbortEnds();
      lock.Lock();
      while (call_stop_ != nullptr) lock.Wait(idle_);
    }
  }
  std::vector<Member> members;
  {
    const MutexLock lock(ends_mutex_);
    members.swap(members_);
  }
  // All at once: tearing one end down can wait for the other to do the same.
  std::vector<std::future<void>> running;
  for (Member& member : members) {
    running.push_back(member.lease.Run([&member](DeviceBackend&) {
      member.pending.reset();
      member.communicator.reset();
    }));
  }
  for (std::future<void>& one : running) one.wait();
}

}  // namespace neuroshard
