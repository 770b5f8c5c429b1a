#include "worker/device/local_device_session.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "common/base/violations.h"
#include "worker/measure/comm_measurement.h"
#include "worker/measure/compute_measurement.h"

namespace neuroshard {

StatusOr<std::unique_ptr<LocalDeviceSession>> LocalDeviceSession::Open(const DeviceSpec& spec,
                                                                       const RecordStamp& stamp,
                                                                       const Timekeeper& time) {
  std::unique_ptr<LocalDeviceSession> session(new LocalDeviceSession(spec.core, stamp, time));
  NS_RETURN_IF_ERROR(session->executor_
                         .Run([&]() -> Status {
                           NS_ASSIGN_OR_RETURN(session->backend_, spec.create());
                           session->properties_ = session->backend_->properties();
                           return absl::OkStatus();
                         })
                         .get());
  return session;
}

LocalDeviceSession::~LocalDeviceSession() {
  CloseRank();
  executor_.Run([this] { backend_.reset(); }).wait();
}

Status LocalDeviceSession::Prepare() {
  const Status health = backend_->Health();
  return health.ok() ? health : Unavailable("{}", Message(health));
}

StatusOr<ComputeMeasurement> LocalDeviceSession::MeasureCompute(const ComputeSample& sample,
                                                                const MeasurementSettings& settings,
                                                                const StopSignal& stop) {
  return executor_
      .Run([&] { return ::neuroshard::MeasureCompute(*backend_, sample, settings, stamp_, stop); })
      .get();
}

StatusOr<std::string> LocalDeviceSession::OpenRank(const CommunicatorSpec& spec) {
  return executor_
      .Run([&]() -> StatusOr<std::string> {
        NS_ASSIGN_OR_RETURN(auto pending, backend_->OpenCommunicator(spec));
        const std::string address = pending->address();
        const MutexLock lock(ends_mutex_);
        pending_ = std::move(pending);
        return address;
      })
      .get();
}

Status LocalDeviceSession::ConnectRank(const std::vector<RankAddress>& addresses) {
  return executor_
      .Run([&]() -> Status {
        PendingCommunicator* pending = nullptr;
        {
          const MutexLock lock(ends_mutex_);
          pending = pending_.get();  // reset on this thread alone
        }
        if (pending == nullptr) return FailedPrecondition("no rank is waiting to be connected");
        Violations violations;
        std::vector<std::string> by_rank(addresses.size());
        for (std::size_t i = 0; i < addresses.size(); ++i) {
          const Status status = pending->CheckAddress(addresses[i].address);
          if (!status.ok()) {
            violations.Add(fmt::format("addresses[{}].address", i), Message(status));
          }
          by_rank.at(addresses[i].rank) = addresses[i].address;
        }
        NS_RETURN_IF_ERROR(violations.ToStatus());
        StatusOr<std::unique_ptr<Communicator>> connected = pending->Connect(std::move(by_rank));
        std::unique_ptr<PendingCommunicator> used;
        const MutexLock lock(ends_mutex_);
        used.swap(pending_);
        // Whatever the backend calls it, a mesh that did not come up cannot be tried again.
        if (!connected.ok()) return absl::AbortedError(connected.status().message());
        communicator_ = *std::move(connected);
        return absl::OkStatus();
      })
      .get();
}

StatusOr<CommMeasurement> LocalDeviceSession::MeasureComm(const CommSample& sample,
                                                          const MeasurementSettings& settings,
                                                          const StopSignal& stop) {
  return executor_
      .Run([&]() -> StatusOr<CommMeasurement> {
        Communicator* communicator = nullptr;
        {
          const MutexLock lock(ends_mutex_);
          communicator = communicator_.get();  // reset on this thread alone
        }
        if (communicator == nullptr) {
          return absl::AbortedError("the group was broken by an earlier failure");
        }
        StatusOr<CommMeasurement> record = Internal("not measured");
        try {
          record = ::neuroshard::MeasureComm(*communicator, properties_, sample, settings, stamp_,
                                             time_, stop);
        } catch (const std::exception& error) {
          record = Internal("uncaught in the work of a comm group: {}", error.what());
        }
        if (BreaksGroup(record.status())) {
          std::unique_ptr<Communicator> broken;
          const MutexLock lock(ends_mutex_);
          broken.swap(communicator_);
        }
        return record;
      })
      .get();
}

void LocalDeviceSession::CloseRank() {
  executor_
      .Run([this] {
        std::unique_ptr<PendingCommunicator> pending;
        std::unique_ptr<Communicator> communicator;
        const MutexLock lock(ends_mutex_);
        pending.swap(pending_);
        communicator.swap(communicator_);
      })
      .wait();
}

void LocalDeviceSession::CutOff() {
  const MutexLock lock(ends_mutex_);
  if (pending_ != nullptr) pending_->Abort();
  if (communicator_ != nullptr) communicator_->Abort();
}

}  // namespace neuroshard
