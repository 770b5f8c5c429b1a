#include "common/rpc/status_mapping.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace neuroshard {
namespace {

// Together below 8 KiB with room for the other trailers: the message is percent-encoded (one byte
// may become three), the details are base64 (4/3 of their bytes) and repeat the message.
constexpr std::size_t kMaxEncodedMessageBytes = 1500;
constexpr std::size_t kMaxDetailsBytes = 4500;
constexpr std::size_t kMaxFieldBytes = 200;
constexpr std::size_t kMaxDescriptionBytes = 400;
constexpr char kReasonDomain[] = "neuroshard";

bool IsUtf8Continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes that percent-encoding leaves alone (gRPC over HTTP/2: space to '~' except '%').
std::size_t EncodedBytes(char c) { return c >= ' ' && c <= '~' && c != '%' ? 1 : 3; }

// The longest prefix whose encoding fits, never ending inside a UTF-8 character.
std::string Cut(const std::string& text, std::size_t max_encoded_bytes) {
  constexpr std::string_view kEllipsis = "...";
  std::size_t encoded_bytes = 0;
  std::size_t fits = 0;  // prefix that leaves room for the ellipsis
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!IsUtf8Continuation(text[i]) && encoded_bytes + kEllipsis.size() <= max_encoded_bytes) {
      fits = i;
    }
    encoded_bytes += EncodedBytes(text[i]);
  }
  if (encoded_bytes <= max_encoded_bytes) return text;
  return text.substr(0, fits).append(kEllipsis);
}

google::rpc::BadRequest EncodeViolations(const std::vector<Violation>& violations,
                                         std::size_t max_bytes) {
  // What "and N more" takes at most.
  constexpr std::size_t kMoreBytes = 40;
  google::rpc::BadRequest bad_request;
  std::size_t bytes = kMoreBytes;
  for (std::size_t i = 0; i < violations.size(); ++i) {
    google::rpc::BadRequest::FieldViolation entry;
    entry.set_field(Cut(violations[i].field, kMaxFieldBytes));
    entry.set_description(Cut(violations[i].description, kMaxDescriptionBytes));
    bytes += entry.ByteSizeLong() + 4;  // tag and length
    if (bytes > max_bytes) {
      auto& more = *bad_request.add_field_violations();
      more.set_field("...");
      // A status keeps only the first ones.
      const bool kept_all = violations.size() < Violations::kMaxKept;
      more.set_description(
          fmt::format("and {}{} more", kept_all ? "" : "at least ", violations.size() - i));
      break;
    }
    *bad_request.add_field_violations() = std::move(entry);
  }
  return bad_request;
}

constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

Status WithRetryAfter(Status status, std::chrono::milliseconds delay) {
  google::rpc::RetryInfo info;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(delay);
  info.mutable_retry_delay()->set_seconds(seconds.count());
  info.mutable_retry_delay()->set_nanos(
      static_cast<int>(std::chrono::nanoseconds(delay - seconds).count()));
  status.SetPayload(kRetryInfo, absl::Cord(info.SerializeAsString()));
  return status;
}

std::optional<std::chrono::milliseconds> RetryAfterOf(const Status& status) {
  const auto payload = status.GetPayload(kRetryInfo);
  google::rpc::RetryInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  constexpr std::int64_t kDayS = 86'400;
  return std::chrono::seconds(std::clamp<std::int64_t>(info.retry_delay().seconds(), 0, kDayS)) +
         std::chrono::ceil<std::chrono::milliseconds>(
             std::chrono::nanoseconds(info.retry_delay().nanos()));
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = Cut(Message(status), kMaxEncodedMessageBytes);
  const std::vector<Violation> violations = Violations::FromStatus(status);
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  if (const std::optional<FailureReason> reason = ReasonOf(status)) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::string(ReasonText(*reason)));
    info.set_domain(kReasonDomain);
    details.add_details()->PackFrom(info);
  }
  if (const auto retry = status.GetPayload(kRetryInfo); retry.has_value()) {
    google::protobuf::Any& detail = *details.add_details();
    detail.set_type_url(kRetryInfo);
    detail.set_value(std::string(*retry));
  }
  if (!violations.empty()) {
    details.add_details()->PackFrom(
        EncodeViolations(violations, kMaxDetailsBytes - details.ByteSizeLong()));
  }
  if (details.details().empty()) return grpc::Status(code, message);
  return grpc::Status(code, message, details.SerializeAsString());
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    return result;
  }
  Violations violations;
  for (const auto& detail : details.details()) {
    if (google::rpc::ErrorInfo info; detail.UnpackTo(&info)) {
      const std::optional<FailureReason> reason = ReasonFromText(info.reason());
      if (reason && info.domain() == kReasonDomain && reason != ReasonOf(result)) {
        result = WithReason(std::move(result), *reason);
      }
      continue;
    }
    if (detail.type_url() == kRetryInfo) {
      result.SetPayload(kRetryInfo, absl::Cord(detail.value()));
    }
    google::rpc::BadRequest bad_request;
    if (!detail.UnpackTo(&bad_request)) continue;
    for (const auto& entry : bad_request.field_violations()) {
      violations.Add(entry.field(), entry.description());
    }
  }
  return WithPayloadsOf(violations.ToStatus(), std::move(result));
}

}  // namespace neuroshard
