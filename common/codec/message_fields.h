// Copies values of the domain into messages and out of them: the members that NS_FIELDS and
// NS_SPARSE_FIELDS list, each to the field of its name. Words are text there, members with fields of
// their own are messages.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "common/base/positions.h"
#include "common/codec/field_access.h"
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

template <typename V>
inline constexpr bool kIsOptional = requires(V value) {
  value.has_value();
};
template <typename V>
inline constexpr bool kIsList = !std::is_same_v<V, std::string> && requires(V value) {
  value.begin();
};
template <typename V>
inline constexpr bool kIsMap = requires {
  typename V::mapped_type;
};

// Calls visit(member pointer, descriptor of its field) for each that `fields` lists. The descriptors
// are looked up once: a message within another one comes as a plain ProtoMessage, and all that one
// list is used with there have to be of one type.
template <const auto& fields, typename Message, typename Visit>
void ForEachDescriptor(const Message& message, const Visit& visit) {
  std::apply(
      [&](const auto&... field) {
        static const std::array<const FieldDescriptor*, sizeof...(field)> descriptors = {
            message.GetDescriptor()->FindFieldByName(field.name)...};
        [[maybe_unused]] auto descriptor = descriptors.begin();
        (visit(field.member, *descriptor++), ...);
      },
      fields);
}

template <typename V>
void Put(const V& value, const FieldDescriptor* field, ProtoMessage& message) {
  const auto inner = [&]() -> ProtoMessage& {
    const Reflection& to = *message.GetReflection();
    return field->is_repeated() ? *to.AddMessage(&message, field)
                                : *to.MutableMessage(&message, field);
  };
  if constexpr (kIsOptional<V>) {
    if (value) Put(*value, field, message);
  } else if constexpr (kIsMap<V>) {
    for (const auto& [key, item] : value) {
      ProtoMessage& entry = inner();
      Put(key, field->message_type()->map_key(), entry);
      Put(item, field->message_type()->map_value(), entry);
    }
  } else if constexpr (kIsList<V>) {
    for (const auto& entry : value) Put(entry, field, message);
  } else if constexpr (kHasFields<V>) {
    PutFields(value, inner());
  } else if constexpr (std::is_enum_v<V>) {
    Put(std::string(ToText(value)), field, message);
  } else {
    VisitScalar(field, [&](const auto& access) {
      using Scalar = typename std::decay_t<decltype(access)>::Type;
      if constexpr (std::is_convertible_v<V, Scalar>) {
        access.Put(static_cast<Scalar>(value), field, message);
      }
    });
  }
}

// The field, or its entry `entry` if it is repeated.
template <typename V>
V Get(const ProtoMessage& message, const FieldDescriptor* field, int entry = 0) {
  return VisitScalar(field, [&](const auto& access) {
    using Scalar = typename std::decay_t<decltype(access)>::Type;
    if constexpr (std::is_convertible_v<Scalar, V>) {
      return static_cast<V>(access.Get(message, field, entry));
    } else {
      return V();
    }
  });
}

template <typename V>
void Take(const ProtoMessage& message, const FieldDescriptor* field, const FieldCheck& check,
          AbsentWord absent, V& value) {
  // Reached where it is needed: protobuf makes sure of its descriptors each time.
  const auto from = [&message] { return message.GetReflection(); };
  if constexpr (kIsOptional<V>) {
    typename V::value_type given{};
    bool is_given = !field->has_presence() || from()->HasField(message, field);
    if constexpr (std::is_enum_v<typename V::value_type>) {
      is_given = !Get<std::string>(message, field).empty();
    }
    if (is_given) Take(message, field, check, absent, given), value = given;
  } else if constexpr (std::is_enum_v<V>) {
    const auto text = Get<std::string>(message, field);
    if (text.empty() && absent == AbsentWord::kDefault) return;
    value = check.WordOf(field->name(), text, value);
  } else if constexpr (kHasFields<V>) {
    if (!from()->HasField(message, field)) return;
    value = TakeFields(from()->GetMessage(message, field), check.In(field->name()), absent, value);
  } else if constexpr (!kIsList<V>) {
    // A text that is empty is one that is absent.
    const bool may_be_default = !field->has_presence() && !std::is_same_v<V, std::string>;
    if (may_be_default || from()->HasField(message, field)) value = Get<V>(message, field);
  } else if constexpr (requires { value.clear(); }) {
    value.clear();
    const int count = from()->FieldSize(message, field);
    if constexpr (kIsMap<V>) {
      for (int i = 0; i < count; ++i) {
        const ProtoMessage& entry = from()->GetRepeatedMessage(message, field, i);
        value[Get<std::string>(entry, field->message_type()->map_key())] =
            Get<std::string>(entry, field->message_type()->map_value());
      }
    } else if constexpr (std::is_enum_v<typename V::value_type>) {
      value = check.WordsOf<typename V::value_type>(
          field->name(), count, [&](int i) { return Get<std::string>(message, field, i); });
    } else {
      for (int i = 0; i < count; ++i) {
        using Entry = typename V::value_type;
        if constexpr (kHasFields<Entry>) {
          value.push_back(TakeFields<Entry>(from()->GetRepeatedMessage(message, field, i),
                                            check.In(field->name(), i), absent));
        } else {
          value.push_back(Get<Entry>(message, field, i));
        }
      }
    }
  }
}

}  // namespace message_fields

// Words and numbers are set at their defaults too, but for sparse ones; what is optional and not
// there is not.
template <typename T, typename Message>
void PutFields(const T& value, Message& message) {
  using message_fields::ForEachDescriptor;
  ForEachDescriptor<kFields<T>>(message, [&](auto member, const FieldDescriptor* field) {
    message_fields::Put(value.*member, field, message);
  });
  ForEachDescriptor<kSparseFields<T>>(message, [&](auto member, const FieldDescriptor* field) {
    static const T defaults = {};
    if (value.*member != defaults.*member) message_fields::Put(value.*member, field, message);
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
  using message_fields::ForEachDescriptor;
  ForEachDescriptor<kFields<T>>(message, [&](auto member, const FieldDescriptor* field) {
    message_fields::Take(message, field, check, absent, defaults.*member);
  });
  ForEachDescriptor<kSparseFields<T>>(message, [&](auto member, const FieldDescriptor* field) {
    message_fields::Take(message, field, check, AbsentWord::kDefault, defaults.*member);
  });
  return defaults;
}

// One field of the message, for tables of fields; nothing of it is a word or has a range.
template <typename V>
V TakeField(const ProtoMessage& message, const FieldDescriptor* field) {
  V value{};
  message_fields::Take(message, field, FieldCheck(), AbsentWord::kDefault, value);
  return value;
}
template <typename V>
void PutField(const FieldDescriptor* field, const V& value, ProtoMessage& message) {
  message_fields::Put(value, field, message);
}

// The numbers that a field, or each entry of a repeated one, may be, both ends included.
struct FieldRange {
  const char* name;
  double low;
  double high;
};

// Whether the field is; a violation where it is not, for each entry of a repeated one. What is
// optional and absent is in its range.
bool CheckRange(const ProtoMessage& message, const FieldDescriptor* field, const FieldRange& range,
                const FieldCheck& check);

// Whether all that `ranges` lists are.
template <const auto& ranges, typename Message>
bool CheckRanges(const Message& message, const FieldCheck& check) {
  static const auto fields = Mapped(std::span(ranges), [](const FieldRange& of) {
    return Message::descriptor()->FindFieldByName(of.name);
  });
  bool all = true;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    all = CheckRange(message, fields[i], ranges[i], check) && all;
  }
  return all;
}

}  // namespace neuroshard
