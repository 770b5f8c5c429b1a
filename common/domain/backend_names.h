// Names of backends: whose kernels and whose collectives a measurement timed. Devices, records,
// models and answers have them; kernels/README.md lists all and what each runs.
#pragma once

#include <string>
#include <string_view>

#include "common/domain/measurement.h"
#include "common/domain/plan_cost.h"

namespace neuroshard {

// Kernels of this project.
inline constexpr std::string_view kNeuroshardCpu = "neuroshard-cpu";
inline constexpr std::string_view kNeuroshardCuda = "neuroshard-cuda";
// Collectives: schedules of this project over TCP, and NVIDIA's library.
inline constexpr std::string_view kNeuroshardTcp = "neuroshard-tcp";
inline constexpr std::string_view kNccl = "nccl";
// torch.distributed's over Gloo (client/python/neuroshard/worker).
inline constexpr std::string_view kTorchGloo = "torch-gloo";

// Today's name of a backend that workers before 2026-11-22 called "cpu", "cuda" or "gloo" (no
// backend may get these names again); any other name is returned unchanged.
std::string BackendNameToday(std::string_view name);

// "A kernels and B collectives on DEVICE"; less where something is not stated.
std::string MeasuredWithText(const MeasuredWith& with);

// For records from elsewhere: a store, a worker.
void UseBackendNamesOfToday(MeasurementEnvironment& environment);

// The backend of a record of a collective; empty where it does not say.
std::string CollectiveBackendOf(const MeasurementEnvironment& environment);

}  // namespace neuroshard
