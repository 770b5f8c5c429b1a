#include "server/planner/price_basis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"

namespace neuroshard {
namespace {

// "2026-11-22" of "2026-11-22T04:33:09Z"; empty where the model does not say.
std::string MeasuredUntil(const CostModelInfo& model) {
  const auto found = model.details.find("provenance.measured_to");
  if (found == model.details.end()) return "";
  return found->second.substr(0, found->second.find('T'));
}

// "with neuroshard-cpu kernels on AMD EPYC (a CPU), until 2026-11-22".
std::string MeasurementText(const CostModelInfo& model) {
  std::string text = MeasuredWithText(model.measured_with);
  text = text.empty() ? " on a device that the model does not state" : " with " + text;
  if (ComputeDeviceOf(model.measured_with) == ComputeDevice::kCpu) text += " (a CPU)";
  const std::string until = MeasuredUntil(model);
  return text + (until.empty() ? ", when is not stated" : ", until " + until);
}

// What a rank has between hosts: where ranks share a card, the request may have meant the card.
std::string BetweenHosts(const Topology& topology) {
  if (topology.hosts().size() < 2) return "";
  return fmt::format(", {:.4g} GB/s of each rank between hosts",
                     topology.bandwidths.inter_host_bytes_per_s / 1e9);
}

std::string FormulasText(const Topology& topology, const std::vector<std::string>& devices) {
  const Bandwidths& bandwidths = topology.bandwidths;
  if (devices.empty()) {
    return fmt::format(
        "TorchRec's formulas with {}; nothing was measured: costs compare plans but do not "
        "forecast times",
        bandwidths == Bandwidths() ? "their default bandwidths of a V100-class host"
                                   : "the request's bandwidths" + BetweenHosts(topology));
  }
  std::string figures =
      fmt::format("{:.0f} GB/s of memory", bandwidths.device_memory_bytes_per_s / 1e9);
  if (topology.fabric && topology.num_ranks() > 1) {
    figures += fmt::format(", {:.0f} GB/s on a host", bandwidths.intra_host_bytes_per_s / 1e9);
    figures += BetweenHosts(topology);
    figures += ": " + topology.fabric->name;
  }
  return fmt::format(
      "{} ({}) in TorchRec's formulas; nothing was measured: costs compare plans but do not "
      "forecast times",
      FiguresOf(topology, devices), figures);
}

// Everything but the differences and what depends on the request's stages.
PriceBasis BasisOf(const CostModelInfo& model, const std::string& formulas, bool communicates) {
  PriceBasis basis;
  if (model.kind == kAnalyticKind) {
    basis.text = "prices rest on " + formulas;
    if (model.name != kAnalyticKind) basis.text += "; coefficients are those of " + model.name;
    return basis;
  }
  basis.measured_until = MeasuredUntil(model);
  if (model.coverage.comm_fabric.empty() || !communicates) {
    basis.text = "prices rest on measurements" + MeasurementText(model);
    if (!communicates) return basis;
    basis.collective_cadence = model.measured_with.collective_cadence;
    // Behind a barrier is what an answer of before there was another cadence leaves unsaid.
    if (basis.collective_cadence == ToText(Cadence::kBackToBack)) {
      basis.text += ", collectives issued back to back";
    }
    if (model.properties.measured_steps) {
      basis.text +=
          ", and on recorded steps of a trainer for each exchange that it issues (one for each "
          "module and sharding type)";
    }
    return basis;
  }
  basis.text = fmt::format(
      "prices rest on compute measured{}, and on published figures of the fabric {} for "
      "communication",
      MeasurementText(model), model.coverage.comm_fabric);
  if (ComputeDeviceOf(model.measured_with) == ComputeDevice::kCpu) {
    basis.text += ": a CPU's compute with the links of GPUs, which no machine has";
  }
  return basis;
}

// The distribution of ids.
bool IsOfIds(CostStage stage) { return stage != CostStage::kCompute && !IsComm(stage); }

// The kind of all parts together, which are priced apart; mixed where they differ. At least one.
template <typename Parts>
BasisKind KindOfAll(const Parts& parts) {
  const BasisKind first = parts.front().kind;
  return std::ranges::all_of(parts, [first](const auto& part) { return part.kind == first; })
             ? first
             : BasisKind::kMixed;
}

// What a model says of itself, and its gaps in `stages` behind the differences that the basis has:
// all conditions as one, then each formula.
void AddGaps(const std::vector<Gap>& gaps, const std::vector<CostStage>& stages,
             PriceBasis& basis) {
  std::vector<std::string_view> mixed;
  for (const CostStage stage : stages) {
    if (KindOf(stage, gaps) == BasisKind::kMixed) mixed.push_back(ToText(stage));
  }
  if (!mixed.empty()) {
    basis.text +=
        fmt::format(", and on formulas for what was not measured ({})", fmt::join(mixed, ", "));
  }
  std::vector<std::string_view> conditions;
  for (const Gap& gap : gaps) {
    if (!gap.condition.empty()) conditions.push_back(gap.condition);
  }
  if (!conditions.empty()) {
    basis.differences.push_back(
        fmt::format("not measured at the request's {}", fmt::join(conditions, ", ")));
  }
  for (const Gap& gap : gaps) {
    const bool is_told =
        gap.stages.empty() || std::find_first_of(gap.stages.begin(), gap.stages.end(),
                                                 stages.begin(), stages.end()) != gap.stages.end();
    if (is_told && !gap.difference.empty()) basis.differences.push_back(gap.difference);
  }
}

PriceBasis WithDifferences(PriceBasis basis) {
  if (!basis.differences.empty()) {
    basis.text += fmt::format("; {}", fmt::join(basis.differences, "; "));
  }
  return basis;
}

// How the request's devices, or what it says of them, differ from those of the model; empty: not.
std::string DeviceDifference(const PlanRequest& request, const CostModelInfo& model,
                             const std::string& why_not_measured) {
  const Topology& topology = request.topology;
  const bool named = !DeviceNames(topology).empty();
  if (model.kind == kAnalyticKind) {
    return why_not_measured.empty() && !named ? UnnamedDevices(topology) : why_not_measured;
  }
  const std::string others = OtherDevices(topology, model);
  if (!others.empty()) return "the request is for " + others;
  const bool may_be_others =
      request.cost_model.name.empty() && !named && topology.compute_device != ComputeDevice::kCpu;
  return may_be_others ? UnnamedDevices(topology) : "";
}

// In front of what is said of communication: the compute of each kind of devices, whose models have
// all but communication.
void AddDevices(const PlanRequest& request, const CostModelInfo& comm,
                const std::vector<DeviceModel>& devices, PriceBasis& basis) {
  const std::string formulas = FormulasText(request.topology, DeviceNames(request.topology));
  std::string text;
  for (const DeviceModel& of : devices) {
    const std::string name = of.device.empty() ? "hosts without a device" : of.device;
    PriceBasis compute = BasisOf(of.info, formulas, false);
    if (!IsEachOf(of.info.measured_with.device, {{of.device}})) {
      compute.differences.push_back(fmt::format("that is not {}", name));
    }
    AddGaps(of.gaps, {CostStage::kCompute}, compute);
    if (of.info.kind != kAnalyticKind) {
      for (const std::string& difference : compute.differences) {
        basis.differences.push_back(fmt::format("compute of {}: {}", name, difference));
      }
    }
    for (const Gap& gap : of.gaps) {
      if (gap.difference.empty() || !std::ranges::any_of(gap.stages, IsOfIds)) {
        continue;
      }
      basis.differences.push_back(fmt::format("{}: {}", name, gap.difference));
    }
    text += fmt::format("compute of {} ({} rank{}) by {} version {}: {}; ", name, of.num_ranks,
                        of.num_ranks == 1 ? "" : "s", of.info.name, of.info.version, compute.text);
    basis.measured_until = std::max(basis.measured_until, compute.measured_until);
    basis.devices.push_back({of.device, of.num_ranks, of.info.name, of.info.version,
                             of.info.measured_with, KindOf(CostStage::kCompute, of.gaps),
                             of.info.digest});
  }
  basis.text = fmt::format("{}communication by {} version {}: {}", text, comm.name, comm.version,
                           basis.text);
}

// What one stage of all ranks rests on.
StagePriceBasis StageOf(CostStage stage, const std::vector<Gap>& gaps,
                        const std::vector<DeviceModel>& by_device) {
  if (by_device.empty() || IsComm(stage)) return {stage, KindOf(stage, gaps)};
  std::vector<StagePriceBasis> parts;
  for (const DeviceModel& of : by_device) parts.push_back({stage, KindOf(stage, of.gaps)});
  return {stage, KindOfAll(parts)};
}

}  // namespace

std::string UnnamedDevices(const Topology& topology) {
  return topology.compute_device ? "the request names no device (topology.hosts[].device)"
                                 : "the request says nothing of its devices "
                                   "(topology.compute_device, topology.hosts[].device)";
}

std::string OtherDevices(const Topology& topology, const CostModelInfo& model) {
  const std::vector<std::string> devices = DeviceNames(topology);
  if (!devices.empty()) {
    return IsEachOf(model.measured_with.device, devices)
               ? ""
               : fmt::format("{}", fmt::join(devices, " and "));
  }
  const auto measured_on = ComputeDeviceOf(model.measured_with);
  if (!topology.compute_device || !measured_on || measured_on == topology.compute_device) return "";
  return fmt::format("{} devices", ToText(*topology.compute_device));
}

PriceBasis PriceBasisOf(const PlanRequest& request, const CostModelInfo& model,
                        const std::vector<Gap>& gaps, const std::string& why_not_measured,
                        const std::vector<DeviceModel>& by_device) {
  const std::vector<std::string> devices = DeviceNames(request.topology);
  PriceBasis basis =
      BasisOf(model, FormulasText(request.topology, devices), request.topology.num_ranks() > 1);
  std::vector<CostStage> own;
  for (const CostStage stage : StagesOf(request)) {
    basis.stages.push_back(StageOf(stage, gaps, by_device));
    if (by_device.empty() || IsComm(stage)) own.push_back(stage);
  }
  const std::string of_devices = DeviceDifference(request, model, why_not_measured);
  if (!of_devices.empty()) basis.differences.push_back(of_devices);
  AddGaps(gaps, own, basis);
  if (!by_device.empty()) AddDevices(request, model, by_device, basis);
  basis.kind = KindOfAll(basis.stages);
  return WithDifferences(std::move(basis));
}

PriceBasis PriceBasisOf(const CostModelInfo& model, const std::vector<Gap>& gaps) {
  PriceBasis basis = BasisOf(model, FormulasText({}, {}), false);
  AddGaps(gaps, {CostStage::kCompute}, basis);
  basis.kind = KindOf(CostStage::kCompute, gaps);
  basis.stages = {{CostStage::kCompute, basis.kind}};
  return WithDifferences(std::move(basis));
}

}  // namespace neuroshard
