// Ids under which one call is found again in the logs of every process that took part in it: the
// request id, for people, and the W3C trace context (w3.org/TR/trace-context), for tracing systems.
// They travel as metadata of gRPC calls: `x-request-id` and `traceparent`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace neuroshard {

inline constexpr char kRequestIdKey[] = "x-request-id";
inline constexpr char kTraceparentKey[] = "traceparent";

// A place in a W3C trace: the trace and the step in it. Lower-case hexadecimal digits; neither id
// is all zeros.
struct TraceContext {
  std::string trace_id;   // 32 digits: the whole
  std::string parent_id;  // 16 digits: the step that asked
  std::string flags;      // 2 digits

  bool operator==(const TraceContext&) const = default;
};

// A header as version 00 has it; of later versions what 00 knows. None for anything else.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
// Version 00.
std::string ToText(const TraceContext& trace);
// Random ids, not sampled.
TraceContext NewTrace();
// The next step of the same trace.
TraceContext NextStep(const TraceContext& trace);

// Whether `text` can be a request id of a header: 1 to 128 visible ASCII characters.
bool IsRequestId(std::string_view text);
// `id` as a header's: what no header can carry percent-encoded, cut to 128 characters. `id` is not
// empty.
std::string RequestIdHeader(std::string_view id);
// A fresh one: 16 hexadecimal digits, random.
std::string MakeRequestId();

}  // namespace neuroshard
