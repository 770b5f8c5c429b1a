// A PlannerService over a real socket that gives scripted answers and keeps the questions.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "neuroshard/v1/planner.grpc.pb.h"

namespace neuroshard::testing {

// Thread-safe once serving; set the answers before the first call.
class FakePlanner final : public v1::PlannerService::Service {
 public:
  using Answer = std::function<grpc::Status(const v1::ShardPlanRequest&, v1::ShardPlanResponse*)>;

  explicit FakePlanner(const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakePlanner() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  Answer plan = [](const v1::ShardPlanRequest&, v1::ShardPlanResponse*) {
    return grpc::Status::OK;
  };
  std::function<grpc::Status(const v1::PredictComputeRequest&, v1::PredictComputeResponse*)>
      predict = [](const v1::PredictComputeRequest&, v1::PredictComputeResponse*) {
        return grpc::Status::OK;
      };
  v1::EvaluatePlanResponse evaluation;
  v1::Plan evaluated;  // the last one
  v1::ListCostModelsResponse models;
  v1::GetCostModelResponse model;
  v1::ListDevicesResponse devices;
  v1::ServeModelResponse served;
  std::vector<v1::ServeModelRequest> serve_requests;  // that came
  // Statuses of the first calls, whatever they ask.
  std::deque<grpc::Status> failures;
  // Whether the stream breaks after its first message.
  bool stream_breaks = false;

  std::vector<v1::ShardPlanRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

  grpc::Status ShardPlan(grpc::ServerContext*, const v1::ShardPlanRequest* request,
                         v1::ShardPlanResponse* response) override {
    if (const grpc::Status status = Admit(request); !status.ok()) return status;
    return plan(*request, response);
  }

  grpc::Status ShardPlanStream(grpc::ServerContext*, const v1::ShardPlanRequest* request,
                               grpc::ServerWriter<v1::ShardPlanUpdate>* writer) override {
    if (const grpc::Status status = Admit(request); !status.ok()) return status;
    v1::ShardPlanUpdate update;
    update.set_progress(0.5);
    update.set_best_cost_ms(9);
    writer->Write(update);
    if (stream_breaks) return {grpc::StatusCode::UNAVAILABLE, "draining"};
    const grpc::Status status = plan(*request, update.mutable_best());
    update.set_progress(1);
    update.set_final(true);
    if (status.ok()) writer->Write(update);
    return status;
  }

  grpc::Status EvaluatePlan(grpc::ServerContext*, const v1::EvaluatePlanRequest* request,
                            v1::EvaluatePlanResponse* response) override {
    if (const grpc::Status status = Admit(&request->request()); !status.ok()) return status;
    evaluated = request->plan();
    *response = evaluation;
    return grpc::Status::OK;
  }

  grpc::Status PredictCompute(grpc::ServerContext*, const v1::PredictComputeRequest* request,
                              v1::PredictComputeResponse* response) override {
    if (const grpc::Status status = Admit(nullptr); !status.ok()) return status;
    return predict(*request, response);
  }

  grpc::Status ListCostModels(grpc::ServerContext*, const v1::ListCostModelsRequest*,
                              v1::ListCostModelsResponse* response) override {
    if (const grpc::Status status = Admit(nullptr); !status.ok()) return status;
    *response = models;
    return grpc::Status::OK;
  }

  grpc::Status GetCostModel(grpc::ServerContext*, const v1::GetCostModelRequest*,
                            v1::GetCostModelResponse* response) override {
    if (const grpc::Status status = Admit(nullptr); !status.ok()) return status;
    *response = model;
    return grpc::Status::OK;
  }

  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    if (const grpc::Status status = Admit(nullptr); !status.ok()) return status;
    *response = devices;
    return grpc::Status::OK;
  }

  grpc::Status ServeModel(grpc::ServerContext*, const v1::ServeModelRequest* request,
                          v1::ServeModelResponse* response) override {
    if (const grpc::Status status = Admit(nullptr); !status.ok()) return status;
    serve_requests.push_back(*request);
    *response = served;
    return grpc::Status::OK;
  }

 private:
  grpc::Status Admit(const v1::ShardPlanRequest* request) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (request != nullptr) requests_.push_back(*request);
    if (failures.empty()) return grpc::Status::OK;
    const grpc::Status status = failures.front();
    failures.pop_front();
    return status;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  mutable std::mutex mutex_;
  std::vector<v1::ShardPlanRequest> requests_;
  int calls_ = 0;
};

}  // namespace neuroshard::testing
