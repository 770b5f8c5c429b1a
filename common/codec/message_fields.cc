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
      const auto value = static_cast<Wide>(access.Get(message, field, entry));
      const auto low = static_cast<Wide>(range.low);
      const auto high = static_cast<Wide>(range.high);
      return field->is_repeated()
                 ? check.InRange(fmt::format("{}[{}]", range.name, entry), value, low, high)
                 : check.InRange(range.name, value, low, high);
    }
  });
}

}  // namespace

bool CheckRange(const ProtoMessage& message, const FieldDescriptor* field, const FieldRange& range,
                const FieldCheck& check) {
  if (field->has_presence() && !message.GetReflection()->HasField(message, field)) return true;
  bool all = true;
  const int entries = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
  for (int i = 0; i < entries; ++i) all = IsInRange(message, field, i, range, check) && all;
  return all;
}

}  // namespace neuroshard
