// The printing half of message_text.h.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "common/codec/message_text.h"
#include "common/codec/scalar_text.h"

namespace neuroshard {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json MessageValue(const ProtoMessage& message, JsonDefaults defaults);

Json RealValue(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// A singular field, or entry `index` of a repeated one.
Json FieldValue(const ProtoMessage& message, const FieldDescriptor* field, int index,
                JsonDefaults defaults) {
  const Reflection& r = *message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? r.GetRepeatedInt32(message, field, index) : r.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? r.GetRepeatedInt64(message, field, index) : r.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? r.GetRepeatedUInt32(message, field, index) : r.GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? r.GetRepeatedUInt64(message, field, index) : r.GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return RealValue(repeated ? r.GetRepeatedDouble(message, field, index)
                                : r.GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return RealValue(repeated ? r.GetRepeatedFloat(message, field, index)
                                : r.GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? r.GetRepeatedBool(message, field, index) : r.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return repeated ? r.GetRepeatedEnumValue(message, field, index)
                      : r.GetEnumValue(message, field);
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text =
          repeated ? r.GetRepeatedString(message, field, index) : r.GetString(message, field);
      return field->type() == FieldDescriptor::TYPE_BYTES ? ToBase64(text) : std::move(text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageValue(
          repeated ? r.GetRepeatedMessage(message, field, index) : r.GetMessage(message, field),
          defaults);
  }
  return nullptr;
}

// Sorted by key, so that equal messages print equally.
Json MapValue(const ProtoMessage& message, const FieldDescriptor* field, JsonDefaults defaults) {
  const Reflection& reflection = *message.GetReflection();
  std::map<std::string, Json> entries;
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const ProtoMessage& entry = reflection.GetRepeatedMessage(message, field, i);
    const Json key = FieldValue(entry, entry.GetDescriptor()->map_key(), 0, defaults);
    entries[key.is_string() ? key.get<std::string>() : key.dump()] =
        FieldValue(entry, entry.GetDescriptor()->map_value(), 0, defaults);
  }
  Json value = Json::object();
  for (auto& [key, item] : entries) value[key] = std::move(item);
  return value;
}

Json MessageValue(const ProtoMessage& message, JsonDefaults defaults) {
  const Reflection& reflection = *message.GetReflection();
  Json value = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const bool print_default = defaults == JsonDefaults::kPrint;
    if (field->is_repeated()) {
      const int size = reflection.FieldSize(message, field);
      if (size == 0 && !print_default) continue;
      if (field->is_map()) {
        value[field->name()] = MapValue(message, field, defaults);
        continue;
      }
      Json& items = value[field->name()] = Json::array();
      for (int k = 0; k < size; ++k) items.push_back(FieldValue(message, field, k, defaults));
    } else if (reflection.HasField(message, field) || (print_default && !field->has_presence())) {
      value[field->name()] = FieldValue(message, field, 0, defaults);
    }
  }
  return value;
}

}  // namespace

std::string MessageToJson(const ProtoMessage& message, JsonDefaults defaults) {
  return MessageValue(message, defaults).dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace neuroshard
