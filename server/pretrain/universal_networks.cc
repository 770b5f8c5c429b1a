#include "server/pretrain/universal_networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "server/cost/comm_features.h"

namespace neuroshard {
namespace {

constexpr float kGreatestPhiExponent = 10;
constexpr float kGreatestCommExponent = 12;
// exp of it: what a fresh head adds to the linear part, and a fresh phi's size.
constexpr float kSmallHead = -3;
constexpr float kSmallPhi = -2;
constexpr float kSmallFloor = 0.0025f;

// A linear step's part of the flat array, with the name of its tensors.
struct NamedStep {
  const GraphStep* step = nullptr;
  std::int64_t inputs = 0;
  std::string name;
};

// The linear steps in order, named as in a compute file: the table layers, hidden, output, linear.
std::vector<NamedStep> ComputeSteps(const NetworkGraph& graph) {
  std::vector<NamedStep> steps;
  int tables = 0;
  const char* const heads[] = {"hidden", "output", "linear"};
  int head = 0;
  for (const GraphStep& step : graph.steps()) {
    if (step.kind != GraphStepKind::kLinear) continue;
    const bool is_table = step.level == GraphLevel::kRow;
    steps.push_back({&step, graph.step(step.input).width,
                     is_table ? fmt::format("table.{}", tables++) : heads[head++]});
  }
  return steps;
}

// The network's layers, then the step of wait and floor, which has no name of its own.
std::vector<NamedStep> CommSteps(const NetworkGraph& graph) {
  std::vector<NamedStep> steps;
  int layers = 0;
  for (const GraphStep& step : graph.steps()) {
    if (step.kind != GraphStepKind::kLinear) continue;
    const bool is_layer = step.level == GraphLevel::kRow;
    steps.push_back(
        {&step, graph.step(step.input).width, is_layer ? fmt::format("layer.{}", layers++) : ""});
  }
  return steps;
}

std::vector<float> Slice(std::span<const float> values, std::size_t begin, std::size_t count) {
  const auto part = values.subspan(begin, count);
  return {part.begin(), part.end()};
}

Tensor WeightOf(const NamedStep& named, std::span<const float> weights) {
  const auto count = static_cast<std::size_t>(named.step->width * named.inputs);
  return {{named.step->width, named.inputs}, Slice(weights, named.step->weight, count)};
}

Tensor BiasOf(const NamedStep& named, std::span<const float> weights) {
  const auto count = static_cast<std::size_t>(named.step->width);
  return {{named.step->width}, Slice(weights, named.step->bias, count)};
}

void Scale(double factor, Tensor& tensor) {
  for (float& value : tensor.values) value = static_cast<float>(value * factor);
}

void IgnoreConstant(const Standardisation& standardisation, Tensor& first_weight) {
  const std::size_t columns = standardisation.deviation.size();
  for (std::size_t at = 0; at < first_weight.values.size(); ++at) {
    if (standardisation.deviation[at % columns] == 0) first_weight.values[at] = 0;
  }
}

// Copies a tensor of the file to its place, times `factor`; false when it is not that large.
bool Place(const TensorFile& file, const std::string& name, std::size_t count, double factor,
           float* to) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end() || found->second.values.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(found->second.values[i] * factor);
  }
  return true;
}

}  // namespace

NetworkGraph UniversalComputeGraph(const UniversalComputeShape& shape) {
  NetworkGraph graph;
  int step = graph.AddRowInput(shape.features);
  for (const std::int64_t width : shape.table_hidden) {
    step = graph.AddLinear(step, width, {Activation::kRelu});
  }
  step = graph.AddLinear(step, shape.representation, {Activation::kExp, kGreatestPhiExponent});
  const int sum = graph.AddSum(step);
  const int hidden = graph.AddLinear(sum, shape.head_width, {Activation::kRelu});
  const int output = graph.AddLinear(
      hidden, shape.outputs, {Activation::kNone, 0, shape.head_width, WeightForm::kExp, true});
  const int linear = graph.AddLinear(
      sum, shape.outputs, {Activation::kNone, 0, shape.representation, WeightForm::kExp, true});
  graph.Add(output, linear);
  return graph;
}

std::vector<float> UniversalComputeStart(const NetworkGraph& graph, Random& random) {
  std::vector<float> start = graph.InitialParameters(random);
  for (const NamedStep& named : ComputeSteps(graph)) {
    const GraphStep& step = *named.step;
    const auto weight = start.begin() + static_cast<std::ptrdiff_t>(step.weight);
    const auto bias = start.begin() + static_cast<std::ptrdiff_t>(step.bias);
    if (step.activation == Activation::kExp) {
      std::for_each(bias, bias + step.width, [](float& value) { value += kSmallPhi; });
    } else if (named.name == "output") {
      std::for_each(weight, bias, [](float& value) { value += kSmallHead; });
      std::fill(bias, bias + step.width, kSmallHead);
    } else if (named.name == "linear") {
      std::fill(weight, bias, -std::log(static_cast<float>(named.inputs)));
      std::fill(bias, bias + step.width, kSmallHead);
    }
  }
  return start;
}

NetworkGraph UniversalCommGraph(const UniversalCommShape& shape) {
  constexpr std::int64_t kAll = std::int64_t{1} << 30;
  NetworkGraph graph;
  int step = graph.AddRowInput(kCommFeatures);
  std::int64_t formed = kMonotoneCommFeatures;
  for (const std::int64_t width : shape.hidden) {
    step = graph.AddLinear(step, width,
                           {Activation::kSignedHalves, 0, formed, WeightForm::kMagnitude});
    formed = kAll;
  }
  step = graph.AddLinear(step, 1,
                         {Activation::kExp, kGreatestCommExponent, formed, WeightForm::kMagnitude});
  const int network = graph.AddSum(step);
  const int known = graph.AddLinear(graph.AddSampleInput(2 * kCollectiveKinds), 1,
                                    {Activation::kNone, 0, kAll, WeightForm::kMagnitude, true});
  graph.Add(network, known);
  return graph;
}

std::vector<float> UniversalCommStart(const NetworkGraph& graph, Random& random) {
  std::vector<float> start = graph.InitialParameters(random);
  const GraphStep& known = *CommSteps(graph).back().step;
  const auto weight = start.begin() + static_cast<std::ptrdiff_t>(known.weight);
  std::fill(weight, weight + kCollectiveKinds, 1.0f);
  std::fill(weight + kCollectiveKinds, weight + 2 * kCollectiveKinds, kSmallFloor);
  start[known.bias] = kSmallFloor;
  return start;
}

void AddComputeMember(const NetworkGraph& graph, std::span<const float> weights, int member,
                      double unit_ms, const Standardisation& standardisation, TensorFile& file) {
  const std::string prefix = fmt::format("member.{}.", member);
  Tensor output_bias;
  for (const NamedStep& named : ComputeSteps(graph)) {
    Tensor weight = WeightOf(named, weights);
    Tensor bias = BiasOf(named, weights);
    if (named.name == "table.0") IgnoreConstant(standardisation, weight);
    if (named.name == "output" || named.name == "linear") {
      Scale(unit_ms, weight);
      Scale(unit_ms, bias);
    }
    if (named.name == "output") {
      output_bias = bias;  // both are constants of the cost; the file has one
    } else {
      if (named.name == "linear") {
        for (std::size_t o = 0; o < bias.values.size(); ++o) {
          bias.values[o] += output_bias.values[o];
        }
      }
      file.tensors[prefix + named.name + ".bias"] = std::move(bias);
    }
    file.tensors[prefix + named.name + ".weight"] = std::move(weight);
  }
}

void AddCommMember(const NetworkGraph& graph, std::span<const float> weights, int member,
                   double unit_ms, const Standardisation& standardisation,
                   const std::vector<bool>& measured, TensorFile& file) {
  const std::string prefix = fmt::format("member.{}.", member);
  const std::vector<NamedStep> steps = CommSteps(graph);
  const std::size_t last_layer = steps.size() - 2;
  for (std::size_t i = 0; i <= last_layer; ++i) {
    Tensor weight = WeightOf(steps[i], weights);
    Tensor bias = BiasOf(steps[i], weights);
    if (i == 0) IgnoreConstant(standardisation, weight);
    if (i == last_layer) bias.values[0] += static_cast<float>(std::log(unit_ms));
    file.tensors[prefix + steps[i].name + ".weight"] = std::move(weight);
    file.tensors[prefix + steps[i].name + ".bias"] = std::move(bias);
  }
  const GraphStep& known = *steps.back().step;
  Tensor wait = {{kCollectiveKinds}, Slice(weights, known.weight, kCollectiveKinds)};
  Tensor floor = {{kCollectiveKinds},
                  Slice(weights, known.weight + kCollectiveKinds, kCollectiveKinds)};
  for (std::size_t c = 0; c < kCollectiveKinds; ++c) {
    floor.values[c] =
        measured[c] ? static_cast<float>((floor.values[c] + weights[known.bias]) * unit_ms) : 0.0f;
    if (!measured[c]) wait.values[c] = 0;
  }
  file.tensors[prefix + "wait_scale"] = std::move(wait);
  file.tensors[prefix + "floor_ms"] = std::move(floor);
}

std::vector<float> ComputeMemberWeights(const NetworkGraph& graph, const TensorFile& file,
                                        int member, double unit_ms) {
  const std::string prefix = fmt::format("member.{}.", member);
  std::vector<float> weights(graph.num_parameters());
  bool fits = true;
  for (const NamedStep& named : ComputeSteps(graph)) {
    const bool of_cost = named.name == "output" || named.name == "linear";
    const double factor = of_cost ? 1 / unit_ms : 1;
    const auto count = static_cast<std::size_t>(named.step->width * named.inputs);
    fits = fits && Place(file, prefix + named.name + ".weight", count, factor,
                         weights.data() + named.step->weight);
    if (named.name == "output") continue;  // its bias is in that of linear
    fits = fits &&
           Place(file, prefix + named.name + ".bias", static_cast<std::size_t>(named.step->width),
                 factor, weights.data() + named.step->bias);
  }
  return fits ? weights : std::vector<float>();
}

std::vector<float> CommMemberWeights(const NetworkGraph& graph, const TensorFile& file, int member,
                                     double unit_ms) {
  const std::string prefix = fmt::format("member.{}.", member);
  std::vector<float> weights(graph.num_parameters());
  const std::vector<NamedStep> steps = CommSteps(graph);
  bool fits = true;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto count = static_cast<std::size_t>(steps[i].step->width * steps[i].inputs);
    fits = fits && Place(file, prefix + steps[i].name + ".weight", count, 1,
                         weights.data() + steps[i].step->weight);
    fits = fits && Place(file, prefix + steps[i].name + ".bias",
                         static_cast<std::size_t>(steps[i].step->width), 1,
                         weights.data() + steps[i].step->bias);
  }
  weights[steps[steps.size() - 2].step->bias] -= static_cast<float>(std::log(unit_ms));
  float* known = weights.data() + steps.back().step->weight;
  fits = fits && Place(file, prefix + "wait_scale", kCollectiveKinds, 1, known);
  fits = fits &&
         Place(file, prefix + "floor_ms", kCollectiveKinds, 1 / unit_ms, known + kCollectiveKinds);
  return fits ? weights : std::vector<float>();
}

}  // namespace neuroshard
