// YAML files into structs (options, sweeps, model manifests, fabrics): the struct holds the
// defaults, the file overrides them, and every fault of the file is reported at once with the path
// of its key ("rpc.max_in_flight").
//
//   NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(path));
//   reader.Read("listen", &options.listen);
//   ConfigReader rpc = reader.Section("rpc");
//   rpc.Read("max_in_flight", &options.max_in_flight, {1, 10000});
//   NS_RETURN_IF_ERROR(reader.Finish());
//
// A key that is absent (or null) leaves its field alone. A key that nobody has read by the time of
// Finish is a fault, so misspelled keys do not pass silently. A value that is not of its field's
// type, or out of range, is a fault and leaves the field alone, but for lists, which keep their
// length. Numbers may have a unit (quantity.h). Copies and sections share one document and one list
// of faults; not for concurrent use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

// The integers that a key allows, both ends included.
struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

// The reals that a key allows, both ends included. Not-a-number is never in range.
struct RealRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

struct NoRange {};

// The range of a T, or of the elements of a list.
template <typename T>
struct ConfigRangeOf {
  using Type = std::conditional_t<
      std::is_floating_point_v<T>, RealRange,
      std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, IntegerRange, NoRange>>;
};
template <typename T>
struct ConfigRangeOf<std::vector<T>> : ConfigRangeOf<T> {};
template <typename T>
using ConfigRange = typename ConfigRangeOf<T>::Type;

// A mapping of a YAML file that is read key by key. Faults are collected; Finish returns them.
class ConfigReader {
 public:
  // Values after aliases are expanded; more than files of options and models have.
  static constexpr std::size_t kMaxValues = 200'000;

  // NOT_FOUND when there is no such file, INVALID_ARGUMENT with line and column when it is not
  // YAML, has more than kMaxValues values, or is not a mapping. An empty file is an empty mapping.
  static StatusOr<ConfigReader> FromFile(const std::string& path);
  // `source` stands for the file name in errors; empty: none is said.
  static StatusOr<ConfigReader> FromText(const std::string& text, const std::string& source);

  bool Has(std::string_view key) const;
  // Its keys as written, in order.
  const std::vector<std::string>& keys() const;
  // Faults "missing" for keys that are absent.
  void Require(std::initializer_list<std::string_view> keys);
  // Whether the value is a list, for keys that may be given in more than one way.
  bool IsList(std::string_view key) const;
  bool IsMapping(std::string_view key) const;

  // T: int, std::int64_t, std::uint64_t, double, bool, std::string, or a std::vector of one of the
  // last three or of std::int64_t. A number, or every element of a list of numbers, must be in range.
  template <typename T>
  void Read(std::string_view key, T* value, ConfigRange<T> range = {});
  void Read(std::string_view key, std::map<std::string, std::string>* values);
  // A mapping of anything, flattened: nested keys joined by dots, list entries as key[i], scalars
  // as written. At most `max_values` values, kMaxNesting levels.
  static constexpr int kMaxNesting = 16;
  void ReadFlattened(std::string_view key, std::size_t max_values,
                     std::map<std::string, std::string>* values);

  // A word of one of the vocabularies of common/domain.
  template <typename E>
  void ReadWord(std::string_view key, E* value) {
    std::string text(ToText(*value));
    Read(key, &text);
    if (const auto word = ::neuroshard::FromText<E>(text)) {
      *value = *word;
    } else {
      AddViolation(key, NotAWord<E>(text));
    }
  }

  // A list of such words.
  template <typename E>
  void ReadWords(std::string_view key, std::vector<E>* values) {
    std::vector<std::string> texts;
    for (const E value : *values) texts.emplace_back(ToText(value));
    Read(key, &texts);
    values->clear();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto word = ::neuroshard::FromText<E>(texts[i]);
      if (!word) {
        AddViolation(std::string(key) + "[" + std::to_string(i) + "]", NotAWord<E>(texts[i]));
      }
      values->push_back(word.value_or(E{}));
    }
  }

  // The mapping under `key`; empty when absent.
  ConfigReader Section(std::string_view key);
  // The section; nothing when it is absent, or no mapping (a fault).
  std::optional<ConfigReader> SectionIfGiven(std::string_view key);
  // The mappings listed under `key`, with paths "key[0]", "key[1]"...; none when absent.
  std::vector<ConfigReader> Sections(std::string_view key);

  // A fault that only the owner of the options can see, e.g. that two values contradict each other.
  void AddViolation(std::string_view key, std::string description);
  // With a description that is formatted.
  template <typename Arg, typename... Args>
  void AddViolation(std::string_view key, fmt::format_string<Arg, Args...> format, Arg&& arg,
                    Args&&... args) {
    AddViolation(key, fmt::format(format, std::forward<Arg>(arg), std::forward<Args>(args)...));
  }

  // OK, or INVALID_ARGUMENT that names the file and lists every fault, including keys that nobody
  // read. Call it once, on the reader of the whole file, after everything was read.
  Status Finish();

 private:
  struct Document;
  struct Mapping;

  ConfigReader(std::shared_ptr<Document> document, std::shared_ptr<Mapping> mapping)
      : document_(std::move(document)), mapping_(std::move(mapping)) {}

  std::shared_ptr<Document> document_;
  std::shared_ptr<Mapping> mapping_;
};

}  // namespace neuroshard
