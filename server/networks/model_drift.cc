#include "server/networks/model_drift.h"

#include <algorithm>
#include <cctype>

#include "common/base/printable_text.h"
#include "server/networks/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxDriftBytes = 1 << 16;
constexpr std::size_t kMaxStages = 16;
constexpr RealRange kRatio{1e-9, 1e9};

// They become labels of a metric.
bool IsStageName(const std::string& name) {
  constexpr std::size_t kMaxNameLength = 64;
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::ranges::all_of(name,
                             [](unsigned char c) { return std::islower(c) != 0 || c == '_'; });
}

void Describe(ManifestFields& fields, StageDrift& drift) {
  fields.Number("samples", &drift.samples, {1, INT64_MAX});
  fields.Number("median_ratio", &drift.median_ratio, kRatio);
  fields.Number("p10", &drift.p10_ratio, kRatio);
  fields.Number("p90", &drift.p90_ratio, kRatio);
  fields.Text("since", &drift.since, Presence::kRequired);
  fields.Text("until", &drift.until, Presence::kRequired);
}

}  // namespace

StatusOr<std::vector<StageDrift>> ParseModelDrift(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(ConfigReader root, ConfigReader::FromText(std::string(yaml), ""));
  int format = 0;
  ManifestFields(root).Format(kDriftFormat, &format);
  RequireEnd(root, format, yaml);
  root.Require({"stages"});
  ConfigReader section = root.Section("stages");
  if (section.keys().size() > kMaxStages) {
    root.AddViolation("stages", "must have at most {} stages, got {}", kMaxStages,
                      section.keys().size());
  }
  std::vector<StageDrift> stages;
  for (const std::string& stage : section.keys()) {
    auto of_stage = section.SectionIfGiven(stage);
    if (!IsStageName(stage)) {
      root.AddViolation("stages", "{} is no stage: lower case letters and '_'", Quoted(stage));
    } else if (of_stage) {
      ManifestFields fields(*std::move(of_stage));
      Describe(fields, stages.emplace_back());
      stages.back().stage = stage;
    }
  }
  NS_RETURN_IF_ERROR(root.Finish());
  const auto by_name = [](const StageDrift& a, const StageDrift& b) { return a.stage < b.stage; };
  std::ranges::sort(stages, by_name);
  return stages;
}

StatusOr<std::string> FormatModelDrift(const std::vector<StageDrift>& drift) {
  std::vector<StageDrift> stages = drift;
  int format = 2;
  const auto describe_stages = [&](ManifestFields& fields) {
    for (StageDrift& stage : stages) {
      fields.Section(stage.stage, [&](ManifestFields& of_stage) { Describe(of_stage, stage); });
    }
  };
  NS_ASSIGN_OR_RETURN(std::string text, ManifestFields::Write([&](ManifestFields& root) {
                        root.Format(kDriftFormat, &format);
                        root.Section("stages", Presence::kRequired, describe_stages);
                      }));
  text += kEndOfText;
  NS_RETURN_IF_ERROR(ParseModelDrift(text).status());
  return text;
}

StatusOr<std::vector<StageDrift>> ReadModelDrift(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kDriftFileName;
  StatusOr<std::vector<StageDrift>> drift = ParseFile(path, kMaxDriftBytes, ParseModelDrift);
  if (absl::IsNotFound(drift.status())) return std::vector<StageDrift>();
  return drift;
}

Status WriteModelDrift(const std::filesystem::path& directory,
                       const std::vector<StageDrift>& drift) {
  NS_ASSIGN_OR_RETURN(const std::string text, FormatModelDrift(drift));
  return WriteFileAtomically(directory / kDriftFileName, text);
}

}  // namespace neuroshard
