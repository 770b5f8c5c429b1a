#include "client/cli/input_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/violations.h"
#include "common/codec/message_text.h"
#include "common/codec/text_file.h"
#include "common/codec/text_value.h"

namespace neuroshard {
namespace {

// The file in front of the message, and of every violation's field.
Status InFile(const std::string& path, const Status& status) {
  const std::vector<Violation> listed = Violations::FromStatus(status);
  if (listed.empty()) return Annotate(status, path);
  Violations named;
  for (const Violation& violation : listed)
    named.Add(path + ": " + violation.field, violation.description);
  return named.ToStatus();
}

bool HasSets(const std::string& text, TextFormat format) {
  const auto document =
      format == TextFormat::kJson ? ParseJsonDocument(text) : ParseYamlDocument(text);
  return document.ok() &&
         std::find(document->keys.begin(), document->keys.end(), "sets") != document->keys.end();
}

bool IsResponse(const std::string& text) {
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return document.is_object() && document.contains("plan");
}

}  // namespace

StatusOr<v1::ShardPlanRequest> ReadRequestFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  v1::ShardPlanRequest request;
  NS_RETURN_IF_ERROR(InFile(path, ParseMessageText(text, TextFormatOfPath(path), &request)));
  return request;
}

StatusOr<PredictionInput> ReadPredictionFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const TextFormat format = TextFormatOfPath(path);
  if (!HasSets(text, format)) return ReadRequestFile(path);
  v1::PredictComputeRequest request;
  NS_RETURN_IF_ERROR(InFile(path, ParseMessageText(text, format, &request)));
  return request;
}

StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  PlanFile file;
  if (!IsResponse(text)) {
    NS_RETURN_IF_ERROR(InFile(path, ParseMessageText(text, TextFormat::kJson, &file.plan)));
    return file;
  }
  v1::ShardPlanResponse response;
  NS_RETURN_IF_ERROR(InFile(path, ParseMessageText(text, TextFormat::kJson, &response)));
  file.plan = std::move(*response.mutable_plan());
  if (response.has_cost()) file.cost = std::move(*response.mutable_cost());
  return file;
}

}  // namespace neuroshard
