// Values of options: words of a list, and numbers that may have a unit. Wrong ones are usage errors
// that say what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
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
// For std::int64_t, std::uint64_t and double.
template <typename T>
CLI::Validator Between(const std::string& name, T min, T max);
}  // namespace internal

// Lets `option` take numbers in [min, max], written as in YAML files: --timeout-s takes 1h, a
// number 1e6 or 1_000 (common/text/quantity.h; the option's name says the unit). Not a number is
// never one.
template <typename T>
CLI::Option* InRange(CLI::Option* option, T min, T max) {
  using Number = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  return option->transform(internal::Between<Number>(option->get_name(), min, max));
}

// Checks an option of std::uint64_t: any value that is not negative.
inline CLI::Option* NotNegative(CLI::Option* option) {
  return option->transform(internal::Between<std::uint64_t>(
      option->get_name(), 0, std::numeric_limits<std::uint64_t>::max()));
}

// --store: a profile store (a file or an address of PostgreSQL), required; NEUROSHARD_STORE stands in
// for it. `store` must outlive the parse.
CLI::Option* AddStoreOption(CLI::App& command, std::string& store, const std::string& description);

}  // namespace neuroshard
