#include "server/pretrain/torchscript/matched_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "common/base/random.h"
#include "server/cost/neural/mlp_network.h"
#include "server/cost/neural/normalisation.h"

namespace neuroshard {
namespace {

// Inputs of one call and what the planner's forward pass makes of them.
struct Trial {
  std::int64_t rows = 0;
  std::vector<float> inputs;
  std::vector<float> normalised;
};

struct Agreement {
  double difference = std::numeric_limits<double>::infinity();
  std::string where;  // of the largest difference, or why nothing could be compared

  bool ok() const { return difference <= kLargestDifference; }
};

std::vector<std::int64_t> Widths(const std::vector<ScriptedLayer>& layers, std::size_t begin,
                                 std::size_t end) {
  std::vector<std::int64_t> widths = {layers[begin].layer.inputs};
  for (std::size_t i = begin; i < end; ++i) widths.push_back(layers[i].layer.outputs);
  return widths;
}

void AddTensors(const std::vector<ScriptedLayer>& layers, std::size_t begin, std::size_t end,
                const std::string& prefix, TensorFile& file) {
  for (std::size_t i = begin; i < end; ++i) {
    const LinearLayer& layer = layers[i].layer;
    const std::string name = fmt::format("{}.{}", prefix, i - begin);
    file.tensors[name + ".weight"] = {{layer.outputs, layer.inputs}, layer.weight};
    file.tensors[name + ".bias"] = {{layer.outputs}, layer.bias};
  }
}

// With the first `summed` layers before the sum; 0: none.
MatchedNetwork Assemble(const ScriptedNetwork& network, const FeatureStatistics& statistics,
                        std::size_t summed) {
  const auto& layers = network.layers();
  MatchedNetwork result;
  const auto columns = static_cast<std::int64_t>(statistics.mean.size());
  result.file.tensors["feature_mean"] = {{columns}, statistics.mean};
  result.file.tensors["feature_std"] = {{columns}, statistics.std};
  if (summed > 0) {
    result.table_layers = Widths(layers, 0, summed);
    AddTensors(layers, 0, summed, "table", result.file);
  }
  result.head_layers = Widths(layers, summed, layers.size());
  AddTensors(layers, summed, layers.size(), summed > 0 ? "head" : "layer", result.file);
  return result;
}

// What the planner computes for a trial.
std::vector<float> RunOurs(const MatchedNetwork& network, const Trial& trial) {
  const bool sums = !network.table_layers.empty();
  const MlpNetwork head(network.file, sums ? "head" : "layer", network.head_layers,
                        DenseActivation::kNone);
  std::int64_t rows = trial.rows;
  std::vector<float> values = trial.normalised;
  if (sums) {
    const MlpNetwork phi(network.file, "table", network.table_layers, DenseActivation::kRelu);
    const auto width = static_cast<std::size_t>(phi.output_width());
    std::vector<float> lines(static_cast<std::size_t>(rows) * width);
    phi.Run(rows, values, lines);
    values.assign(width, 0);
    for (std::size_t i = 0; i < lines.size(); ++i) values[i % width] += lines[i];
    rows = 1;
  }
  std::vector<float> out(static_cast<std::size_t>(rows * head.output_width()));
  head.Run(rows, values, out);
  return out;
}

// As the module takes them: a module that normalises gets what the statistics make of z.
std::vector<Trial> MakeTrials(const ScriptedNetwork& network, const FeatureStatistics& statistics,
                              const std::vector<std::int64_t>& row_counts) {
  const std::size_t columns = statistics.mean.size();
  const bool normalises = network.statistics().has_value();
  TensorFile file;
  file.tensors["feature_mean"] = {{static_cast<std::int64_t>(columns)}, statistics.mean};
  file.tensors["feature_std"] = {{static_cast<std::int64_t>(columns)}, statistics.std};
  const Normalisation normalisation(file);
  Random random(1);
  std::vector<Trial> trials;
  for (const double scale : {0.3, 1.0, 3.0}) {
    for (const std::int64_t rows : row_counts) {
      Trial trial{rows, {}, {}};
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * columns; ++i) {
        const std::size_t column = i % columns;
        const double z = scale * (2 * random.UniformReal() - 1);
        const double x = normalises ? statistics.mean[column] + z * statistics.std[column] : z;
        trial.inputs.push_back(static_cast<float>(x));
        trial.normalised.push_back(normalises ? normalisation.Apply(column, trial.inputs.back())
                                              : trial.inputs.back());
      }
      trials.push_back(std::move(trial));
    }
  }
  return trials;
}

using Results = std::vector<std::vector<float>>;  // of each trial

// Costs below 0 become 0 when the planner serves them, so a module may do that too.
bool RaisedToZero(float module, float ours) { return module == 0 && ours < 0; }

Agreement Compare(const std::vector<Trial>& trials, const Results& module, const Results& ours) {
  double largest = 0;
  double highest = 0;
  for (const auto& values : module) {
    for (const float value : values) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
      highest = std::max(highest, static_cast<double>(value));
    }
  }
  if (highest <= 0) return {Agreement{}.difference, "forward gives no cost above 0 for any input"};
  Agreement agreement{0, ""};
  for (std::size_t t = 0; t < trials.size(); ++t) {
    for (std::size_t i = 0; i < ours[t].size(); ++i) {
      const double a = module[t][i];
      const double b = ours[t][i];
      if (RaisedToZero(module[t][i], ours[t][i])) continue;
      const double difference =
          std::abs(a - b) / std::max({std::abs(a), std::abs(b), 0.1 * largest});
      if (difference <= agreement.difference) continue;  // of NaN: goes on below
      agreement.difference =
          std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
      agreement.where = fmt::format("value {} for {} random rows is {:.6g}, and {:.6g} here", i,
                                    trials[t].rows, a, b);
    }
  }
  return agreement;
}

// What the module makes of all trials when called in this way.
StatusOr<Results> RunModule(const ScriptedNetwork& network, ScriptedInput input,
                            const std::vector<Trial>& trials, bool sums) {
  const std::int64_t outputs = network.layers().back().layer.outputs;
  Results results;
  for (const Trial& trial : trials) {
    NS_ASSIGN_OR_RETURN(auto values, network.Run(input, trial.rows, trial.inputs));
    const std::int64_t expected = outputs * (sums ? 1 : trial.rows);
    if (static_cast<std::int64_t>(values.size()) != expected) {
      return InvalidArgument("forward gives {} values for {} rows, must be {}", values.size(),
                             trial.rows, expected);
    }
    results.push_back(std::move(values));
  }
  return results;
}

// The module's results in every way in which it can be called; the first way's failure if none.
StatusOr<std::vector<Results>> RunModuleInEveryWay(const ScriptedNetwork& network,
                                                   const std::vector<Trial>& trials, bool sums) {
  std::vector<Results> all;
  Status failure;
  for (const ScriptedInput input : kScriptedInputs) {
    if (sums && input == ScriptedInput::kLines) continue;
    auto results = RunModule(network, input, trials, sums);
    if (results.ok()) {
      all.push_back(*std::move(results));
    } else if (failure.ok()) {
      failure = results.status();
    }
  }
  if (all.empty()) return failure;
  return all;
}

// Puts the best agreement of the candidate with any of the ways into it.
Agreement BestAgreement(const std::vector<Trial>& trials, const std::vector<Results>& ways,
                        MatchedNetwork& candidate) {
  Results ours;
  for (const Trial& trial : trials) ours.push_back(RunOurs(candidate, trial));
  Agreement best;
  for (const Results& module : ways) {
    Agreement agreement = Compare(trials, module, ours);
    if (best.where.empty() || agreement.difference < best.difference) best = std::move(agreement);
  }
  candidate.largest_difference = best.difference;
  return best;
}

Status Disagrees(const Agreement& agreement, const std::string& what) {
  return InvalidArgument(
      "the module computes something else than its Linear layers with {}: {} (difference {:.2g}, "
      "may be {:.0e})",
      what, agreement.where, agreement.difference, kLargestDifference);
}

}  // namespace

void CheckLayerChain(const ScriptedNetwork& network, std::int64_t inputs, std::int64_t outputs,
                     Violations& violations) {
  std::int64_t columns = inputs;
  for (const ScriptedLayer& layer : network.layers()) {
    if (layer.layer.inputs != columns) {
      violations.Add(layer.name + ".weight",
                     fmt::format("{} inputs, {} before it", layer.layer.inputs, columns));
    }
    columns = layer.layer.outputs;
  }
  if (columns != outputs) {
    violations.Add(network.layers().back().name + ".weight",
                   fmt::format("{} outputs of the network, must be {}", columns, outputs));
  }
}

StatusOr<MatchedNetwork> MatchComputeNetwork(const ScriptedNetwork& network,
                                             const FeatureStatistics& statistics,
                                             std::optional<int> table_layers) {
  const auto count = static_cast<int>(network.layers().size());
  if (count < 2) return InvalidArgument("one Linear layer; needs some before the sum and behind");
  if (table_layers && (*table_layers < 1 || *table_layers >= count)) {
    return InvalidArgument("{} Linear layers, the sum cannot come after {}", count, *table_layers);
  }
  const std::vector<Trial> trials = MakeTrials(network, statistics, {1, 2, 5, 17});
  NS_ASSIGN_OR_RETURN(const auto ways, RunModuleInEveryWay(network, trials, true));
  std::optional<MatchedNetwork> found;
  Agreement nearest;
  int nearest_sum = 0;
  const int first = table_layers.value_or(1);
  const int last = table_layers.value_or(count - 1);
  for (int summed = first; summed <= last; ++summed) {
    MatchedNetwork candidate = Assemble(network, statistics, static_cast<std::size_t>(summed));
    Agreement agreement = BestAgreement(trials, ways, candidate);
    if (agreement.ok() && found) {
      return InvalidArgument(
          "gives the same with the sum after {} and after {} Linear layers; say which",
          found->table_layers.size() - 1, summed);
    }
    if (agreement.ok()) found = std::move(candidate);
    if (nearest_sum == 0 || agreement.difference < nearest.difference) {
      nearest = std::move(agreement);
      nearest_sum = summed;
    }
  }
  if (found) return *std::move(found);
  return Disagrees(nearest, fmt::format("ReLU, and the sum over rows after {} of them{}",
                                        nearest_sum, table_layers ? "" : " (the nearest place)"));
}

StatusOr<MatchedNetwork> MatchCommNetwork(const ScriptedNetwork& network,
                                          const FeatureStatistics& statistics) {
  const std::vector<Trial> trials = MakeTrials(network, statistics, {1, 17});
  NS_ASSIGN_OR_RETURN(const auto ways, RunModuleInEveryWay(network, trials, false));
  MatchedNetwork candidate = Assemble(network, statistics, 0);
  const Agreement agreement = BestAgreement(trials, ways, candidate);
  if (!agreement.ok()) return Disagrees(agreement, "ReLU between them");
  return candidate;
}

}  // namespace neuroshard
