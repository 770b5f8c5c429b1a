// ProfileCompute as question and answer with a deadline for each.
#pragma once

#include <memory>
#include <string>

#include "client/stub/worker_client.h"
#include "neuroshard/v1/worker.grpc.pb.h"

namespace neuroshard {

// `stub` must outlive the stream. Nothing is sent before the first Measure.
std::unique_ptr<ComputeStream> MakeComputeStream(v1::WorkerService::Stub& stub,
                                                 const std::string& address, int device,
                                                 const MeasurementSettings& settings);

}  // namespace neuroshard
