#include "common/codec/message_text.h"

#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/text/quantity.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;
using Kind = TextValue::Kind;

const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  if (const FieldDescriptor* field = type.FindFieldByName(name)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == name) return type.field(i);
  }
  return nullptr;
}

std::string UnknownField(const Descriptor& type, std::string_view key) {
  std::vector<std::string_view> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::string meant = DidYouMean(key, names);
  // With the one that was meant, the others are noise.
  return "unknown field" +
         (meant.empty() ? fmt::format("; known: {}", fmt::join(names, ", ")) : meant);
}

// Sets the field by `set`, or adds to it by `add` when it is repeated.
template <typename T, typename Set>
void SetOrAdd(T scalar, const FieldDescriptor& field, ProtoMessage& message, Set set, Set add) {
  (message.GetReflection()->*(field.is_repeated() ? add : set))(&message, &field,
                                                                std::move(scalar));
}

template <typename T, typename Set>
std::string SetInteger(const TextValue& value, const FieldDescriptor& field, ProtoMessage& message,
                       Set set, Set add) {
  bool out_of_range = false;
  if (const std::optional<T> parsed = IntegerOf<T>(value, &out_of_range)) {
    SetOrAdd(*parsed, field, message, set, add);
    return "";
  }
  if (!out_of_range) return fmt::format("must be an integer{}", UnitHint(field.name()));
  return fmt::format("must be an integer from {} to {}", std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

std::string SetText(const TextValue& value, const FieldDescriptor& field, ProtoMessage& message) {
  std::optional<std::string> text = TextOf(value);
  if (!text) return "must be text";
  if (!IsUtf8(*text)) return "must be UTF-8";
  SetOrAdd(*std::move(text), field, message, &Reflection::SetString, &Reflection::AddString);
  return "";
}

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
}

// Sets `field`, or adds to it when it is repeated. Empty when it could; otherwise what the value
// must be ("must be an integer") for the caller to say where. The message is then as it was. Not
// for message fields.
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
      return SetInteger<std::int32_t>(value, field, message, &Reflection::SetInt32,
                                      &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return SetInteger<std::int64_t>(value, field, message, &Reflection::SetInt64,
                                      &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT64:
      return SetInteger<std::uint64_t>(value, field, message, &Reflection::SetUInt64,
                                       &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> real = RealOf(value);
      if (!real) return fmt::format("must be a number{}", UnitHint(field.name()));
      SetOrAdd(*real, field, message, &Reflection::SetDouble, &Reflection::AddDouble);
      return "";
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> truth = BoolOf(value);
      if (!truth) return "must be true or false";
      SetOrAdd(*truth, field, message, &Reflection::SetBool, &Reflection::AddBool);
      return "";
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return SetText(value, field, message);
    default:
      // What is read spells vocabularies as text, without enums (table.proto says why), and has no
      // numbers of 32 bits but int32.
      return "cannot be written as text";
  }
}

// Fills messages from values and collects what does not fit. No message that is read has maps, bytes
// or alternatives (oneof).
class Filler {
 public:
  explicit Filler(Violations& violations) : violations_(violations) {}

  void Fill(const TextValue& value, const std::string& path, ProtoMessage& message) {
    if (value.kind != Kind::kMapping) {
      Fail(path, value, fmt::format("must be a mapping, got {}", Shown(value)));
      return;
    }
    const Descriptor& type = *message.GetDescriptor();
    std::set<const FieldDescriptor*> seen;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      const TextValue& item = value.items[i];
      const FieldDescriptor* field = FindField(type, value.keys[i]);
      if (field == nullptr) {
        Fail(Join(path, PrintableKey(value.keys[i])), item, UnknownField(type, value.keys[i]));
        continue;
      }
      const std::string field_path = Join(path, field->name());
      if (!seen.insert(field).second) {
        Fail(field_path, item, "is given twice");
        continue;
      }
      if (item.kind == Kind::kNull) continue;
      FillField(item, field_path, *field, message);
    }
  }

 private:
  static std::string Join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }

  static std::string PrintableKey(const std::string& key) {
    const std::string quoted = Quoted(key);
    const bool plain = quoted.size() == key.size() + 2 && !key.empty() && IsUtf8(key);
    return plain ? key : IsUtf8(key) ? quoted : "(not UTF-8)";
  }

  void Fail(const std::string& path, const TextValue& value, std::string description) {
    if (value.line > 0) description += fmt::format(" (line {})", value.line);
    violations_.Add(path.empty() ? "(document)" : path, std::move(description));
  }

  void FillField(const TextValue& value, const std::string& path, const FieldDescriptor& field,
                 ProtoMessage& message) {
    if (field.is_repeated()) {
      if (value.kind != Kind::kSequence) {
        Fail(path, value, fmt::format("must be a list, got {}", Shown(value)));
        return;
      }
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        FillOne(value.items[i], fmt::format("{}[{}]", path, i), field, message);
      }
    } else {
      FillOne(value, path, field, message);
    }
  }

  // Sets a singular field, or adds to a repeated one.
  void FillOne(const TextValue& value, const std::string& path, const FieldDescriptor& field,
               ProtoMessage& message) {
    const Reflection& reflection = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Fill(value, path,
           field.is_repeated() ? *reflection.AddMessage(&message, &field)
                               : *reflection.MutableMessage(&message, &field));
      return;
    }
    if (const std::string fault = SetScalar(value, field, message); !fault.empty()) {
      Fail(path, value, fault + ", got " + Shown(value));
    }
  }

  Violations& violations_;
};

}  // namespace

TextFormat TextFormatOfPath(std::string_view path) {
  return path.ends_with(".json") ? TextFormat::kJson : TextFormat::kYaml;
}

Status ParseMessageText(std::string_view text, TextFormat format, ProtoMessage* message) {
  Status status = ReadMessageText(text, format, message);
  if (!status.ok()) message->Clear();
  return status;
}

Status ReadMessageText(std::string_view text, TextFormat format, ProtoMessage* message) {
  message->Clear();
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("is {} bytes long, at most {} are read", text.size(), kMaxTextBytes);
  }
  NS_ASSIGN_OR_RETURN(const TextValue document, format == TextFormat::kJson
                                                    ? ParseJsonDocument(text)
                                                    : ParseYamlDocument(text));
  if (document.kind == Kind::kNull) return InvalidArgument("line 1: the document is empty");
  Violations violations;
  Filler(violations).Fill(document, "", *message);
  return violations.ToStatus();
}

}  // namespace neuroshard
