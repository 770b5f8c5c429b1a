#include "common/codec/field_check.h"

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

template <typename Number>
bool Between(const FieldCheck& check, std::string_view field, Number value, Number low,
             Number high) {
  const bool too_low = value < low;
  if (!too_low && value <= high) return true;
  check.Fail(field, "must be at {} {}, got {}", too_low ? "least" : "most", too_low ? low : high,
             value);
  return false;
}

}  // namespace

void FieldCheck::Fail(std::string_view field, std::string description) const {
  if (violations_ != nullptr) violations_->Add(PathOf(field), std::move(description));
}

bool FieldCheck::IsPositiveShare(std::string_view field, double value) const {
  if (value > 0 && value <= 1) return true;
  Fail(field, "must be more than 0 and at most 1, got {}", value);
  return false;
}

bool FieldCheck::InRange(std::string_view field, std::int64_t value, std::int64_t low,
                         std::int64_t high) const {
  return Between(*this, field, value, low, high);
}

bool FieldCheck::InRange(std::string_view field, double value, double low, double high) const {
  if (!std::isnan(value)) return Between(*this, field, value, low, high);
  Fail(field, "must be a number from {} to {}, got nan", low, high);
  return false;
}

bool FieldCheck::HasAsMany(std::string_view field, std::int64_t entries, std::string_view other,
                           std::int64_t expected) const {
  if (entries == expected) return true;
  Fail(field, "must have as many entries as {}, {}, got {}", other, expected, entries);
  return false;
}

bool FieldCheck::IsText(std::string_view field, std::string_view text,
                        std::size_t max_bytes) const {
  if (text.size() > max_bytes) {
    Fail(field, "must be at most {} bytes, got {}", max_bytes, text.size());
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7F) {
      Fail(field, "must not contain control characters, got {} with 0x{:02x} at byte {}",
           Quoted(text), byte, i);
      return false;
    }
  }
  return true;
}

bool FieldCheck::IsOneOf(std::string_view field, std::string_view text,
                         std::span<const std::string_view> words) const {
  if (std::ranges::find(words, text) != words.end()) return true;
  Fail(field, NotOneOf(text, words));
  return false;
}

bool FieldCheck::IsNonEmptyText(std::string_view field, std::string_view text,
                                std::size_t max_bytes) const {
  if (text.empty()) {
    Fail(field, "must not be empty");
    return false;
  }
  return IsText(field, text, max_bytes);
}

}  // namespace neuroshard
