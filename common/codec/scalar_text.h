// One scalar of a document into one field of a message, and the encodings that this needs.
#pragma once

#include <google/protobuf/message.h>

#include <optional>
#include <string>
#include <string_view>

#include "common/text/text_value.h"

namespace neuroshard {

// Sets `field`, or adds to it when it is repeated. Empty when it could; otherwise what the value
// must be ("must be an integer") for the caller to say where. The message is then as it was. Not
// for message fields.
std::string SetScalar(const TextValue& value, const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message& message);

// RFC 4648, standard alphabet, padded. Decoding also takes the URL-safe alphabet and missing
// padding, as protobuf JSON does.
std::string ToBase64(std::string_view bytes);
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace neuroshard
