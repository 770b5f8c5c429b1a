#include "common/codec/message_fields.h"

namespace neuroshard {
namespace {

// Whether entry `entry` of the field, or the field itself, is in the range.
bool IsInRange(const ProtoMessage& message, const FieldDescriptor* field, int entry,
               const FieldRange& range, const FieldCheck& check) {
  return VisitScalar(field, [&](const auto& access) {
    using Scalar = typename std::decay_t<decltype(access)>::Type;
    if constexpr (!std::is_arithmetic_v<Scalar>) {
      return true;
    } else {
      using Wide = std::conditional_t<std::is_floating_point_v<Scalar>, double, std::int64_t>;
      const std::string path =
          field->is_repeated() ? fmt::format("{}[{}]", range.field, entry) : range.field;
      return check.InRange(path, static_cast<Wide>(access.Get(message, field, entry)),
                           static_cast<Wide>(range.low), static_cast<Wide>(range.high));
    }
  });
}

}  // namespace

bool CheckRanges(const ProtoMessage& message, std::span<const FieldRange> ranges,
                 const FieldCheck& check) {
  bool all = true;
  for (const FieldRange& range : ranges) {
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(range.field);
    const Reflection& from = *message.GetReflection();
    if (field->has_presence() && !from.HasField(message, field)) continue;
    const int entries = field->is_repeated() ? from.FieldSize(message, field) : 1;
    for (int i = 0; i < entries; ++i) all = IsInRange(message, field, i, range, check) && all;
  }
  return all;
}

}  // namespace neuroshard
