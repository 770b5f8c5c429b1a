// Requests and plans from files, whose errors name the file, and another global batch size for a
// request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/status.h"
#include "common/codec/message_text.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// The format that the path says; of "-", which is standard input everywhere here, that of the
// text's first character.
TextFormat TextFormatOf(const std::string& path, const std::string& text);

// A file that is something else (a plan, a sweep) is called that.
//
// A ShardPlanRequest in YAML, or in JSON when the name ends in ".json". Beside faults of the text
// are those of the values that could be read; the values of a text without faults are left to the
// server.
StatusOr<v1::ShardPlanRequest> ReadRequestFile(const std::string& path);

// The request as this client understands it, within no server's limits.
StatusOr<PlanRequest> DecodeRequest(const v1::ShardPlanRequest& request);

// What `predict` is asked about: the tables of a request, or sets of shards.
using PredictionInput = std::variant<v1::ShardPlanRequest, v1::PredictComputeRequest>;

// As ReadRequestFile; a PredictComputeRequest where the file has `sets`. A request without a
// topology gets one of one device: how many there are does not matter here.
StatusOr<PredictionInput> ReadPredictionFile(const std::string& path);

// A plan as a file holds it: an answer of the planner, or a bare plan.
struct PlanFile {
  v1::Plan plan;
  std::optional<v1::PlanCost> cost;  // what the planner predicted, when the file says so
  v1::CostModelRef cost_model;       // that it was predicted by; empty where there is no cost
  v1::PriceBasis price_basis;        // what that rests on; empty in files of earlier planners
  bool is_torchrecs = false;         // lacks what CompleteFromRequest knows (plan_from_torchrec.h)
};

// JSON: what `plan --format json` prints (a ShardPlanResponse), a bare Plan, or a plan in
// TorchRec's form.
StatusOr<PlanFile> ReadPlanFile(const std::string& path);
// A plan of the tables of `request`, which completes a plan in TorchRec's form.
StatusOr<PlanFile> ReadPlanFile(const std::string& path,
                                const StatusOr<v1::ShardPlanRequest>& request);

// The kind of document that a command wants.
enum class DocumentKind { kRequest, kPlan, kWhatIf };

// INVALID_ARGUMENT that says what `text` is ("this is a plan; a request is wanted here"), when it
// is recognised as anything but `wanted`; OK otherwise. For texts that could not be read as
// `wanted`.
Status OtherDocument(std::string_view text, DocumentKind wanted);

// `text_faults` are those of a text that does not fit its message, `value_faults` what decoding
// says of the part that did. Gives both, without what is said of a value only because it could not
// be read: of the field of a fault of the text, what is inside it, the list that it is in, and that
// list's other scalars. Either may be without violations; then it is the other, or `text_faults`.
Status FaultsOfTextAndValues(const Status& text_faults, const Status& value_faults);

// Samples in an iteration; the default where the request states none.
std::int64_t GlobalBatchSizeOf(const v1::ShardPlanRequest& request);

// Feature batch sizes keep their share of it, rounded and at least 1, and a table's stated
// pooling_factor what it had to the ids of its features. Values out of range stay, for the decoder
// to name.
void SetGlobalBatchSize(std::int64_t batch_size, v1::ShardPlanRequest& request);

}  // namespace neuroshard
