// A network that PyTorch saved with torch.jit.save, read and run by libtorch: the only header of
// ours with libtorch behind it, and none of libtorch's in it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/pretrain/trained_network.h"

namespace neuroshard {

// z = (x - mean) / std, by column.
struct FeatureStatistics {
  std::vector<float> mean;
  std::vector<float> std;
};

struct ScriptedLayer {
  std::string name;  // of the Linear module: "head.0"
  LinearLayer layer;
};

// How a set of rows is handed to the module's forward.
enum class ScriptedInput {
  kRows,    // a tensor [rows, columns]
  kOneSet,  // a tensor [1, rows, columns]: a batch of one set
  kList,    // a list of one tensor [rows, columns]
  kLines,   // a call for each row, with a tensor [columns]
};
inline constexpr ScriptedInput kScriptedInputs[] = {ScriptedInput::kRows, ScriptedInput::kOneSet,
                                                    ScriptedInput::kList, ScriptedInput::kLines};

// Not for several threads at once.
class ScriptedNetwork {
 public:
  // Such a file is a program, and loading it may run parts of it: only for files one trusts.
  // NOT_FOUND when there is none; INVALID_ARGUMENT when it is no TorchScript archive, and with
  // every parameter that is not the weight or the bias of a Linear layer, does not fit the other of
  // the two, or is not finite.
  static StatusOr<ScriptedNetwork> Load(const std::string& path);

  ScriptedNetwork(ScriptedNetwork&&) noexcept;
  ScriptedNetwork& operator=(ScriptedNetwork&&) noexcept;
  ~ScriptedNetwork();

  // As float32, in the order of the module's parameters; a Linear without bias has zeros.
  const std::vector<ScriptedLayer>& layers() const { return layers_; }

  // Of the module's buffers feature_mean and feature_std (or feature_means and feature_stds): it
  // normalises its inputs itself.
  const std::optional<FeatureStatistics>& statistics() const { return statistics_; }

  // All values that forward gives for `values` [rows, columns], in order. INVALID_ARGUMENT with
  // what TorchScript says when it cannot be called so or gives anything but one tensor.
  StatusOr<std::vector<float>> Run(ScriptedInput input, std::int64_t rows,
                                   std::span<const float> values) const;

 private:
  struct Module;

  explicit ScriptedNetwork(std::unique_ptr<Module> module);

  std::unique_ptr<Module> module_;
  std::vector<ScriptedLayer> layers_;
  std::optional<FeatureStatistics> statistics_;
};

}  // namespace neuroshard
