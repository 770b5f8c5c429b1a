// The printing half of message_text.h.
#include <absl/strings/escaping.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "common/codec/message_text.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;
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
  const Reflection& r = *message.GetReflection();
  const auto get = [&](auto at, auto one) {
    return field->is_repeated() ? (r.*at)(message, field, index) : (r.*one)(message, field);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetRepeatedInt32, &Reflection::GetInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetRepeatedInt64, &Reflection::GetInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetRepeatedUInt32, &Reflection::GetUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetRepeatedUInt64, &Reflection::GetUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return RealValue(get(&Reflection::GetRepeatedDouble, &Reflection::GetDouble), field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return RealValue(get(&Reflection::GetRepeatedFloat, &Reflection::GetFloat), field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetRepeatedBool, &Reflection::GetBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return get(&Reflection::GetRepeatedEnumValue, &Reflection::GetEnumValue);
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = get(&Reflection::GetRepeatedString, &Reflection::GetString);
      return field->type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text)
                                                          : std::move(text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageValue(field->is_repeated() ? r.GetRepeatedMessage(message, field, index)
                                               : r.GetMessage(message, field));
  }
  return nullptr;
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
