#include "common/codec/scalar_text.h"

#include <absl/strings/escaping.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/base/printable_text.h"
#include "common/text/quantity.h"

namespace neuroshard {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;

template <typename T, typename Setter>
std::string SetInteger(const TextValue& value, std::string_view name, Setter set) {
  bool out_of_range = false;
  const std::optional<T> parsed = IntegerOf<T>(value, &out_of_range);
  if (parsed) {
    set(*parsed);
    return "";
  }
  if (!out_of_range) return fmt::format("must be an integer{}", UnitHint(name));
  return fmt::format("must be an integer from {} to {}", std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

// `reflection.Set<Type>` or `reflection.Add<Type>`, whichever the field wants.
template <typename T>
auto Setter(const FieldDescriptor& field, ProtoMessage& message,
            void (Reflection::*set)(ProtoMessage*, const FieldDescriptor*, T) const,
            void (Reflection::*add)(ProtoMessage*, const FieldDescriptor*, T) const) {
  return [&field, &message, set, add](T value) {
    (message.GetReflection()->*(field.is_repeated() ? add : set))(&message, &field,
                                                                  std::move(value));
  };
}

// RFC 4648, also of the URL-safe alphabet and without padding, as protobuf JSON takes it.
std::optional<std::string> FromBase64(std::string text) {
  // absl skips spaces, takes dots for padding, and refuses padding of another length.
  if (text.find_first_of(" \t\r\n\v\f.") != std::string::npos) return std::nullopt;
  text.erase(text.find_last_not_of('=') + 1);
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  std::string bytes;
  return absl::Base64Unescape(text, &bytes) ? std::optional(bytes) : std::nullopt;
}

std::string SetText(const TextValue& value, const FieldDescriptor& field, ProtoMessage& message) {
  std::optional<std::string> text = TextOf(value);
  if (!text) return "must be text";
  if (field.type() == FieldDescriptor::TYPE_BYTES) {
    text = FromBase64(*text);
    if (!text) return "must be base64";
  } else if (!IsUtf8(*text)) {
    return "must be UTF-8";
  }
  if (field.is_repeated()) {
    message.GetReflection()->AddString(&message, &field, *std::move(text));
  } else {
    message.GetReflection()->SetString(&message, &field, *std::move(text));
  }
  return "";
}

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
}

}  // namespace

std::string SetScalar(const TextValue& written, const FieldDescriptor& field,
                      ProtoMessage& message) {
  TextValue number;
  const std::optional<std::string> plain =
      IsNumber(field) ? PlainNumber(written.text, field.name()) : std::nullopt;
  if (plain) {
    number = written;
    number.text = *plain;
  }
  const TextValue& value = plain ? number : written;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return SetInteger<std::int32_t>(
          value, field.name(),
          Setter<std::int32_t>(field, message, &Reflection::SetInt32, &Reflection::AddInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return SetInteger<std::int64_t>(
          value, field.name(),
          Setter<std::int64_t>(field, message, &Reflection::SetInt64, &Reflection::AddInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return SetInteger<std::uint32_t>(
          value, field.name(),
          Setter<std::uint32_t>(field, message, &Reflection::SetUInt32, &Reflection::AddUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return SetInteger<std::uint64_t>(
          value, field.name(),
          Setter<std::uint64_t>(field, message, &Reflection::SetUInt64, &Reflection::AddUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const std::optional<double> real = RealOf(value);
      if (!real) return fmt::format("must be a number{}", UnitHint(field.name()));
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        Setter<double>(field, message, &Reflection::SetDouble, &Reflection::AddDouble)(*real);
      } else {
        Setter<float>(field, message, &Reflection::SetFloat,
                      &Reflection::AddFloat)(static_cast<float>(*real));
      }
      return "";
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> truth = BoolOf(value);
      if (!truth) return "must be true or false";
      Setter<bool>(field, message, &Reflection::SetBool, &Reflection::AddBool)(*truth);
      return "";
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return SetText(value, field, message);
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  // The API spells vocabularies as text and has no enums (table.proto says why).
  return "cannot be written as text";
}

}  // namespace neuroshard
