#include "server/pretrain/torchscript/scripted_network.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

#include "common/base/violations.h"

namespace neuroshard {
namespace {

// TorchScript's errors are traces of many lines, the cause in the last ones.
std::string Cause(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  constexpr std::size_t kKept = 300;
  if (text.size() > kKept) text = "... " + text.substr(text.size() - kKept);
  return text;
}

std::vector<float> ToFloats(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kFloat).contiguous();
  const float* data = plain.data_ptr<float>();
  return {data, data + plain.numel()};
}

std::string ParameterShape(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

void CheckFinite(const std::string& name, const std::vector<float>& values,
                 Violations& violations) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    violations.Add(name, fmt::format("value {} is {}, must be finite", i, values[i]));
    return;
  }
}

// "head.0.weight" -> "head.0", when it ends so.
std::optional<std::string> OwnerOf(const std::string& name, const std::string& ending) {
  if (name == ending) return "";
  if (!name.ends_with("." + ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size() - 1);
}

StatusOr<std::vector<ScriptedLayer>> LayersOf(const torch::jit::Module& module) {
  Violations violations;
  std::vector<ScriptedLayer> layers;
  std::map<std::string, std::size_t> position;
  std::vector<std::pair<std::string, at::Tensor>> biases;
  for (const auto& parameter : module.named_parameters(/*recurse=*/true)) {
    const std::string& name = parameter.name;
    const at::Tensor& value = parameter.value;
    const auto owner = OwnerOf(name, "weight");
    if (owner && value.dim() == 2) {
      ScriptedLayer layer{*owner, {value.size(1), value.size(0), ToFloats(value), {}}};
      CheckFinite(name, layer.layer.weight, violations);
      position[*owner] = layers.size();
      layers.push_back(std::move(layer));
    } else if (OwnerOf(name, "bias") && value.dim() == 1) {
      biases.emplace_back(name, value);
    } else {
      violations.Add(name, fmt::format("shape {}: neither weight nor bias of a Linear layer, and "
                                       "such a network has nothing else",
                                       ParameterShape(value)));
    }
  }
  for (const auto& [name, value] : biases) {
    const auto found = position.find(*OwnerOf(name, "bias"));
    if (found == position.end()) {
      violations.Add(name, "a bias without the weight of a Linear layer");
      continue;
    }
    LinearLayer& layer = layers[found->second].layer;
    layer.bias = ToFloats(value);
    CheckFinite(name, layer.bias, violations);
    if (static_cast<std::int64_t>(layer.bias.size()) != layer.outputs) {
      violations.Add(name,
                     fmt::format("{} values for {} outputs", layer.bias.size(), layer.outputs));
    }
  }
  for (ScriptedLayer& layer : layers) {
    if (layer.layer.bias.empty()) {
      layer.layer.bias.resize(static_cast<std::size_t>(layer.layer.outputs));
    }
  }
  if (layers.empty() && violations.empty()) {
    violations.Add("parameters",
                   "none; a module that was frozen (torch.jit.freeze) or optimised for inference "
                   "keeps its weights as constants: save it before that");
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return layers;
}

std::optional<FeatureStatistics> StatisticsOf(const torch::jit::Module& module) {
  FeatureStatistics statistics;
  for (const auto& buffer : module.named_buffers(/*recurse=*/true)) {
    for (const char* plural : {"", "s"}) {
      if (OwnerOf(buffer.name, fmt::format("feature_mean{}", plural))) {
        statistics.mean = ToFloats(buffer.value);
      } else if (OwnerOf(buffer.name, fmt::format("feature_std{}", plural))) {
        statistics.std = ToFloats(buffer.value);
      }
    }
  }
  if (statistics.mean.empty() && statistics.std.empty()) return std::nullopt;
  return statistics;
}

}  // namespace

struct ScriptedNetwork::Module {
  mutable torch::jit::Module module;  // its forward is not const

  std::vector<float> Call(c10::IValue argument) const {
    const c10::IValue result = module.forward({std::move(argument)});
    if (!result.isTensor()) throw std::invalid_argument("forward gives no tensor");
    return ToFloats(result.toTensor());
  }
};

ScriptedNetwork::ScriptedNetwork(std::unique_ptr<Module> module) : module_(std::move(module)) {}
ScriptedNetwork::ScriptedNetwork(ScriptedNetwork&&) noexcept = default;
ScriptedNetwork& ScriptedNetwork::operator=(ScriptedNetwork&&) noexcept = default;
ScriptedNetwork::~ScriptedNetwork() = default;

StatusOr<ScriptedNetwork> ScriptedNetwork::Load(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return NotFound("no such file");
  at::set_num_threads(1);  // small matrices, and the same sums on every machine
  try {
    auto module = std::make_unique<Module>();
    module->module = torch::jit::load(path, c10::kCPU);
    module->module.eval();
    module->module.to(at::kFloat);
    ScriptedNetwork network(std::move(module));
    NS_ASSIGN_OR_RETURN(network.layers_, LayersOf(network.module_->module));
    network.statistics_ = StatisticsOf(network.module_->module);
    return network;
  } catch (const std::exception& failure) {
    return InvalidArgument(
        "cannot be read as a TorchScript archive (torch.jit.save; for checkpoints of torch.save "
        "there is client/python/convert_checkpoints.py): {}",
        Cause(failure));
  }
}

StatusOr<std::vector<float>> ScriptedNetwork::Run(ScriptedInput input, std::int64_t rows,
                                                  std::span<const float> values) const {
  const std::int64_t columns = static_cast<std::int64_t>(values.size()) / rows;
  const c10::InferenceMode inference;
  at::Tensor tensor = at::empty({rows, columns}, at::kFloat);
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  try {
    switch (input) {
      case ScriptedInput::kRows:
        return module_->Call(tensor);
      case ScriptedInput::kOneSet:
        return module_->Call(tensor.unsqueeze(0));
      case ScriptedInput::kList:
        return module_->Call(c10::List<at::Tensor>({tensor}));
      case ScriptedInput::kLines:
        break;
    }
    std::vector<float> all;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<float> line = module_->Call(tensor[row]);
      all.insert(all.end(), line.begin(), line.end());
    }
    return all;
  } catch (const std::exception& failure) {
    return InvalidArgument("forward fails: {}", Cause(failure));
  }
}

}  // namespace neuroshard
