#include "server/models/model_drift.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>

#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "server/models/manifest_section.h"
#include "server/models/regular_file.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxDriftBytes = 1 << 16;
constexpr std::size_t kMaxStages = 16;
constexpr double kLeastRatio = 1e-9;
constexpr double kMostRatio = 1e9;

// They become labels of a metric.
bool IsStageName(const std::string& name) {
  constexpr std::size_t kMaxNameLength = 64;
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::islower(c) != 0 || c == '_'; });
}

StageDrift ReadStage(const std::string& stage, const YAML::Node& node, Violations& violations) {
  StageDrift drift;
  drift.stage = stage;
  const ManifestSection section(node, "stages." + stage,
                                {"samples", "median_ratio", "p10", "p90", "since", "until"},
                                violations);
  if (!section.valid()) return drift;
  drift.samples = section.RequiredInteger("samples", 1, INT64_MAX);
  drift.median_ratio = section.RequiredNumber("median_ratio", kLeastRatio, kMostRatio);
  drift.p10_ratio = section.RequiredNumber("p10", kLeastRatio, kMostRatio);
  drift.p90_ratio = section.RequiredNumber("p90", kLeastRatio, kMostRatio);
  drift.since = section.RequiredText("since");
  drift.until = section.RequiredText("until");
  return drift;
}

std::vector<StageDrift> ReadStages(const YAML::Node& node, Violations& violations) {
  std::vector<StageDrift> stages;
  if (!node.IsMap() || node.size() > kMaxStages) {
    violations.Add("stages", fmt::format("must be a mapping of at most {} stages", kMaxStages));
    return stages;
  }
  for (const auto& item : node) {
    if (!item.first.IsScalar() || !IsStageName(item.first.Scalar())) {
      violations.Add("stages", "has a key that is not a stage: lower case letters and '_'");
      continue;
    }
    stages.push_back(ReadStage(item.first.Scalar(), item.second, violations));
  }
  const auto by_name = [](const StageDrift& a, const StageDrift& b) { return a.stage < b.stage; };
  std::sort(stages.begin(), stages.end(), by_name);
  for (std::size_t i = 1; i < stages.size(); ++i) {
    if (stages[i].stage == stages[i - 1].stage) {
      violations.Add("stages." + stages[i].stage, "stated twice");
    }
  }
  return stages;
}

}  // namespace

StatusOr<std::vector<StageDrift>> ParseModelDrift(std::string_view yaml) {
  if (!IsUtf8(yaml)) return InvalidArgument("not valid YAML: the text is not UTF-8");
  Violations violations;
  std::vector<StageDrift> stages;
  try {
    const ManifestSection root(YAML::Load(std::string(yaml)), "", {"format", "stages"}, violations);
    if (root.valid()) {
      root.Constant("format", kDriftFormat);
      if (const YAML::Node* node = root.Require("stages")) stages = ReadStages(*node, violations);
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument("not valid YAML: {}", error.what());
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return stages;
}

StatusOr<std::string> FormatModelDrift(const std::vector<StageDrift>& drift) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value << std::string(kDriftFormat);
  out << YAML::Key << "stages" << YAML::Value << YAML::BeginMap;
  for (const StageDrift& stage : drift) {
    out << YAML::Key << stage.stage << YAML::Value << YAML::BeginMap;
    out << YAML::Key << "samples" << YAML::Value << stage.samples;
    out << YAML::Key << "median_ratio" << YAML::Value << fmt::format("{}", stage.median_ratio);
    out << YAML::Key << "p10" << YAML::Value << fmt::format("{}", stage.p10_ratio);
    out << YAML::Key << "p90" << YAML::Value << fmt::format("{}", stage.p90_ratio);
    out << YAML::Key << "since" << YAML::Value << stage.since;
    out << YAML::Key << "until" << YAML::Value << stage.until;
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::EndMap;
  std::string text = std::string(out.c_str()) + "\n";
  NS_RETURN_IF_ERROR(ParseModelDrift(text).status());
  return text;
}

StatusOr<std::vector<StageDrift>> ReadModelDrift(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kDriftFileName;
  const StatusOr<std::string> text = ReadRegularFile(path, kMaxDriftBytes);
  if (absl::IsNotFound(text.status())) return std::vector<StageDrift>();
  if (!text.ok()) return text.status();
  StatusOr<std::vector<StageDrift>> drift = ParseModelDrift(*text);
  if (!drift.ok()) return Annotate(drift.status(), path.string());
  return drift;
}

Status WriteModelDrift(const std::filesystem::path& directory,
                       const std::vector<StageDrift>& drift) {
  NS_ASSIGN_OR_RETURN(const std::string text, FormatModelDrift(drift));
  return WriteFileAtomically(directory / kDriftFileName, text);
}

}  // namespace neuroshard
