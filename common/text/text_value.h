// A parsed YAML or JSON document, independent of any message, and the values of its scalars.
// Messages (common/codec/message_text.h) and files of options (config_reader.h) are read from it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace neuroshard {

// A node of a YAML or JSON document: a scalar as it is written, a sequence or a mapping.
struct TextValue {
  enum class Kind {
    kNull,
    kPlain,   // YAML scalar without quotes: its type is whatever the field wants
    kText,    // quoted
    kNumber,  // JSON number
    kBool,    // JSON true or false
    kSequence,
    kMapping,
  };

  Kind kind = Kind::kNull;
  int line = 0;                   // from 1; 0 when not known
  std::string text;               // of a scalar, as written
  std::vector<TextValue> items;   // of a sequence, or the values of a mapping
  std::vector<std::string> keys;  // of a mapping, parallel to items; may repeat

  // What the mapping has under `key`, of several the first; null: nothing, or this is no mapping.
  const TextValue* Find(std::string_view key) const;
};

// The value for an error message: `"12"`, `"12" in quotes`, "a list", "a mapping", "null".
std::string Shown(const TextValue& value);

// Decimal digits, quoted or not, or a float that is integral (1e9, 5.0) and small enough that a
// double holds it exactly. nullopt: it is no integer, or (`out_of_range`) none of T.
template <typename T>
std::optional<T> IntegerOf(const TextValue& value, bool* out_of_range = nullptr);
// A decimal number, quoted or not, or one of YAML's and JSON's names of NaN and infinity.
std::optional<double> RealOf(const TextValue& value);
// true or false, without quotes.
std::optional<bool> BoolOf(const TextValue& value);
// Any scalar but JSON's numbers and bools, as written.
std::optional<std::string> TextOf(const TextValue& value);

// Bounds on a text, so that a hostile one cannot exhaust memory or stack; exceeding one is
// INVALID_ARGUMENT and quotes it.
inline constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;
inline constexpr int kMaxTextDepth = 64;
// Values, keys of YAML among them, after aliases are expanded.
inline constexpr std::size_t kMaxTextValues = 8'000'000;

// What a document has taken of these bounds while it is read.
class TextBudget {
 public:
  explicit TextBudget(std::size_t max_values = kMaxTextValues) : max_values_(max_values) {}

  // INVALID_ARGUMENT, naming the bound, once more than allowed is taken.
  Status TakeValues(std::size_t values, std::size_t bytes);
  static Status CheckDepth(int depth);

 private:
  std::size_t max_values_;
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;
};

// One document; null where the text holds none. INVALID_ARGUMENT "line 3, column 7: ..." for a
// syntax error, a bound, several documents, or (JSON) none.
StatusOr<TextValue> ParseYamlDocument(std::string_view text,
                                      std::size_t max_values = kMaxTextValues);
StatusOr<TextValue> ParseJsonDocument(std::string_view text);

}  // namespace neuroshard
