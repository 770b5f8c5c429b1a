#include "common/cli/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/text/quantity.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

// "--timeout-s" is the field timeout_s.
std::string FieldOf(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TextValue Number(const std::string& text, const std::string& field) {
  TextValue value;
  value.kind = TextValue::Kind::kPlain;
  value.text = PlainNumber(text, field).value_or(text);
  return value;
}

// Puts the parsed number in place of the text, or says what is wrong with it.
template <typename T, typename Parse>
CLI::Validator NumberBetween(const std::string& name, const char* kind, const std::string& bounds,
                             T min, T max, Parse parse) {
  const std::string field = FieldOf(name);
  const auto check = [=](std::string& text) {
    const std::optional<T> number = parse(Number(text, field));
    if (number && *number >= min && *number <= max) {
      text = fmt::format("{}", *number);
      return std::string();
    }
    return fmt::format("must be {} {}{}, got {}", kind, bounds, UnitHint(field), Quoted(text));
  };
  return {check, ""};
}

}  // namespace

CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string all = fmt::format("{{{}}}", fmt::join(words, ","));
  const auto check = [words = std::move(words)](std::string& text) {
    const std::vector<std::string_view> views(words.begin(), words.end());
    return std::ranges::find(views, text) != views.end() ? std::string() : NotOneOf(text, views);
  };
  return {check, all};
}

CLI::Validator internal::IntegerBetween(const std::string& name, std::int64_t min,
                                        std::int64_t max) {
  const bool unbounded = max == std::numeric_limits<std::int64_t>::max();
  const std::string bounds =
      unbounded ? fmt::format("of at least {}", min) : fmt::format("from {} to {}", min, max);
  return NumberBetween<std::int64_t>(
      name, "an integer", bounds, min, max,
      [](const TextValue& value) { return IntegerOf<std::int64_t>(value); });
}

CLI::Validator internal::RealBetween(const std::string& name, double min, double max) {
  return NumberBetween<double>(name, "a number", fmt::format("from {} to {}", min, max), min, max,
                               [](const TextValue& value) { return RealOf(value); });
}

CLI::Validator internal::Unsigned(const std::string& name) {
  return NumberBetween<std::uint64_t>(
      name, "an integer", "of at least 0", 0, std::numeric_limits<std::uint64_t>::max(),
      [](const TextValue& value) { return IntegerOf<std::uint64_t>(value); });
}

CLI::Option* AddStoreOption(CLI::App& command, std::string& store, const std::string& description) {
  return command.add_option("--store", store, description)
      ->type_name("FILE.db|postgresql://...")
      ->required()
      ->envname("NEUROSHARD_STORE");
}

}  // namespace neuroshard
