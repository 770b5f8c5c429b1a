#include "client/cli/input_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "client/cli/plan_from_torchrec.h"
#include "common/base/in_file.h"
#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/codec/field_limits.h"
#include "common/codec/prediction_codec.h"
#include "common/codec/request_codec.h"
#include "common/codec/text_file.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

// Whether `inner` is `outer` or inside it: "tables[3]" and "tables[3].name".
bool IsWithin(std::string_view inner, std::string_view outer) {
  if (!inner.starts_with(outer)) return false;
  return inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[';
}

// "reuse_histogram" of "reuse_histogram[3]"; of other fields nothing.
std::string_view ListOf(std::string_view field) {
  return field.ends_with(']') ? field.substr(0, field.rfind('[')) : std::string_view();
}

// Whether a fault of the text at `unread` makes what is said of `field` worthless.
bool Obscures(std::string_view unread, std::string_view field) {
  if (unread == "(document)" || IsWithin(field, unread) || IsWithin(unread, field)) return true;
  return !ListOf(unread).empty() && ListOf(unread) == ListOf(field);
}

// What a document is, in words; empty: not known. By keys that only this kind has.
std::string Describe(const TextValue& document, DocumentKind wanted) {
  const auto has = [&document](std::string_view key) { return document.Find(key) != nullptr; };
  if (const TextValue* format = document.Find("format")) {
    if (format->text.starts_with("neuroshard-cost-model/")) return "a cost model's model.yaml";
    if (format->text.starts_with("neuroshard-")) {
      return fmt::format("a plan in the form {}, which only its own readers take",
                         Quoted(format->text));
    }
  }
  if (has("plan") || has("world_size")) return wanted == DocumentKind::kPlan ? "" : "a plan";
  if (has("legal")) return "an answer of `neuroshard evaluate`";
  if (has("embedding_cost") && has("ranks")) {
    return "an answer of `neuroshard validate`";
  }
  if (has("kind") && has("num_samples")) return "a sweep's configuration";
  if (has("listen") || has("metrics_listen")) return "a server's configuration";
  if (has("topologies")) {
    return wanted == DocumentKind::kWhatIf ? ""
                                           : "a list of topologies for `neuroshard plan --what-if`";
  }
  if (has("sets")) return "a question of `neuroshard predict compute`";
  if (has("topology") || has("global_batch_size")) {
    return wanted == DocumentKind::kRequest ? "" : "a request";
  }
  return "";
}

const char* Wanted(DocumentKind kind) {
  switch (kind) {
    case DocumentKind::kRequest:
      return "a request";
    case DocumentKind::kPlan:
      return "a plan, as `neuroshard plan --format json` writes it,";
    case DocumentKind::kWhatIf:
      return "a list of topologies";
  }
  return "";
}

bool LooksLikeCsv(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.find(',') != std::string_view::npos &&
         line.find_first_of(":{[#") == std::string_view::npos;
}

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
  if (read.ok()) return absl::OkStatus();
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
  return document.ok() && document->Find("sets") != nullptr;
}

// Ids that a global batch looks up in the features that state pooling factors and batch sizes.
double IdsOf(const v1::Table& table) {
  const int features = std::min(table.pooling_factors_size(), table.feature_batch_sizes_size());
  double ids = 0;
  for (int i = 0; i < features; ++i) {
    const double bags = i < table.num_poolings_size() ? table.num_poolings(i) : 1;
    ids += table.pooling_factors(i) * bags * static_cast<double>(table.feature_batch_sizes(i));
  }
  return ids;
}

void ScaleFeatureBatches(double ratio, v1::Table& table) {
  const double ids_before = IdsOf(table);
  for (std::int64_t& size : *table.mutable_feature_batch_sizes()) {
    if (size < 1 || size > kMaxBatch) continue;
    const double scaled = static_cast<double>(size) * ratio;
    size = std::max<std::int64_t>(1, std::llround(std::min(scaled, 0x1.0p62)));
  }
  if (!table.has_pooling_factor() || !(ids_before > 0)) return;
  // Rounding changed the mean ids of a sample.
  table.set_pooling_factor(table.pooling_factor() * (IdsOf(table) / ids_before) / ratio);
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

Status FaultsOfTextAndValues(const Status& text_faults, const Status& value_faults) {
  const std::vector<Violation> unread = Violations::FromStatus(text_faults);
  if (unread.empty()) return text_faults;
  Violations all;
  for (const Violation& violation : unread) all.Add(violation.field, violation.description);
  for (const Violation& violation : Violations::FromStatus(value_faults)) {
    const bool obscured = std::ranges::any_of(
        unread, [&](const Violation& fault) { return Obscures(fault.field, violation.field); });
    if (!obscured) all.Add(violation.field, violation.description);
  }
  return all.ToStatus();
}

Status OtherDocument(std::string_view text, DocumentKind wanted) {
  std::string what;
  if (text.starts_with("SQLite format 3")) {
    what = "a database, a profile store perhaps";
  } else {
    // YAML is nearly JSON, but its errors are not about what was meant.
    auto document = ParseJsonDocument(text);
    if (!document.ok()) document = ParseYamlDocument(text);
    if (document.ok()) what = Describe(*document, wanted);
    if (what.empty() && LooksLikeCsv(text)) {
      what = wanted == DocumentKind::kRequest
                 ? "a CSV, of tables perhaps (`neuroshard init --tables` makes a request of it)"
                 : "a CSV";
    }
  }
  if (what.empty()) return absl::OkStatus();
  return InvalidArgument("this is {}; {} is wanted here", what, Wanted(wanted));
}

std::int64_t GlobalBatchSizeOf(const v1::ShardPlanRequest& request) {
  return request.has_global_batch_size() ? request.global_batch_size()
                                         : PlanRequest().global_batch_size;
}

void SetGlobalBatchSize(std::int64_t batch_size, v1::ShardPlanRequest& request) {
  const std::int64_t before = GlobalBatchSizeOf(request);
  request.set_global_batch_size(batch_size);
  if (before < 1 || batch_size < 1 || before == batch_size) return;
  const double ratio = static_cast<double>(batch_size) / static_cast<double>(before);
  for (v1::Table& table : *request.mutable_tables()) {
    if (table.feature_batch_sizes_size() > 0) ScaleFeatureBatches(ratio, table);
  }
}

}  // namespace neuroshard
