// Copies values of the domain into messages and out of them: the members that NS_FIELDS lists, each
// to the field of its name. Words are text there.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/codec/field_check.h"
#include "common/domain/fields.h"

namespace neuroshard {

// Whether a word that is absent, an empty text, leaves the member at its default or is a fault.
enum class AbsentWord { kDefault, kFault };

template <typename T, typename Message>
void PutFields(const T& value, Message& message);
template <typename T, typename Message>
T TakeFields(const Message& message, const FieldCheck& check,
             AbsentWord absent = AbsentWord::kDefault, T defaults = {});

namespace message_fields {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;

template <typename V>
inline constexpr bool kIsOptional = requires(V value) {
  value.has_value();
};
template <typename V>
inline constexpr bool kIsList = !std::is_same_v<V, std::string> && requires(V value) {
  value.begin();
};

// In the order of kFields<T>. Within other messages all those of a T are of one type.
template <typename T, typename Message>
const std::vector<const FieldDescriptor*>& DescriptorsOf(const Message& message) {
  static const std::vector<const FieldDescriptor*> descriptors = [&message] {
    std::vector<const FieldDescriptor*> found;
    const auto find = [&](const auto& field) {
      found.push_back(message.GetDescriptor()->FindFieldByName(field.name));
    };
    std::apply([&](const auto&... field) { (find(field), ...); }, kFields<T>);
    return found;
  }();
  return descriptors;
}

template <typename V>
void Put(const V& value, const FieldDescriptor* field, ProtoMessage& message) {
  const auto put = [&](auto set, auto add, auto scalar) {
    (message.GetReflection()->*(field->is_repeated() ? add : set))(&message, field, scalar);
  };
  if constexpr (kIsOptional<V>) {
    if (value) Put(*value, field, message);
  } else if constexpr (kIsList<V>) {
    for (const auto& entry : value) Put(entry, field, message);
  } else if constexpr (kHasFields<V>) {
    const Reflection& to = *message.GetReflection();
    PutFields(value, field->is_repeated() ? *to.AddMessage(&message, field)
                                          : *to.MutableMessage(&message, field));
  } else if constexpr (std::is_enum_v<V>) {
    put(&Reflection::SetString, &Reflection::AddString, std::string(ToText(value)));
  } else if constexpr (std::is_same_v<V, std::string>) {
    put(&Reflection::SetString, &Reflection::AddString, value);
  } else if constexpr (std::is_same_v<V, bool>) {
    put(&Reflection::SetBool, &Reflection::AddBool, value);
  } else if constexpr (std::is_floating_point_v<V>) {
    put(&Reflection::SetDouble, &Reflection::AddDouble, value);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    put(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<std::int32_t>(value));
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    put(&Reflection::SetInt64, &Reflection::AddInt64, static_cast<std::int64_t>(value));
  } else {
    put(&Reflection::SetUInt64, &Reflection::AddUInt64, static_cast<std::uint64_t>(value));
  }
}

// The field, or its entry `index` if that is not negative.
template <typename V>
V Get(const ProtoMessage& message, const FieldDescriptor* field, int index) {
  const Reflection& from = *message.GetReflection();
  const auto get = [&](auto one, auto entry) {
    return index < 0 ? (from.*one)(message, field) : (from.*entry)(message, field, index);
  };
  if constexpr (std::is_same_v<V, std::string>) {
    return get(&Reflection::GetString, &Reflection::GetRepeatedString);
  } else if constexpr (std::is_same_v<V, bool>) {
    return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
  } else if constexpr (std::is_floating_point_v<V>) {
    return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    return static_cast<V>(get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    return static_cast<V>(get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
  } else {
    return static_cast<V>(get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
  }
}

template <typename V>
void Take(const ProtoMessage& message, const FieldDescriptor* field, const FieldCheck& check,
          AbsentWord absent, V& value) {
  const Reflection& from = *message.GetReflection();
  if constexpr (kIsOptional<V>) {
    typename V::value_type given{};
    bool is_given = !field->has_presence() || from.HasField(message, field);
    if constexpr (std::is_enum_v<typename V::value_type>) {
      is_given = !Get<std::string>(message, field, -1).empty();
    }
    if (is_given) Take(message, field, check, absent, given), value = given;
  } else if constexpr (std::is_enum_v<V>) {
    const std::string text = Get<std::string>(message, field, -1);
    if (text.empty() && absent == AbsentWord::kDefault) return;
    value = check.WordOf(field->name(), text, value);
  } else if constexpr (!kIsList<V>) {
    // A text that is empty is one that is absent.
    const bool may_be_default = !field->has_presence() && !std::is_same_v<V, std::string>;
    if (may_be_default || from.HasField(message, field)) value = Get<V>(message, field, -1);
  } else if constexpr (requires { value.clear(); }) {
    value.clear();
    using Entry = typename V::value_type;
    for (int i = 0; i < from.FieldSize(message, field); ++i) {
      if constexpr (std::is_enum_v<Entry>) {
        const auto word = FromText<Entry>(Get<std::string>(message, field, i));
        if (word) value.push_back(*word);
      } else if constexpr (kHasFields<Entry>) {
        value.push_back(TakeFields<Entry>(from.GetRepeatedMessage(message, field, i),
                                          check.In(field->name(), i), absent));
      } else {
        value.push_back(Get<Entry>(message, field, i));
      }
    }
  }
}

}  // namespace message_fields

// A whole number of the message, by the name of its field.
template <typename Message>
std::int64_t Int64Of(const Message& message, std::string_view field) {
  return message_fields::Get<std::int64_t>(
      message, Message::descriptor()->FindFieldByName(std::string(field)), -1);
}
template <typename Message>
void SetInt64(std::string_view field, std::int64_t value, Message& message) {
  message_fields::Put(value, Message::descriptor()->FindFieldByName(std::string(field)), message);
}

// Words and numbers are set at their defaults too; what is optional and not there is not. Members
// with fields of their own are messages in this one.
template <typename T, typename Message>
void PutFields(const T& value, Message& message) {
  auto descriptor = message_fields::DescriptorsOf<T>(message).begin();
  ForEachField(value, [&](const char*, const auto& member) {
    message_fields::Put(member, *descriptor++, message);
  });
}

// A message with these fields and no others.
template <typename Message, typename T>
Message MessageOf(const T& value) {
  Message message;
  PutFields(value, message);
  return message;
}

// What is absent stays as it is in `defaults`. Words that are none are told `check`, and left out of
// lists; ranges are for the caller to look at, and so are arrays, which are left as they are.
template <typename T, typename Message>
T TakeFields(const Message& message, const FieldCheck& check, AbsentWord absent, T defaults) {
  auto descriptor = message_fields::DescriptorsOf<T>(message).begin();
  ForEachField(defaults, [&](const char*, auto& member) {
    message_fields::Take(message, *descriptor++, check, absent, member);
  });
  return defaults;
}

}  // namespace neuroshard
