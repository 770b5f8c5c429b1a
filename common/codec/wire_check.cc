#include "common/codec/wire_check.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>

#include "common/codec/request_faults.h"

namespace neuroshard {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;
using ::google::protobuf::io::ZeroCopyInputStream;

// The parser's own limit.
constexpr int kMaxDepth = 100;

// Where a message is; made into text only for an error.
struct Path {
  const Path* outer;  // null: the request itself
  const FieldDescriptor* field;
};

std::string ToText(const Path* path) {
  if (path == nullptr || path->field == nullptr) return "";
  const std::string outer = ToText(path->outer);
  return outer.empty() ? path->field->name() : outer + "." + path->field->name();
}

class WireWalk {
 public:
  WireWalk(ZeroCopyInputStream& bytes, const WireLimits& limits) : input_(&bytes), limits_(limits) {
    input_.SetTotalBytesLimit(std::numeric_limits<int>::max());
  }

  Status Message(const Descriptor& type, const Path* here, int depth) {
    if (depth > kMaxDepth) return InvalidArgument("messages are nested too deeply");
    std::int64_t counted = 0;  // of one field: the type has one such field at most
    while (const std::uint32_t tag = input_.ReadTag()) {
      if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (!WireFormatLite::SkipField(&input_, tag)) return Malformed();
        continue;
      }
      int length = 0;
      if (!input_.ReadVarintSizeAsInt(&length)) return Malformed();
      if (++values_ > limits_.max_values) {
        return OverLimit(here, "strings and messages, all together", limits_.max_values,
                         limits_.values_option);
      }
      const FieldDescriptor* const field =
          type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        if (!input_.Skip(length)) return Malformed();
        continue;
      }
      const Descriptor& inner = *field->message_type();
      const Path there{here, field};
      if (limits_.max_counted >= 0 && inner.full_name() == limits_.counted_type &&
          ++counted > limits_.max_counted) {
        return OverLimit(&there, "entries", limits_.max_counted, limits_.counted_option);
      }
      const CodedInputStream::Limit outer = input_.PushLimit(length);
      NS_RETURN_IF_ERROR(Message(inner, &there, depth + 1));
      if (input_.BytesUntilLimit() > 0) return Malformed();
      input_.PopLimit(outer);
    }
    return input_.ConsumedEntireMessage() ? absl::OkStatus() : Malformed();
  }

  WireSize size() const { return {.bytes = input_.CurrentPosition(), .values = values_}; }

 private:
  static Status Malformed() { return InvalidArgument("the request is no message of its type"); }
  static Status OverLimit(const Path* path, const char* what, std::int64_t most,
                          const std::string& option) {
    RequestFaults faults;
    const std::string field = ToText(path);
    faults.over_limits.Add(field.empty() ? "request" : field,
                           "has more than {} {}, which is this server's limit ({})", most, what,
                           option);
    return faults.ToStatus();
  }

  CodedInputStream input_;
  const WireLimits& limits_;
  std::int64_t values_ = 0;
};

}  // namespace

StatusOr<WireSize> CheckOnTheWire(ZeroCopyInputStream& bytes, const Descriptor& type,
                                  const WireLimits& limits) {
  WireWalk walk(bytes, limits);
  NS_RETURN_IF_ERROR(walk.Message(type, nullptr, 0));
  return walk.size();
}

}  // namespace neuroshard
