// A parsed YAML or JSON document, independent of any message.
#pragma once

#include <cstddef>
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
};

// The bounds of message_text.h, counted while a document is read.
class TextBudget {
 public:
  // INVALID_ARGUMENT, naming the bound, once more than allowed is taken.
  Status TakeValues(std::size_t values, std::size_t bytes);
  static Status CheckDepth(int depth);

 private:
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;
};

// One document. INVALID_ARGUMENT "line 3, column 7: ..." for a syntax error, a bound, several
// documents, or none.
StatusOr<TextValue> ParseYamlDocument(std::string_view text);
StatusOr<TextValue> ParseJsonDocument(std::string_view text);

}  // namespace neuroshard
