#include "server/networks/model_drift.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>

#include "common/base/printable_text.h"
#include "common/text/config_reader.h"
#include "server/networks/manifest_fields.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxDriftBytes = 1 << 16;
constexpr std::size_t kMaxStages = 16;
constexpr RealRange kRatio{1e-9, 1e9};

// They become labels of a metric.
bool IsStageName(const std::string& name) {
  constexpr std::size_t kMaxNameLength = 64;
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::islower(c) != 0 || c == '_'; });
}

StageDrift ReadStage(const std::string& stage, ConfigReader section) {
  StageDrift drift;
  drift.stage = stage;
  section.Require({"samples", "median_ratio", "p10", "p90", "since", "until"});
  section.Read("samples", &drift.samples, {1, INT64_MAX});
  section.Read("median_ratio", &drift.median_ratio, kRatio);
  section.Read("p10", &drift.p10_ratio, kRatio);
  section.Read("p90", &drift.p90_ratio, kRatio);
  drift.since = ReadText(section, "since");
  drift.until = ReadText(section, "until");
  return drift;
}

}  // namespace

StatusOr<std::vector<StageDrift>> ParseModelDrift(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(ConfigReader root, ConfigReader::FromText(std::string(yaml), ""));
  RequireEnd(root, ReadFormat(root, kDriftFormat), yaml);
  root.Require({"stages"});
  ConfigReader section = root.Section("stages");
  if (section.keys().size() > kMaxStages) {
    root.AddViolation("stages", fmt::format("must have at most {} stages, got {}", kMaxStages,
                                            section.keys().size()));
  }
  std::vector<StageDrift> stages;
  for (const std::string& stage : section.keys()) {
    auto of_stage = section.SectionIfGiven(stage);
    if (!IsStageName(stage)) {
      root.AddViolation("stages",
                        fmt::format("{} is no stage: lower case letters and '_'", Quoted(stage)));
    } else if (of_stage) {
      stages.push_back(ReadStage(stage, *of_stage));
    }
  }
  NS_RETURN_IF_ERROR(root.Finish());
  const auto by_name = [](const StageDrift& a, const StageDrift& b) { return a.stage < b.stage; };
  std::sort(stages.begin(), stages.end(), by_name);
  return stages;
}

StatusOr<std::string> FormatModelDrift(const std::vector<StageDrift>& drift) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value
      << fmt::format("{}/2", kDriftFormat);
  out << YAML::Key << "stages" << YAML::Value << YAML::BeginMap;
  for (const StageDrift& stage : drift) {
    out << YAML::Key << stage.stage << YAML::Value << YAML::BeginMap;
    EmitScalar(out, "samples", stage.samples);
    EmitScalar(out, "median_ratio", stage.median_ratio);
    EmitScalar(out, "p10", stage.p10_ratio);
    EmitScalar(out, "p90", stage.p90_ratio);
    EmitScalar(out, "since", stage.since);
    EmitScalar(out, "until", stage.until);
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::EndMap;
  std::string text = fmt::format("{}\n{}", out.c_str(), kEndOfText);
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
