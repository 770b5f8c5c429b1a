#include "common/text/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <type_traits>

#include "common/base/in_file.h"
#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/text/quantity.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

std::string NotOfType(std::string_view type, const TextValue& value, std::string_view hint = "") {
  return fmt::format("must be {}{}, got {}", type, hint, Shown(value));
}

// What a scalar of type T must be.
template <typename T>
constexpr std::string_view kTypeName = "text";
template <>
constexpr std::string_view kTypeName<bool> = "true or false";
template <>
constexpr std::string_view kTypeName<std::int64_t> = "an integer";
template <>
constexpr std::string_view kTypeName<double> = "a number";

template <typename T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// The scalar of field `key`, which says the unit of a number.
template <typename T>
std::optional<T> Parsed(std::string_view key, TextValue value) {
  if constexpr (kIsNumber<T>) value.text = PlainNumber(value.text, key).value_or(value.text);
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return IntegerOf<std::int64_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return RealOf(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return BoolOf(value);
  } else {
    return TextOf(value);
  }
}

template <typename T>
std::string NotParsed(std::string_view key, const TextValue& value) {
  return NotOfType(kTypeName<T>, value, kIsNumber<T> ? UnitHint(key) : "");
}

// A key, which may be anything, as messages show it.
std::string ShownKey(const std::string& key) {
  constexpr std::size_t kMaxKeyBytes = 80;
  return Printable(key, kMaxKeyBytes);
}

// What is wrong with a number; empty: nothing.
template <typename T, typename Range>
std::string RangeFault(T value, const Range& range) {
  constexpr Range kAll;
  if (value >= range.min && value <= range.max) return "";
  std::string allowed = fmt::format("in [{}, {}]", range.min, range.max);
  if (range.max == kAll.max) allowed = fmt::format("at least {}", range.min);
  if (range.min == kAll.min) allowed = fmt::format("at most {}", range.max);
  if (range.min == kAll.min && range.max == kAll.max) allowed = "a number";
  return fmt::format("must be {}, got {}", allowed, value);
}

}  // namespace

struct ConfigReader::Mapping {
  std::string prefix;                        // "" or "rpc." or "models[2]."
  const TextValue* value = nullptr;          // of the document; null: an absent mapping
  std::set<std::string, std::less<>> known;  // that were asked for

  const TextValue* Find(std::string_view key) {
    known.insert(std::string(key));
    const TextValue* item = value == nullptr ? nullptr : value->Find(key);
    // An explicit null ("key:" or "key: ~") is the same as no key.
    return item == nullptr || item->kind == TextValue::Kind::kNull ? nullptr : item;
  }
};

struct ConfigReader::Document {
  std::string source;
  TextValue root;
  Violations violations;
  std::vector<std::shared_ptr<Mapping>> mappings;

  std::shared_ptr<Mapping> AddMapping(const TextValue* value, const std::string& prefix) {
    auto mapping = std::make_shared<Mapping>();
    mapping->prefix = prefix;
    mapping->value = value;
    if (value != nullptr) {
      std::set<std::string_view> names;
      for (const std::string& name : value->keys) {
        if (!names.insert(name).second) violations.Add(prefix + ShownKey(name), "given twice");
      }
    }
    mappings.push_back(mapping);
    return mapping;
  }
};

StatusOr<ConfigReader> ConfigReader::FromFile(const std::string& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error);
  if (!std::filesystem::exists(kind)) return NotFound("{}: no such file", path);
  if (std::filesystem::is_directory(kind)) return InvalidArgument("{}: is a directory", path);
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.is_open() || file.bad()) {
    return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
  }
  return FromText(text.str(), path);
}

StatusOr<ConfigReader> ConfigReader::FromText(const std::string& text, const std::string& source) {
  const auto fail = [&source](const Status& status) {
    return source.empty() ? status : Annotate(status, source);
  };
  if (!IsUtf8(text)) return fail(absl::InvalidArgumentError("not YAML: the text is not UTF-8"));
  auto document = std::make_shared<Document>();
  document->source = source;
  StatusOr<TextValue> root = ParseYamlDocument(text, kMaxValues);
  if (!root.ok()) return fail(root.status());
  if (root->kind != TextValue::Kind::kMapping && root->kind != TextValue::Kind::kNull) {
    return fail(absl::InvalidArgumentError(NotOfType("a mapping of keys to values", *root)));
  }
  document->root = *std::move(root);
  auto mapping = document->AddMapping(&document->root, "");
  return ConfigReader(std::move(document), std::move(mapping));
}

bool ConfigReader::Has(std::string_view key) const { return mapping_->Find(key) != nullptr; }

const std::vector<std::string>& ConfigReader::keys() const {
  static const std::vector<std::string> none;
  return mapping_->value == nullptr ? none : mapping_->value->keys;
}

void ConfigReader::Require(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!Has(key)) AddViolation(key, "missing");
  }
}

bool ConfigReader::IsList(std::string_view key) const {
  const TextValue* value = mapping_->Find(key);
  return value != nullptr && value->kind == TextValue::Kind::kSequence;
}

bool ConfigReader::IsMapping(std::string_view key) const {
  const TextValue* value = mapping_->Find(key);
  return value != nullptr && value->kind == TextValue::Kind::kMapping;
}

template <typename T>
std::optional<T> ConfigReader::ReadScalar(std::string_view key) {
  const TextValue* found = mapping_->Find(key);
  if (found == nullptr) return std::nullopt;
  std::optional<T> value = Parsed<T>(key, *found);
  if (!value) AddViolation(key, NotParsed<T>(key, *found));
  return value;
}

template <typename T, typename Range>
void ConfigReader::ReadNumber(std::string_view key, T* value, const Range& range) {
  const std::optional<T> number = ReadScalar<T>(key);
  if (!number) return;
  if (std::string fault = RangeFault(*number, range); !fault.empty()) {
    return AddViolation(key, std::move(fault));
  }
  *value = *number;
}

template <typename T, typename Check>
void ConfigReader::ReadList(std::string_view key, std::vector<T>* values, const Check& fault_of) {
  const TextValue* found = mapping_->Find(key);
  if (found == nullptr) return;
  if (found->kind != TextValue::Kind::kSequence) {
    AddViolation(key, NotOfType("a list", *found));
    return;
  }
  std::vector<T> parsed;
  for (const TextValue& item : found->items) {
    const auto element = Parsed<T>(key, item);
    const std::string fault = element ? fault_of(*element) : NotParsed<T>(key, item);
    if (!fault.empty()) AddViolation(fmt::format("{}[{}]", key, parsed.size()), fault);
    parsed.push_back(element.value_or(T{}));
  }
  *values = std::move(parsed);
}

void ConfigReader::Read(std::string_view key, std::int64_t* value, IntegerRange range) {
  ReadNumber(key, value, range);
}

void ConfigReader::Read(std::string_view key, int* value, IntegerRange range) {
  std::int64_t wide = *value;
  range.min = std::max<std::int64_t>(range.min, std::numeric_limits<int>::min());
  range.max = std::min<std::int64_t>(range.max, std::numeric_limits<int>::max());
  Read(key, &wide, range);
  *value = static_cast<int>(wide);
}

void ConfigReader::Read(std::string_view key, std::uint64_t* value) {
  std::int64_t wide = -1;
  Read(key, &wide, {0, std::numeric_limits<std::int64_t>::max()});
  if (wide >= 0) *value = static_cast<std::uint64_t>(wide);
}

void ConfigReader::Read(std::string_view key, double* value, RealRange range) {
  ReadNumber(key, value, range);
}

void ConfigReader::Read(std::string_view key, bool* value) {
  *value = ReadScalar<bool>(key).value_or(*value);
}

void ConfigReader::Read(std::string_view key, std::string* value) {
  *value = ReadScalar<std::string>(key).value_or(*value);
}

void ConfigReader::Read(std::string_view key, std::vector<std::string>* values) {
  ReadList(key, values, [](const std::string&) { return std::string(); });
}

void ConfigReader::Read(std::string_view key, std::vector<std::int64_t>* values,
                        IntegerRange range) {
  ReadList(key, values, [&](std::int64_t value) { return RangeFault(value, range); });
}

void ConfigReader::Read(std::string_view key, std::vector<double>* values, RealRange range) {
  ReadList(key, values, [&](double value) { return RangeFault(value, range); });
}

void ConfigReader::Read(std::string_view key, std::vector<bool>* values) {
  ReadList(key, values, [](bool) { return std::string(); });
}

void ConfigReader::Read(std::string_view key, std::map<std::string, std::string>* values) {
  if (!Has(key)) return;
  values->clear();
  ConfigReader section = Section(key);
  for (const std::string& name : section.keys()) section.Read(name, &(*values)[name]);
}

void ConfigReader::ReadFlattened(std::string_view key, std::size_t max_values,
                                 std::map<std::string, std::string>* values) {
  if (!Has(key)) return;
  if (!IsMapping(key)) {
    AddViolation(key, NotOfType("a mapping", *mapping_->Find(key)));
    return;
  }
  std::size_t seen = 0;
  const std::function<bool(const TextValue&, const std::string&, int)> flatten =
      [&](const TextValue& value, const std::string& path, int depth) {
        if (++seen > max_values || depth > kMaxNesting) {
          AddViolation(key, "has more than {} values or is nested deeper than {} levels",
                       max_values, kMaxNesting);
          return false;
        }
        for (std::size_t i = 0; i < value.items.size(); ++i) {
          const std::string child = value.kind == TextValue::Kind::kSequence
                                        ? fmt::format("{}[{}]", path, i)
                                        : path + (path.empty() ? "" : ".") + value.keys[i];
          if (!flatten(value.items[i], child, depth + 1)) return false;
        }
        const bool scalar =
            value.kind != TextValue::Kind::kSequence && value.kind != TextValue::Kind::kMapping;
        if (scalar && !values->emplace(path, value.text).second) {
          AddViolation(fmt::format("{}.{}", key, path), "given twice");
        }
        return true;
      };
  flatten(*mapping_->Find(key), "", 0);
}

ConfigReader ConfigReader::Section(std::string_view key) {
  const TextValue* found = mapping_->Find(key);
  if (found != nullptr && found->kind != TextValue::Kind::kMapping) {
    AddViolation(key, NotOfType("a mapping", *found));
    found = nullptr;
  }
  return ConfigReader(document_,
                      document_->AddMapping(found, fmt::format("{}{}.", mapping_->prefix, key)));
}

std::optional<ConfigReader> ConfigReader::SectionIfGiven(std::string_view key) {
  if (!Has(key)) return std::nullopt;
  ConfigReader section = Section(key);
  return IsMapping(key) ? std::optional(std::move(section)) : std::nullopt;
}

std::vector<ConfigReader> ConfigReader::Sections(std::string_view key) {
  std::vector<ConfigReader> sections;
  const TextValue* found = mapping_->Find(key);
  if (found == nullptr) return sections;
  if (found->kind != TextValue::Kind::kSequence) {
    AddViolation(key, NotOfType("a list of mappings", *found));
    return sections;
  }
  for (std::size_t i = 0; i < found->items.size(); ++i) {
    const TextValue& item = found->items[i];
    const std::string path = fmt::format("{}[{}]", key, i);
    if (item.kind != TextValue::Kind::kMapping) {
      AddViolation(path, NotOfType("a mapping", item));
      continue;
    }
    sections.push_back(ConfigReader(
        document_, document_->AddMapping(&item, fmt::format("{}{}.", mapping_->prefix, path))));
  }
  return sections;
}

void ConfigReader::AddViolation(std::string_view key, std::string description) {
  document_->violations.Add(fmt::format("{}{}", mapping_->prefix, key), std::move(description));
}

Status ConfigReader::Finish() {
  for (const auto& mapping : document_->mappings) {
    for (std::size_t i = 0; mapping->value != nullptr && i < mapping->value->keys.size(); ++i) {
      const std::string& name = mapping->value->keys[i];
      if (mapping->known.contains(name)) continue;
      const std::vector<std::string_view> known(mapping->known.begin(), mapping->known.end());
      document_->violations.Add(mapping->prefix + ShownKey(name),
                                "unknown key" + DidYouMean(name, known));
    }
  }
  const Status status = document_->violations.ToStatus();
  return document_->source.empty() ? status : InFile(document_->source, status);
}

}  // namespace neuroshard
