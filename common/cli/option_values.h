// Values of options: words of a list, and numbers that may have a unit. Wrong ones are usage errors
// that say what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// A check that the value is one of `words`; completion offers them.
CLI::Validator OneOf(std::vector<std::string> words);

// The words of E.
template <typename E>
CLI::Validator OneWordOf() {
  std::vector<std::string> words;
  for (const auto& word : kWords<E>) words.emplace_back(word.text);
  return OneOf(std::move(words));
}

namespace internal {
CLI::Validator IntegerBetween(const std::string& name, std::int64_t min, std::int64_t max);
CLI::Validator RealBetween(const std::string& name, double min, double max);
CLI::Validator Unsigned(const std::string& name);
}  // namespace internal

// Lets `option` take numbers in [min, max], written as in YAML files: --timeout-s takes 1h, a
// number 1e6 or 1_000 (common/text/quantity.h; the option's name says the unit). Not a number is
// never one.
template <typename T>
CLI::Option* InRange(CLI::Option* option, T min, T max) {
  if constexpr (std::is_integral_v<T>) {
    return option->transform(internal::IntegerBetween(option->get_name(), min, max));
  } else {
    return option->transform(internal::RealBetween(option->get_name(), min, max));
  }
}

// Checks an option of std::uint64_t: any value that is not negative.
inline CLI::Option* NotNegative(CLI::Option* option) {
  return option->transform(internal::Unsigned(option->get_name()));
}

// --store: a profile store (a file or an address of PostgreSQL), required; NEUROSHARD_STORE stands in
// for it. `store` must outlive the parse.
CLI::Option* AddStoreOption(CLI::App& command, std::string& store, const std::string& description);

}  // namespace neuroshard
