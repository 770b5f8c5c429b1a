#include "common/cli/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

}  // namespace

CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string all = fmt::format("{{{}}}", fmt::join(words, ","));
  const auto check = [words = std::move(words)](std::string& text) {
    const std::vector<std::string_view> views(words.begin(), words.end());
    return std::ranges::find(views, text) != views.end() ? std::string() : NotOneOf(text, views);
  };
  return {check, all};
}

// Puts the parsed number in place of the text, or says what is wrong with it.
template <typename T>
CLI::Validator internal::Between(const std::string& name, T min, T max) {
  constexpr bool kIsInteger = std::is_integral_v<T>;
  const std::string field = FieldOf(name);
  const std::string bounds = kIsInteger && max == std::numeric_limits<T>::max()
                                 ? fmt::format("of at least {}", min)
                                 : fmt::format("from {} to {}", min, max);
  const auto check = [=](std::string& text) {
    TextValue value;
    value.kind = TextValue::Kind::kPlain;
    value.text = PlainNumber(text, field).value_or(text);
    std::optional<T> number;
    if constexpr (kIsInteger) {
      number = IntegerOf<T>(value);
    } else {
      number = RealOf(value);
    }
    if (number && *number >= min && *number <= max) {
      text = fmt::format("{}", *number);
      return std::string();
    }
    return fmt::format("must be {} {}{}, got {}", kIsInteger ? "an integer" : "a number", bounds,
                       UnitHint(field), Quoted(text));
  };
  return {check, ""};
}
template CLI::Validator internal::Between(const std::string&, std::int64_t, std::int64_t);
template CLI::Validator internal::Between(const std::string&, std::uint64_t, std::uint64_t);
template CLI::Validator internal::Between(const std::string&, double, double);

CLI::Option* AddStoreOption(CLI::App& command, std::string& store, const std::string& description) {
  return command.add_option("--store", store, description)
      ->type_name("FILE.db|postgresql://...")
      ->required()
      ->envname("NEUROSHARD_STORE");
}

}  // namespace neuroshard
