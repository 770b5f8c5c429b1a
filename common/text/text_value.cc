#include "common/text/text_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/base/number_text.h"
#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

using Kind = TextValue::Kind;

bool IsNumeric(const TextValue& value) {
  return value.kind == Kind::kPlain || value.kind == Kind::kNumber || value.kind == Kind::kText;
}

// YAML allows a plus sign; from_chars does not, and would take "nan" and "inf", which are names
// here.
std::optional<std::string_view> Digits(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::string_view unsigned_text = text.starts_with('-') ? text.substr(1) : text;
  if (unsigned_text.empty()) return std::nullopt;
  const char first = unsigned_text.front();
  if ((first < '0' || first > '9') && first != '.') return std::nullopt;
  return text;
}

std::optional<double> ParseReal(std::string_view text) {
  const std::string_view magnitude = text.starts_with('-') ? text.substr(1) : text;
  const double sign = text.starts_with('-') ? -1.0 : 1.0;
  if (magnitude == ".nan" || magnitude == ".NaN" || magnitude == ".NAN" || magnitude == "NaN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (magnitude == ".inf" || magnitude == ".Inf" || magnitude == ".INF" ||
      magnitude == "Infinity") {
    return sign * std::numeric_limits<double>::infinity();
  }
  const auto digits = Digits(text);
  return digits ? NumberOf<double>(*digits) : std::nullopt;
}

}  // namespace

const TextValue* TextValue::Find(std::string_view key) const {
  const auto found = std::ranges::find(keys, key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

std::string Shown(const TextValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kSequence:
      return "a list";
    case Kind::kMapping:
      return "a mapping";
    case Kind::kText:
      return Quoted(value.text) + " in quotes";
    default:
      return Quoted(value.text);
  }
}

template <typename T>
std::optional<T> IntegerOf(const TextValue& value, bool* out_of_range) {
  const auto digits = IsNumeric(value) ? Digits(value.text) : std::nullopt;
  if (!digits) return std::nullopt;
  const auto fail = [out_of_range] {
    if (out_of_range != nullptr) *out_of_range = true;
    return std::optional<T>();
  };
  T parsed{};
  const auto [end, error] =
      std::from_chars(digits->data(), digits->data() + digits->size(), parsed);
  const bool whole = end == digits->data() + digits->size();
  if (whole && error == std::errc()) return parsed;
  if (whole && error == std::errc::result_out_of_range) return fail();
  const std::optional<double> real = NumberOf<double>(*digits);
  if (!real || *real != std::floor(*real)) return std::nullopt;
  // Both bounds are exact in a double: 0 or -2^n, and 2^n, which itself is already too much.
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (*real < low || *real >= beyond) return fail();
  return static_cast<T>(*real);
}

template std::optional<std::int32_t> IntegerOf(const TextValue&, bool*);
template std::optional<std::int64_t> IntegerOf(const TextValue&, bool*);
template std::optional<std::uint32_t> IntegerOf(const TextValue&, bool*);
template std::optional<std::uint64_t> IntegerOf(const TextValue&, bool*);

std::optional<double> RealOf(const TextValue& value) {
  return IsNumeric(value) ? ParseReal(value.text) : std::nullopt;
}

std::optional<bool> BoolOf(const TextValue& value) {
  if (value.kind != Kind::kPlain && value.kind != Kind::kBool) return std::nullopt;
  if (value.text == "true") return true;
  if (value.text == "false") return false;
  return std::nullopt;
}

std::optional<std::string> TextOf(const TextValue& value) {
  if (value.kind != Kind::kPlain && value.kind != Kind::kText) return std::nullopt;
  return value.text;
}

Status TextBudget::TakeValues(std::size_t values, std::size_t bytes) {
  values_ += values;
  bytes_ += bytes;
  if (values_ > max_values_) {
    return InvalidArgument("has more than {} values, the most that is read", max_values_);
  }
  if (bytes_ > kMaxTextBytes) {
    return InvalidArgument("has more than {} bytes of text, the most that is read", kMaxTextBytes);
  }
  return absl::OkStatus();
}

Status TextBudget::CheckDepth(int depth) {
  if (depth > kMaxTextDepth) {
    return InvalidArgument("is nested more than {} levels deep", kMaxTextDepth);
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
