// Messages as people write them: YAML or JSON of the same shape as the message, checked against its
// descriptor, within the bounds of common/text/text_value.h.
//
// Field names are the proto's (`embedding_dim`) or protobuf JSON's (`embeddingDim`). Integers may
// be written as quoted decimal strings, as protobuf JSON does, or as integral floats (1e9). Numbers
// may have a unit, 80GiB in a field of bytes, and `_` between digits (common/text/quantity.h). A
// text field takes any YAML scalar as it is written. Bools are true or false. Bytes are base64.
// null means absent. NaN and infinities are let through to float fields, so that the decoder behind
// can say which field it is about.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace google::protobuf {
class Message;
}

namespace neuroshard {

// The two texts that a message can be read from.
enum class TextFormat { kYaml, kJson };

// kJson for names that end in ".json", kYaml otherwise.
TextFormat TextFormatOfPath(std::string_view path);

// Clears `message` and fills it from `text`. INVALID_ARGUMENT: a syntax error with its line and
// column, or every unknown field, wrong type, number out of its field's range and duplicate key at
// once, each with its path. `message` is then left cleared.
Status ParseMessageText(std::string_view text, TextFormat format,
                        google::protobuf::Message* message);

// Reads as above, but what could be read stays in `message` beside the faults, for telling what
// else is wrong with it. Entries of a list of messages keep their positions, those of other lists
// do not.
Status ReadMessageText(std::string_view text, TextFormat format,
                       google::protobuf::Message* message);

// JSON with the proto's field names in the order of the proto, indented by two. Unlike protobuf's
// own printer, 64-bit integers are numbers, so that scripts need no conversion, and fields without
// presence (not `optional`, not a message) are there also at their default. Absent messages and
// absent `optional` fields are left out, but null where answers.proto calls them `nullable`. NaN and
// infinities are the strings "NaN", "Infinity", "-Infinity"; NaN in a `nullable` field is null.
// ParseMessageText reads it back to the same message, but for null in a list.
std::string MessageToJson(const google::protobuf::Message& message);

}  // namespace neuroshard
