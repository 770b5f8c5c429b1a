// Keys of a model's YAML files. Each key is described once, for reading and writing.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/text/config_reader.h"
#include "server/networks/regular_file.h"

namespace neuroshard {

// End of a text of FAMILY/2.
inline constexpr std::string_view kEndOfText = "...\n";

inline constexpr std::int64_t kMaxLayerWidth = 65536;

// Returns whether the name has 1 to 128 letters, digits, '.', '_' or '-' and begins with a letter
// or digit.
bool IsModelName(std::string_view name);

enum class Presence { kRequired, kOptional };

// A section of a YAML file, whose keys a description names in the order in which they are written:
//
//   void Describe(ManifestFields& fields, FabricLink& link) {
//     fields.Number("latency_us", &link.latency_us, {0, 1e6});
//     fields.Number("bytes_per_s", &link.bytes_per_s, {1, 1e15});
//   }
//
// Reading sets the values; faults go to the reader's list, and what cannot be read stays as it was.
// Writing leaves the values alone; optional keys are left out where they are empty or 0, numbers
// are the shortest text that reads back the same. What is checked beyond single keys is checked
// where reads() says so, in the reader.
class ManifestFields {
 public:
  explicit ManifestFields(ConfigReader reader) : reader_(std::move(reader)) {}

  // The text of one mapping, without kEndOfText; INTERNAL where it cannot be written.
  static StatusOr<std::string> Write(const std::function<void(ManifestFields&)>& describe);

  bool reads() const { return out_ == nullptr; }
  ConfigReader& reader() { return *reader_; }

  // A non-empty text.
  void Text(std::string_view key, std::string* value, Presence presence = Presence::kOptional);
  // An optional word of one of the vocabularies of common/domain.
  template <typename E>
  void WordText(std::string_view key, std::string* value) {
    if (!reads()) return Text(key, value);
    if (!reader_->Has(key)) return;
    E word{};
    reader_->ReadWord(key, &word);
    *value = std::string(ToText(word));
  }
  // A key that must be there and be `expected`.
  void Constant(std::string_view key, std::string_view expected);
  // The key "format": FAMILY/1 or FAMILY/2; `number` is 0 where it is neither.
  void Format(std::string_view family, int* number);
  // A name that IsModelName.
  void Name(std::string_view key, std::string* value);
  // A path that stays inside the model's directory: relative, without "..".
  void FileName(std::string_view key, std::string* value);
  void Flag(std::string_view key, bool* value);
  template <typename T>
  using RangeOf = std::conditional_t<std::is_floating_point_v<T>, RealRange, IntegerRange>;
  template <typename T>
  void Number(std::string_view key, T* value, RangeOf<T> range,
              Presence presence = Presence::kRequired) {
    if (reads()) {
      if (presence == Presence::kRequired) reader_->Require({key});
      reader_->Read(key, value, range);
    } else if (presence == Presence::kRequired || *value != T()) {
      Emit(key, fmt::format("{}", *value));
    }
  }
  // An optional {min, max} with 1 <= min <= max <= `most`.
  template <typename T>
  void MinMax(std::string_view key, std::int64_t most, T* min, T* max) {
    if (!reads() && *max == 0) return;
    FlowSection(key, [&](ManifestFields& range) {
      range.Number("min", min, {1, most});
      range.Number("max", max, {1, most});
      if (!range.reads() || *min <= *max) return;
      range.reader().AddViolation("min", "must be at most max = {}, got {}", *max, *min);
    });
  }

  void List(std::string_view key, std::vector<std::string>* values, Presence presence);
  void List(std::string_view key, std::vector<std::int64_t>* values, IntegerRange range,
            Presence presence);
  void List(std::string_view key, std::vector<double>* values, RealRange range, Presence presence);
  // A list whose entries are all in `known`.
  void KnownTexts(std::string_view key, std::vector<std::string>* values,
                  std::span<const std::string_view> known, Presence presence);
  // A required list of 2 to 64 widths from 1 to kMaxLayerWidth; left empty when faulty.
  void Layers(std::string_view key, std::vector<std::int64_t>* layers);
  // The key "outputs" of a compute section: {"total_ms"}, also where absent, or {"forward_ms",
  // "backward_ms"}.
  void Outputs(std::vector<std::string>* outputs);
  void Map(std::string_view key, std::map<std::string, std::string>* values);
  // A mapping of any content, as texts under keys joined by dots.
  void Details(std::string_view key, std::map<std::string, std::string>* values);

  // A mapping. An optional one without keys is not written.
  using Description = std::function<void(ManifestFields&)>;
  void Section(std::string_view key, Presence presence, const Description& describe);
  void Section(std::string_view key, const Description& describe) {
    Section(key, Presence::kOptional, describe);
  }
  // A mapping that is written in one line.
  void FlowSection(std::string_view key, const Description& describe);
  // A mapping that is there if the value is.
  template <typename T>
  void Section(std::string_view key, std::optional<T>* value,
               void (*describe)(ManifestFields&, T&)) {
    if (!reads() && !*value) return;
    Nested(key, !reads(), false,
           [&](ManifestFields& fields) { describe(fields, *value ? **value : value->emplace()); });
  }
  // A list of mappings.
  template <typename T>
  void Sections(std::string_view key, std::vector<T>* values,
                const std::function<void(ManifestFields&, T&)>& describe) {
    if (reads()) {
      for (ConfigReader& section : reader_->Sections(key)) {
        ManifestFields fields(std::move(section));
        describe(fields, values->emplace_back());
      }
    } else if (!values->empty()) {
      StartValue(key) << YAML::BeginSeq;
      for (T& value : *values) {
        ManifestFields fields(nullptr, "", out_, false);
        describe(fields, value);
        fields.End();
      }
      *out_ << YAML::EndSeq;
    }
  }
  // Returns whether a section that is read is of this kind; for one that is written, returns
  // `written`.
  bool IsKind(std::string_view kind, bool written);

 private:
  // Makes a mapping that is written from its first key on, under `key` of `parent` (null: without a
  // key).
  ManifestFields(ManifestFields* parent, std::string_view key, YAML::Emitter* out, bool flow)
      : parent_(parent), key_(key), out_(out), flow_(flow) {}

  template <typename T, typename... Range>
  void OneList(std::string_view key, std::vector<T>* values, Presence presence, Range... range);
  void Nested(std::string_view key, bool even_empty, bool flow, const Description& describe);
  void Begin();
  void End();
  YAML::Emitter& StartValue(std::string_view key);
  void Emit(std::string_view key, const std::string& text) { StartValue(key) << text; }

  std::optional<ConfigReader> reader_;
  ManifestFields* parent_ = nullptr;
  std::string key_;
  YAML::Emitter* out_ = nullptr;
  bool flow_ = false;
  bool begun_ = false;
};

// Requires the end of a text: a line's end in format /1; kEndOfText, which no part of the text
// contains, in /2.
void RequireEnd(ConfigReader& root, int format, std::string_view yaml);

// Parses a text whose keys `describe` names. INVALID_ARGUMENT with every fault, each with the path of
// its key, as Violations.
template <typename T, typename Describe>
StatusOr<T> ParseFields(std::string_view yaml, const Describe& describe) {
  NS_ASSIGN_OR_RETURN(ConfigReader root, ConfigReader::FromText(std::string(yaml), ""));
  T value;
  ManifestFields fields(root);
  describe(fields, value);
  NS_RETURN_IF_ERROR(root.Finish());
  return value;
}

// Parses a file of at most so many bytes; errors name it.
template <typename T>
StatusOr<T> ParseFile(const std::filesystem::path& path, std::int64_t max_bytes,
                      StatusOr<T> (*parse)(std::string_view)) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, max_bytes));
  StatusOr<T> parsed = parse(text);
  if (!parsed.ok()) return Annotate(parsed.status(), path.string());
  return parsed;
}

}  // namespace neuroshard
