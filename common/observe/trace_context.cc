#include "common/observe/trace_context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

namespace neuroshard {
namespace {

constexpr std::size_t kMaxRequestIdHeaderBytes = 128;
constexpr std::size_t kTraceparentBytes = 55;  // 00-<32>-<16>-<2>

bool IsHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

// An id of at most 4 words of 32 bits; never all zeros.
std::string RandomId(int words) {
  std::array<std::uint32_t, 4> random{};
  if (getentropy(random.data(), sizeof random) != 0) {  // a tenth of what random_device takes
    std::random_device device;
    for (std::uint32_t& word : random) word = device();
  }
  std::string id;
  for (int i = 0; i < words; ++i) id += fmt::format("{:08x}", random[static_cast<std::size_t>(i)]);
  if (!IsId(id)) id.back() = '1';
  return id;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes) return std::nullopt;
  const std::string_view version = text.substr(0, 2), trace_id = text.substr(3, 32),
                         parent_id = text.substr(36, 16), flags = text.substr(53, 2);
  const bool dashes = text[2] == '-' && text[35] == '-' && text[52] == '-';
  if (!dashes || !IsHex(version) || version == "ff" || !IsId(trace_id) || !IsId(parent_id) ||
      !IsHex(flags)) {
    return std::nullopt;
  }
  const bool has_more = text.size() > kTraceparentBytes;
  if (has_more && (version == "00" || text[kTraceparentBytes] != '-')) return std::nullopt;
  return TraceContext{std::string(trace_id), std::string(parent_id), std::string(flags)};
}

std::string ToText(const TraceContext& trace) {
  return fmt::format("00-{}-{}-{}", trace.trace_id, trace.parent_id, trace.flags);
}

TraceContext NewTrace() { return {RandomId(4), RandomId(2), "00"}; }

TraceContext NextStep(const TraceContext& trace) {
  return {trace.trace_id, RandomId(2), trace.flags};
}

bool IsRequestId(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdHeaderBytes &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

std::string RequestIdHeader(std::string_view id) {
  if (IsRequestId(id)) return std::string(id);
  std::string header;
  for (const char c : id) {
    header += c > ' ' && c <= '~' && c != '%'
                  ? std::string(1, c)
                  : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    if (header.size() >= kMaxRequestIdHeaderBytes) break;
  }
  return header.substr(0, kMaxRequestIdHeaderBytes);
}

std::string MakeRequestId() { return RandomId(2); }

}  // namespace neuroshard
