#include "server/planner/price_basis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"
#include "common/domain/shard_layout.h"
#include "common/domain/table_names.h"
#include "server/planner/condition_warnings.h"

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

// Of devices, at least one; the request's, where it has put own ones in place of the table's.
std::string FiguresOf(const Topology& topology, const std::vector<std::string>& devices) {
  const PublishedDevice& first = *FindDevice(devices.front());
  const bool own = devices.size() == 1 &&
                   (topology.fabric != first.fabric ||
                    topology.bandwidths.device_memory_bytes_per_s != first.memory_bytes_per_s);
  return fmt::format("{} {}", own ? "the request's figures for" : "published figures of",
                     fmt::join(devices, " and "));
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
        "TorchRec's formulas with {}; nothing was measured: costs compare plans "
        "but do not forecast times",
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

// Whether the request wants the distribution of ids priced, and the model has not measured it at
// the request's ranks and hosts.
bool LacksInputDist(const CostModelInfo& model, const PlanRequest& request) {
  const Topology& topology = request.topology;
  if (!request.pipeline_type || topology.num_ranks() == 1) return false;
  const auto& measured = model.properties.measured_input_dist;
  return !measured ||
         !measured->At(topology.num_ranks(), static_cast<int>(topology.hosts().size())).has_value();
}

std::string InputDistText(const Topology& topology, const std::vector<std::string>& devices) {
  std::string figures = "the request's bandwidths";
  if (!devices.empty()) {
    figures = FiguresOf(topology, devices);
  } else if (topology.bandwidths == Bandwidths()) {
    figures = "default bandwidths of a V100-class host";
  }
  return "the distribution of ids is a formula over " + figures;
}

// Nothing where no row block of the plan is priced as the hottest.
void AddHotRowBlocks(const PlanRequest& request, const Plan& plan,
                     std::vector<std::string>& differences) {
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::size_t count = 0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] >= 0 && CutsRows(plan.tables[t].sharding_type)) {
      count += request.tables[static_cast<std::size_t>(table_of[t])].hot_row_blocks;
    }
  }
  if (count == 0) return;
  differences.push_back(fmt::format(
      "row blocks of {} {} priced as the hottest, whose ids are expected from the reuse histogram",
      count, count == 1 ? "table are" : "tables are"));
}

// Everything but the differences and what depends on the request's stages.
PriceBasis BasisOf(const CostModelInfo& model, const std::string& formulas, bool communicates) {
  PriceBasis basis;
  if (model.kind == kAnalyticKind) {
    basis.text = "prices rest on " + formulas;
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

PriceBasis WithDifferences(PriceBasis basis, std::vector<std::string> differences) {
  basis.differences = std::move(differences);
  if (!basis.differences.empty()) {
    basis.text += fmt::format("; {}", fmt::join(basis.differences, "; "));
  }
  return basis;
}

bool IsIn(CostStage stage, const FormulaAddition& addition) {
  return std::find(addition.stages.begin(), addition.stages.end(), stage) != addition.stages.end();
}

// Of a stage that is priced by the model itself.
BasisKind KindOf(CostStage stage, const CostModelInfo& model,
                 const std::vector<FormulaAddition>& additions) {
  if (model.kind == kAnalyticKind) return BasisKind::kPublished;
  return std::any_of(additions.begin(), additions.end(),
                     [stage](const FormulaAddition& addition) { return IsIn(stage, addition); })
             ? BasisKind::kMixed
             : BasisKind::kMeasured;
}

// Of things that are priced apart, together. At least one.
template <typename Parts>
BasisKind KindOfAll(const Parts& parts) {
  const BasisKind first = parts.front().kind;
  return std::all_of(parts.begin(), parts.end(),
                     [first](const auto& part) { return part.kind == first; })
             ? first
             : BasisKind::kMixed;
}

std::vector<StagePriceBasis> StagesOf(const PlanRequest& request, const CostModelInfo& model,
                                      const std::vector<FormulaAddition>& additions) {
  std::vector<StagePriceBasis> stages = {
      {CostStage::kCompute, KindOf(CostStage::kCompute, model, additions)}};
  if (request.topology.num_ranks() == 1) return stages;
  for (const CostStage stage : {CostStage::kForwardComm, CostStage::kBackwardComm}) {
    stages.push_back({stage, model.coverage.comm_fabric.empty() ? KindOf(stage, model, additions)
                                                                : BasisKind::kPublished});
  }
  if (request.pipeline_type) {
    stages.push_back({CostStage::kInputDist, LacksInputDist(model, request)
                                                 ? BasisKind::kPublished
                                                 : BasisKind::kMeasured});
  }
  return stages;
}

// Formulas besides what was measured: each is a difference of its own. Of the basis's stages.
void AddFormulas(const std::vector<FormulaAddition>& additions, PriceBasis& basis,
                 std::vector<std::string>& differences) {
  if (additions.empty()) return;
  std::vector<std::string_view> mixed;
  for (const StagePriceBasis& of : basis.stages) {
    if (of.kind == BasisKind::kMixed) mixed.push_back(ToText(of.stage));
  }
  if (!mixed.empty()) {
    basis.text +=
        fmt::format(", and on formulas for what was not measured ({})", fmt::join(mixed, ", "));
  }
  for (const FormulaAddition& addition : additions) differences.push_back(addition.text);
}

// The conditions of the request that are outside, as one difference.
void AddOutside(const std::vector<std::string>& conditions, std::vector<std::string>& differences) {
  if (conditions.empty()) return;
  differences.push_back(
      fmt::format("not measured at the request's {}", fmt::join(conditions, ", ")));
}

// Those of the additions that are in one of the stages.
std::vector<FormulaAddition> AdditionsIn(const std::vector<StagePriceBasis>& stages,
                                         std::vector<FormulaAddition> additions) {
  std::erase_if(additions, [&](const FormulaAddition& addition) {
    return std::none_of(stages.begin(), stages.end(),
                        [&](const StagePriceBasis& of) { return IsIn(of.stage, addition); });
  });
  return additions;
}

// In front of what is said of communication: the compute of each kind of devices. Each kind's model
// also has the distribution of ids to its ranks.
void AddDevices(const PlanRequest& request, const CostModelInfo& comm, const Plan& plan,
                const std::vector<DeviceModel>& devices, PriceBasis& basis,
                std::vector<std::string>& differences) {
  const std::vector<std::string> names = DeviceNames(request.topology);
  const std::string formulas = FormulasText(request.topology, names);
  std::string text;
  std::vector<StagePriceBasis> input_dist;
  for (const DeviceModel& of : devices) {
    const CostModelInfo info = ComputeInfo(of.model->info());
    const std::string name = of.device.empty() ? "hosts without a device" : of.device;
    PriceBasis of_device = BasisOf(info, formulas, false);
    const auto all = FormulaAdditions(request, info, plan);
    of_device.stages = {{CostStage::kCompute, KindOf(CostStage::kCompute, info, all)}};
    const auto additions = AdditionsIn(of_device.stages, all);
    const bool lacks_input_dist = LacksInputDist(info, request);
    std::vector<std::string> of_compute;
    if (info.kind != kAnalyticKind) {
      if (!IsEachOf(info.measured_with.device, {{of.device}})) {
        of_compute.push_back(fmt::format("that is not {}", name));
      }
      AddOutside(UnmeasuredConditions(request, info), of_compute);
      AddFormulas(additions, of_device, of_compute);
    }
    for (const std::string& difference : of_compute) {
      differences.push_back(fmt::format("compute of {}: {}", name, difference));
    }
    if (info.kind != kAnalyticKind && lacks_input_dist) {
      differences.push_back(fmt::format("{}: {}", name, InputDistText(request.topology, names)));
    }
    text += fmt::format("compute of {} ({} rank{}) by {} version {}: {}; ", name, of.num_ranks,
                        of.num_ranks == 1 ? "" : "s", info.name, info.version, of_device.text);
    basis.measured_until = std::max(basis.measured_until, of_device.measured_until);
    basis.devices.push_back({of.device, of.num_ranks, info.name, info.version, info.measured_with,
                             of_device.stages.front().kind, info.digest});
    input_dist.push_back(
        {CostStage::kInputDist, lacks_input_dist ? BasisKind::kPublished : BasisKind::kMeasured});
  }
  basis.stages.insert(basis.stages.begin(), {CostStage::kCompute, KindOfAll(basis.devices)});
  if (request.pipeline_type && request.topology.num_ranks() > 1) {
    basis.stages.push_back({CostStage::kInputDist, KindOfAll(input_dist)});
  }
  basis.text = fmt::format("{}communication by {} version {}: {}", text, comm.name, comm.version,
                           basis.text);
}

}  // namespace

std::string UnnamedDevices(const Topology& topology) {
  return topology.compute_device
             ? "the request names no device (topology.hosts[].device)"
             : "the request says nothing of its devices (topology.compute_device, "
               "topology.hosts[].device)";
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
                        const std::string& why_not_measured, const Plan& plan,
                        const std::vector<DeviceModel>& by_device) {
  const std::vector<std::string> devices = DeviceNames(request.topology);
  PriceBasis basis =
      BasisOf(model, FormulasText(request.topology, devices), request.topology.num_ranks() > 1);
  const auto additions = FormulaAdditions(request, model, plan);
  basis.stages = StagesOf(request, model, additions);
  if (!by_device.empty()) {  // compute and the distribution of ids are the devices'
    std::erase_if(basis.stages, [](const StagePriceBasis& of) {
      return of.stage == CostStage::kCompute || of.stage == CostStage::kInputDist;
    });
  }
  std::vector<std::string> differences;
  if (model.kind == kAnalyticKind) {
    if (!why_not_measured.empty()) {
      differences.push_back(why_not_measured);
    } else if (devices.empty()) {
      differences.push_back(UnnamedDevices(request.topology));
    }
    if (HasRowsOnSsd(plan)) {
      differences.push_back(fmt::format(
          "rows on SSD (key_value) are all read from the SSDs, as TorchRec has it, at {}",
          SsdBandwidthText(request.topology)));
    }
  } else {
    if (const std::string others = OtherDevices(request.topology, model); !others.empty()) {
      differences.push_back(fmt::format("the request is for {}", others));
    } else if (request.cost_model.name.empty() && devices.empty() &&
               request.topology.compute_device != ComputeDevice::kCpu) {
      differences.push_back(UnnamedDevices(request.topology));
    }
    AddOutside(UnmeasuredConditions(request, model), differences);
    if (by_device.empty() && LacksInputDist(model, request)) {
      differences.push_back(InputDistText(request.topology, devices));
    }
    AddFormulas(AdditionsIn(basis.stages, additions), basis, differences);
  }
  AddHotRowBlocks(request, plan, differences);
  if (!by_device.empty()) AddDevices(request, model, plan, by_device, basis, differences);
  basis.kind = KindOfAll(basis.stages);
  return WithDifferences(std::move(basis), std::move(differences));
}

PriceBasis PriceBasisOf(std::span<const ComputeSample> sets, const CostModelInfo& model) {
  PriceBasis basis = BasisOf(model, FormulasText({}, {}), false);
  const auto additions = FormulaAdditions(sets, model);
  basis.kind = KindOf(CostStage::kCompute, model, additions);
  basis.stages = {{CostStage::kCompute, basis.kind}};
  std::vector<std::string> differences;
  if (model.kind != kAnalyticKind) AddOutside(UnmeasuredConditions(sets, model), differences);
  AddFormulas(additions, basis, differences);
  return WithDifferences(std::move(basis), std::move(differences));
}

}  // namespace neuroshard
