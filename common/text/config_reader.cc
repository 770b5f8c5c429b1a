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

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

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

// The scalar of field `key`, which says the unit of a number, and what is wrong with it; nothing
// where it is not of the type.
template <typename T>
std::pair<std::optional<T>, std::string> Parsed(std::string_view key, const TextValue& written,
                                                ConfigRange<T> range) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    TextValue value = written;
    value.text = PlainNumber(written.text, key).value_or(written.text);
    if constexpr (std::is_integral_v<T>) {
      constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
      using Limits = std::numeric_limits<T>;
      range.min = std::max<std::int64_t>(range.min, Limits::min());
      range.max = std::min<std::int64_t>(
          range.max, std::in_range<std::int64_t>(Limits::max()) ? Limits::max() : kMax);
      const auto number = IntegerOf<std::int64_t>(value);
      if (!number) return {{}, NotOfType("an integer", written, UnitHint(key))};
      return {static_cast<T>(*number), RangeFault(*number, range)};
    } else {
      const std::optional<double> number = RealOf(value);
      if (!number) return {{}, NotOfType("a number", written, UnitHint(key))};
      return {number, RangeFault(*number, range)};
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    const std::optional<bool> truth = BoolOf(written);
    return {truth, truth ? "" : NotOfType("true or false", written)};
  } else {
    std::optional<std::string> text = TextOf(written);
    std::string fault = text ? "" : NotOfType("text", written);
    return {std::move(text), std::move(fault)};
  }
}

// A key, which may be anything, as messages show it.
std::string ShownKey(const std::string& key) {
  constexpr std::size_t kMaxKeyBytes = 80;
  return Printable(key, kMaxKeyBytes);
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
void ConfigReader::Read(std::string_view key, T* value, ConfigRange<T> range) {
  const TextValue* found = mapping_->Find(key);
  if (found == nullptr) return;
  if constexpr (!kIsList<T>) {
    auto [parsed, fault] = Parsed<T>(key, *found, range);
    if (!fault.empty()) return AddViolation(key, std::move(fault));
    *value = *std::move(parsed);
  } else if (found->kind != TextValue::Kind::kSequence) {
    AddViolation(key, NotOfType("a list", *found));
  } else {
    using Element = typename T::value_type;
    T elements;
    for (const TextValue& item : found->items) {
      auto [parsed, fault] = Parsed<Element>(key, item, range);
      if (!fault.empty()) AddViolation(fmt::format("{}[{}]", key, elements.size()), fault);
      elements.push_back(std::move(parsed).value_or(Element{}));
    }
    *value = std::move(elements);
  }
}

template void ConfigReader::Read(std::string_view, int*, IntegerRange);
template void ConfigReader::Read(std::string_view, std::int64_t*, IntegerRange);
template void ConfigReader::Read(std::string_view, std::uint64_t*, IntegerRange);
template void ConfigReader::Read(std::string_view, double*, RealRange);
template void ConfigReader::Read(std::string_view, bool*, NoRange);
template void ConfigReader::Read(std::string_view, std::string*, NoRange);
template void ConfigReader::Read(std::string_view, std::vector<std::int64_t>*, IntegerRange);
template void ConfigReader::Read(std::string_view, std::vector<double>*, RealRange);
template void ConfigReader::Read(std::string_view, std::vector<bool>*, NoRange);
template void ConfigReader::Read(std::string_view, std::vector<std::string>*, NoRange);

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
