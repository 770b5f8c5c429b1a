#include "common/text/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

namespace neuroshard {
namespace {

struct Unit {
  std::string_view name;
  long double factor;  // bytes, or nanoseconds
};

constexpr Unit kSizes[] = {{"B", 1},         {"kB", 1e3L},     {"KB", 1e3L},     {"MB", 1e6L},
                           {"GB", 1e9L},     {"TB", 1e12L},    {"PB", 1e15L},    {"KiB", 1024.0L},
                           {"MiB", 0x1p20L}, {"GiB", 0x1p30L}, {"TiB", 0x1p40L}, {"PiB", 0x1p50L}};
constexpr Unit kDurations[] = {{"ns", 1},      {"us", 1e3L}, {"ms", 1e6L},   {"s", 1e9L},
                               {"min", 60e9L}, {"m", 60e9L}, {"h", 3600e9L}, {"d", 86400e9L}};

// What a field may be written in, and the unit it is in.
struct Quantity {
  std::string_view field_ending;
  std::span<const Unit> units;
  long double factor;
  std::string_view unit_ending;  // of every unit
  std::string_view hint;
};

constexpr std::string_view kDurationHint = " (or with a unit: 500ms, 90s, 1h)";
constexpr Quantity kQuantities[] = {
    {"_bytes", kSizes, 1, "", " (or with a unit: 80GiB, 80GB)"},
    {"_bytes_per_device", kSizes, 1, "", " (or with a unit: 80GiB, 80GB)"},
    {"_bytes_per_s", kSizes, 1, "/s", " (or with a unit: 450GB/s)"},
    {"_gib", kSizes, 0x1p30L, "", " (or with a unit: 80GiB, 80GB)"},
    {"_us", kDurations, 1e3L, "", kDurationHint},
    {"_ms", kDurations, 1e6L, "", kDurationHint},
    {"_s", kDurations, 1e9L, "", kDurationHint}};

const Quantity* QuantityOf(std::string_view field) {
  for (const Quantity& quantity : kQuantities) {
    if (field.ends_with(quantity.field_ending)) return &quantity;
  }
  return nullptr;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The text without the `_` between digits; as it is where one stands elsewhere.
std::string WithoutSeparators(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between =
        i > 0 && i + 1 < text.size() && IsDigit(text[i - 1]) && IsDigit(text[i + 1]);
    if (text[i] != '_' || !between) plain += text[i];
  }
  return plain;
}

}  // namespace

std::optional<std::string> PlainNumber(std::string_view text, std::string_view field) {
  constexpr std::size_t kLongest = 64;
  if (text.empty() || text.size() > kLongest) return std::nullopt;
  const bool has_unit = !IsDigit(text.back()) && text.back() != '.';
  if (!has_unit && text.find('_') == std::string_view::npos) return std::nullopt;
  std::string plain = WithoutSeparators(text);
  if (plain.find('_') != std::string::npos) return std::nullopt;
  if (plain.starts_with('+')) plain.erase(0, 1);
  const std::size_t first = plain.starts_with('-') ? 1 : 0;
  if (first == plain.size() || (!IsDigit(plain[first]) && plain[first] != '.')) return std::nullopt;
  if (!has_unit) return plain;
  const Quantity* quantity = QuantityOf(field);
  if (quantity == nullptr) return std::nullopt;
  long double number = 0;
  const char* end = plain.data() + plain.size();
  const auto [rest, error] = std::from_chars(plain.data(), end, number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string_view name(rest, static_cast<std::size_t>(end - rest));
  while (name.starts_with(' ')) name.remove_prefix(1);
  if (!name.ends_with(quantity->unit_ending)) return std::nullopt;
  name.remove_suffix(quantity->unit_ending.size());
  for (const Unit& unit : quantity->units) {
    if (unit.name != name) continue;
    const long double value = number * unit.factor / quantity->factor;
    if (!std::isfinite(static_cast<double>(value))) return std::nullopt;
    const long double whole = std::round(value);
    // A size is a number of bytes. Of the others, what a double cannot tell from a whole number is
    // one.
    const bool in_bytes = quantity->units.data() == kSizes && quantity->factor == 1;
    const bool is_whole = in_bytes || static_cast<double>(value) == static_cast<double>(whole);
    return is_whole ? fmt::format("{:.0f}", whole) : fmt::format("{}", static_cast<double>(value));
  }
  return std::nullopt;
}

std::string_view UnitHint(std::string_view field) {
  const Quantity* quantity = QuantityOf(field);
  return quantity == nullptr ? "" : quantity->hint;
}

}  // namespace neuroshard
