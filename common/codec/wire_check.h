// What a message will take in memory, found without parsing it: a few bytes on the wire can become
// an object of hundreds.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace google::protobuf {
class Descriptor;
namespace io {
class ZeroCopyInputStream;
}
}  // namespace google::protobuf

namespace neuroshard {

// Limits of a request, and the options that they come from.
struct WireLimits {
  // Messages of this type (full name) in one field; -1: any number.
  std::string counted_type;
  std::int64_t max_counted = -1;
  std::string counted_option;
  // Strings and messages of the whole request.
  std::int64_t max_values = 4'000'000;
  std::string values_option = "limits.max_request_values";
};

// What was counted.
struct WireSize {
  std::int64_t bytes = 0;
  std::int64_t values = 0;

  // What parsing takes, about and rather too much: the bytes, and an object a value.
  std::int64_t ParsedBytes() const { return bytes + 200 * values; }
};

// Walks over the encoded message and stops at the first limit: RESOURCE_EXHAUSTED with a violation
// whose path is the field's ("request.tables"). INVALID_ARGUMENT for what is no message of `type`.
// Takes no memory; time is linear in the bytes up to the limit, some 10 ns a value.
StatusOr<WireSize> CheckOnTheWire(google::protobuf::io::ZeroCopyInputStream& bytes,
                                  const google::protobuf::Descriptor& type,
                                  const WireLimits& limits);

}  // namespace neuroshard
