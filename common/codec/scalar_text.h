// One scalar of a document into one field of a message.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/text/text_value.h"

namespace neuroshard {

// Sets `field`, or adds to it when it is repeated. Empty when it could; otherwise what the value
// must be ("must be an integer") for the caller to say where. The message is then as it was. Not
// for message fields.
std::string SetScalar(const TextValue& value, const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message& message);

}  // namespace neuroshard
