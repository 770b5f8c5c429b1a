// The checks that decoders share: each looks at one field and adds a Violation that names it, the
// value and what is allowed.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

template <typename T>
class ListedOnce;

// Checks of the fields of one message, which is at `path` of the whole ("tables[3]"; empty for the
// message itself).
class FieldCheck {
 public:
  FieldCheck(std::string path, Violations& violations)
      : path_(std::move(path)), violations_(&violations) {}
  // For what cannot have faults: tells nobody, and makes no paths.
  FieldCheck() = default;

  // An empty `field` is the message itself.
  std::string PathOf(std::string_view field) const {
    if (field.empty()) return path_;
    return path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field);
  }

  // The check of the message in `field`, and of one in a list.
  FieldCheck In(std::string_view field) const {
    return violations_ == nullptr ? FieldCheck() : FieldCheck(PathOf(field), *violations_);
  }
  FieldCheck In(std::string_view list, int i) const {
    return violations_ == nullptr ? FieldCheck() : In(fmt::format("{}[{}]", list, i));
  }

  void Fail(std::string_view field, std::string description) const;
  // With a description that is formatted.
  template <typename Arg, typename... Args>
  void Fail(std::string_view field, fmt::format_string<Arg, Args...> format, Arg&& arg,
            Args&&... args) const {
    Fail(field, fmt::format(format, std::forward<Arg>(arg), std::forward<Args>(args)...));
  }

  // low <= value <= high.
  bool InRange(std::string_view field, std::int64_t value, std::int64_t low,
               std::int64_t high) const;
  // Also refuses NaN.
  bool InRange(std::string_view field, double value, double low, double high) const;

  // Each entry of a list, "field[3]".
  template <typename Values, typename Number>
  bool EachInRange(std::string_view field, const Values& values, Number low, Number high) const {
    bool all = true;
    int i = 0;
    for (const Number value : values) {
      const bool within = value >= low && value <= high;
      all = (within || InRange(fmt::format("{}[{}]", field, i), value, low, high)) && all;
      ++i;
    }
    return all;
  }

  // As many entries as another list has.
  bool HasAsMany(std::string_view field, std::int64_t entries, std::string_view other,
                 std::int64_t expected) const;

  // 0 < value <= 1.
  bool IsPositiveShare(std::string_view field, double value) const;

  // At most max_bytes and without control characters, which would garble logs and tables.
  bool IsText(std::string_view field, std::string_view text, std::size_t max_bytes) const;
  bool IsNonEmptyText(std::string_view field, std::string_view text, std::size_t max_bytes) const;

  bool IsOneOf(std::string_view field, std::string_view text,
               std::span<const std::string_view> words) const;

  // The word of E that `text` spells; a violation that lists all words, and `absent`, when there is
  // none.
  template <typename E>
  E WordOf(std::string_view field, std::string_view text, E absent) const {
    if (const std::optional<E> value = FromText<E>(text)) return *value;
    Fail(field, NotAWord<E>(text));
    return absent;
  }
  template <typename E>
  E WordOrDefault(std::string_view field, std::string_view text, E absent) const {
    return text.empty() ? absent : WordOf(field, text, absent);
  }

  // The words of a list of `count` texts; a violation for those that are none or were there before.
  template <typename E, typename TextAt>
  std::vector<E> WordsOf(std::string_view field, int count, const TextAt& text_at) const {
    std::vector<E> words;
    ListedOnce<E> once(*this, field);
    for (int i = 0; i < count; ++i) {
      const std::optional<E> word = FromText<E>(text_at(i));
      if (!word) {
        Fail(fmt::format("{}[{}]", field, i), NotAWord<E>(text_at(i)));
      } else if (once.Note(*word, i)) {
        words.push_back(*word);
      }
    }
    return words;
  }

 private:
  std::string path_;
  Violations* violations_ = nullptr;
};

// Where a value that may be listed once was first listed.
template <typename T>
class ListedOnce {
 public:
  ListedOnce(const FieldCheck& check, std::string_view field) : check_(check), field_(field) {}

  // Whether it is new; a violation at position `i` otherwise.
  bool Note(const T& value, int i) {
    const auto [first, is_new] = first_.emplace(value, i);
    if (!is_new) {
      check_.Fail(fmt::format("{}[{}]", field_, i), "is given twice, first at {}[{}]", field_,
                  first->second);
    }
    return is_new;
  }

 private:
  const FieldCheck& check_;
  const std::string_view field_;
  absl::flat_hash_map<T, int> first_;
};

}  // namespace neuroshard
