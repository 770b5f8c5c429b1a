#include "client/cli/input_file.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/document_kind.h"
#include "client/cli/input_faults.h"
#include "client/cli/plan_from_torchrec.h"
#include "common/base/in_file.h"
#include "common/codec/message_text.h"
#include "common/codec/prediction_codec.h"
#include "common/codec/request_codec.h"
#include "common/codec/text_file.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

// What is checked here knows no server's limits, but that devices take memory.
RequestLimits LocalLimits() {
  constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
  return {kAny, std::int64_t{1} << 20, kAny, kAny, kAny, kAny};
}

// Reads `text` into `message`. What `decode` says of it counts only beside faults of the text:
// whether a message that can be sent is right is the planner's to say.
template <typename Message, typename Decode>
Status ReadMessage(const std::string& path, const std::string& text, const Decode& decode,
                   Message& message) {
  const Status read = ReadMessageText(text, TextFormatOf(path, text), &message);
  if (read.ok()) return InFile(path, CheckLastLine(text));
  if (const Status other = OtherDocument(text, DocumentKind::kRequest); !other.ok()) {
    return InFile(path, other);
  }
  return InFile(path, FaultsOfTextAndValues(read, decode(message)));
}

// Where there is no topology: one that is legal.
void SetOneDevice(v1::ShardPlanRequest& request) {
  if (request.has_topology()) return;
  v1::HostGroup& host = *request.mutable_topology()->add_hosts();
  host.set_num_devices(1);
  host.set_memory_bytes(1);
}

bool HasSets(const std::string& text, TextFormat format) {
  const auto document =
      format == TextFormat::kJson ? ParseJsonDocument(text) : ParseYamlDocument(text);
  return document.ok() &&
         std::find(document->keys.begin(), document->keys.end(), "sets") != document->keys.end();
}

}  // namespace

TextFormat TextFormatOf(const std::string& path, const std::string& text) {
  if (path != "-") return TextFormatOfPath(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' ? TextFormat::kJson : TextFormat::kYaml;
}

StatusOr<v1::ShardPlanRequest> ReadRequestFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  v1::ShardPlanRequest request;
  const auto decode = [](const v1::ShardPlanRequest& plan) { return DecodeRequest(plan).status(); };
  NS_RETURN_IF_ERROR(ReadMessage(path, text, decode, request));
  return request;
}

StatusOr<PlanRequest> DecodeRequest(const v1::ShardPlanRequest& request) {
  return DecodePlanRequest(request, LocalLimits());
}

StatusOr<PredictionInput> ReadPredictionFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  if (HasSets(text, TextFormatOf(path, text))) {
    v1::PredictComputeRequest request;
    const auto decode = [](const v1::PredictComputeRequest& sets) {
      return DecodePredictionRequest(sets, LocalLimits()).status();
    };
    NS_RETURN_IF_ERROR(ReadMessage(path, text, decode, request));
    return request;
  }
  v1::ShardPlanRequest request;
  const auto decode = [](v1::ShardPlanRequest tables) {
    SetOneDevice(tables);
    return DecodeRequest(tables).status();
  };
  NS_RETURN_IF_ERROR(ReadMessage(path, text, decode, request));
  SetOneDevice(request);
  return request;
}

StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  PlanFile file;
  const auto document = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (IsTorchRecPlan(document)) {
    StatusOr<v1::Plan> plan = PlanFromTorchRec(document);
    NS_RETURN_IF_ERROR(InFile(path, plan.status()));
    file.plan = *std::move(plan);
    file.is_torchrecs = true;
    return file;
  }
  v1::ShardPlanResponse response;
  const bool is_response = document.is_object() && document.contains("plan");
  const Status read = is_response ? ParseMessageText(text, TextFormat::kJson, &response)
                                  : ParseMessageText(text, TextFormat::kJson, &file.plan);
  if (!read.ok()) {
    const Status other = OtherDocument(text, DocumentKind::kPlan);
    return InFile(path, other.ok() ? read : other);
  }
  if (!is_response) return file;
  file.plan = std::move(*response.mutable_plan());
  if (response.has_cost()) file.cost = std::move(*response.mutable_cost());
  file.cost_model = std::move(*response.mutable_cost_model());
  file.price_basis = std::move(*response.mutable_price_basis());
  return file;
}

StatusOr<PlanFile> ReadPlanFile(const std::string& path,
                                const StatusOr<v1::ShardPlanRequest>& request) {
  NS_ASSIGN_OR_RETURN(PlanFile file, ReadPlanFile(path));
  if (file.is_torchrecs && request.ok()) CompleteFromRequest(*request, file.plan);
  return file;
}

}  // namespace neuroshard
