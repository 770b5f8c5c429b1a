#include "common/codec/message_text.h"

#include <fmt/ranges.h>

#include <limits>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/base/violations.h"
#include "common/codec/field_access.h"
#include "common/text/quantity.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

using google::protobuf::Descriptor;
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

// Sets `field`, or adds to it when it is repeated. Empty when it could; otherwise what the value
// must be ("must be an integer") for the caller to say where. The message is then as it was. Not
// for message fields.
std::string SetScalar(const TextValue& written, const FieldDescriptor& field,
                      ProtoMessage& message) {
  return VisitScalar(&field, [&](const auto& access) -> std::string {
    using T = typename std::decay_t<decltype(access)>::Type;
    if constexpr (std::is_same_v<T, bool>) {
      const std::optional<bool> truth = BoolOf(written);
      if (!truth) return "must be true or false";
      access.Put(*truth, &field, message);
    } else if constexpr (std::is_same_v<T, std::string>) {
      std::optional<std::string> text = TextOf(written);
      if (!text) return "must be text";
      if (!IsUtf8(*text)) return "must be UTF-8";
      access.Put(*std::move(text), &field, message);
    } else {
      TextValue without_unit;
      std::optional<std::string> plain = PlainNumber(written.text, field.name());
      if (plain) {
        without_unit = written;
        without_unit.text = *std::move(plain);
      }
      const TextValue& value = plain ? without_unit : written;
      bool out_of_range = false;
      std::optional<T> number;
      if constexpr (std::is_same_v<T, double>) {
        number = RealOf(value);
      } else {
        number = IntegerOf<T>(value, &out_of_range);
      }
      if (out_of_range) {
        return fmt::format("must be an integer from {} to {}", std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max());
      }
      if (!number) {
        return fmt::format("must be {}{}", std::is_integral_v<T> ? "an integer" : "a number",
                           UnitHint(field.name()));
      }
      access.Put(*number, &field, message);
    }
    return "";
  });
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
