// The printing half of message_text.h.
#include <absl/strings/escaping.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "common/codec/field_access.h"
#include "common/codec/message_text.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

Json MessageValue(const ProtoMessage& message);

bool IsNullable(const FieldDescriptor* field) {
  return field->options().GetExtension(v1::nullable);
}

Json RealValue(double value, const FieldDescriptor* field) {
  if (std::isnan(value)) return IsNullable(field) ? Json() : Json("NaN");
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// A singular field, or entry `index` of a repeated one.
Json FieldValue(const ProtoMessage& message, const FieldDescriptor* field, int index) {
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const Reflection& r = *message.GetReflection();
    return MessageValue(field->is_repeated() ? r.GetRepeatedMessage(message, field, index)
                                             : r.GetMessage(message, field));
  }
  return VisitScalar(field, [&](const auto& access) -> Json {
    auto value = access.Get(message, field, index);
    if constexpr (std::is_same_v<decltype(value), double>) return RealValue(value, field);
    if constexpr (std::is_same_v<decltype(value), std::string>) {
      if (field->type() == FieldDescriptor::TYPE_BYTES) return absl::Base64Escape(value);
    }
    return value;
  });
}

// Sorted by key, so that equal messages print equally.
Json MapValue(const ProtoMessage& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  std::map<std::string, Json> entries;
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const ProtoMessage& entry = reflection.GetRepeatedMessage(message, field, i);
    const Json key = FieldValue(entry, entry.GetDescriptor()->map_key(), 0);
    entries[key.is_string() ? key.get<std::string>() : key.dump()] =
        FieldValue(entry, entry.GetDescriptor()->map_value(), 0);
  }
  Json value = Json::object();
  for (auto& [key, item] : entries) value[key] = std::move(item);
  return value;
}

Json MessageValue(const ProtoMessage& message) {
  const Reflection& reflection = *message.GetReflection();
  Json value = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) {
      if (field->is_map()) {
        value[field->name()] = MapValue(message, field);
        continue;
      }
      Json& items = value[field->name()] = Json::array();
      for (int k = 0; k < reflection.FieldSize(message, field); ++k)
        items.push_back(FieldValue(message, field, k));
    } else if (reflection.HasField(message, field) || !field->has_presence()) {
      value[field->name()] = FieldValue(message, field, 0);
    } else if (IsNullable(field)) {
      value[field->name()] = nullptr;
    }
  }
  return value;
}

}  // namespace

std::string MessageToJson(const ProtoMessage& message) {
  return MessageValue(message).dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace neuroshard
