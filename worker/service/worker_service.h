// WorkerService (proto/neuroshard/v1/worker.proto): measures samples on leased devices and on comm
// groups.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "common/observe/logger.h"
#include "common/rpc/rpc_gate.h"
#include "neuroshard/v1/worker.grpc.pb.h"
#include "worker/device/comm_group_registry.h"
#include "worker/device/device_inventory.h"
#include "worker/measure/record_stamp.h"
#include "worker/service/worker_metrics.h"

namespace neuroshard {

// Limits of the service.
struct WorkerServiceOptions {
  // How long a ProfileCompute stream may wait for its client (to send the next sample, or to read a
  // record) before it is cancelled and its device is free again.
  std::chrono::milliseconds stream_idle_timeout{60000};
};

// What a worker measures with. All must outlive the service; metrics may be null.
struct WorkerParts {
  DeviceInventory& inventory;
  CommGroupRegistry& groups;
  MeasurementEnvironment host;  // IdentifyHost
  WorkerMetrics* metrics;
};

// A measurement that runs when the server drains is finished if the grace period suffices; the
// stream then ends with UNAVAILABLE. Calls that measure hold a thread each; GetWorkerInfo holds
// none, so that it is answered when there are no more. Leases and groups are audited.
class WorkerServiceImpl final
    : public v1::WorkerService::WithCallbackMethod_GetWorkerInfo<v1::WorkerService::Service> {
 public:
  // Gate, clock and logger must outlive the service.
  WorkerServiceImpl(WorkerParts parts, RpcGate& gate, const Clock& clock, const Logger& logger,
                    WorkerServiceOptions options)
      : parts_(std::move(parts)), gate_(gate), clock_(clock), logger_(logger), options_(options) {}

  // What GetWorkerInfo answers. Any thread.
  v1::WorkerInfo Info() const;

  grpc::ServerUnaryReactor* GetWorkerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetWorkerInfoRequest* request,
                                          v1::WorkerInfo* response) override;
  grpc::Status ProfileCompute(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<v1::ProfileComputeResponse,
                                                       v1::ProfileComputeRequest>* stream) override;
  grpc::Status OpenCommGroup(grpc::ServerContext* context, const v1::OpenCommGroupRequest* request,
                             v1::OpenCommGroupResponse* response) override;
  grpc::Status ConnectCommGroup(grpc::ServerContext* context,
                                const v1::ConnectCommGroupRequest* request,
                                v1::ConnectCommGroupResponse* response) override;
  grpc::Status ProfileComm(grpc::ServerContext* context, const v1::ProfileCommRequest* request,
                           v1::ProfileCommResponse* response) override;
  grpc::Status CloseCommGroup(grpc::ServerContext* context,
                              const v1::CloseCommGroupRequest* request,
                              v1::CloseCommGroupResponse* response) override;

 private:
  using ComputeStream =
      grpc::ServerReaderWriter<v1::ProfileComputeResponse, v1::ProfileComputeRequest>;
  Status RunComputeStream(RpcGate::Call& call, grpc::ServerContext& context, ComputeStream& stream);
  // One record a local rank.
  StatusOr<std::vector<CommMeasurement>> MeasureComm(const CommGroupKey& group,
                                                     const CommSample& sample,
                                                     const MeasurementSettings& settings,
                                                     const StopSignal& stop);
  void Record(MeasurementKind kind, TimePoint begin, const Status& status, Outcome outcome);

  const WorkerParts parts_;
  RpcGate& gate_;
  const Clock& clock_;
  const Logger& logger_;
  const WorkerServiceOptions options_;
};

}  // namespace neuroshard
