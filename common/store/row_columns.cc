#include "common/store/row_columns.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "common/domain/backend_names.h"

namespace neuroshard {
namespace {

using Json = nlohmann::json;

// The members that NS_FIELDS lists, under their names; words as text.
template <typename T>
Json ToJson(const T& value) {
  if constexpr (kHasFields<T>) {
    Json object = Json::object();
    ForEachField(
        value, [&object](const char* name, const auto& member) { object[name] = ToJson(member); });
    if constexpr (std::is_same_v<T, MeasurementEnvironment>) {
      object["properties"] = value.properties;
    }
    return object;
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(ToText(value));
  } else {
    return value;
  }
}

template <typename T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Throws when it is something else.
template <typename T>
void FromJson(const Json& json, T& value) {
  if constexpr (kHasFields<T>) {
    ForEachField(value,
                 [&json](const char* name, auto& member) { FromJson(json.at(name), member); });
  } else if constexpr (std::is_enum_v<T>) {
    value = FromText<T>(json.get<std::string>()).value();
  } else if constexpr (kIsInteger<T>) {
    // What JSON reads as a real may be beyond every integer, and converting it is then undefined.
    const bool fits = json.is_number_unsigned()
                          ? std::in_range<T>(json.get<std::uint64_t>())
                          : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
    if (!fits) throw std::range_error("a number is no integer, or beyond those of its field");
    json.get_to(value);
  } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
    value.resize(json.size());
    for (std::size_t i = 0; i < value.size(); ++i) FromJson(json.at(i), value[i]);
  } else {
    json.get_to(value);
  }
  if constexpr (std::is_same_v<T, MeasurementEnvironment>) {
    json.at("properties").get_to(value.properties);
    UseBackendNamesOfToday(value);
  } else if constexpr (std::is_same_v<T, ReuseHistogram>) {
    if (json.size() != value.size()) throw std::length_error("not a reuse histogram");
  }
}

}  // namespace

template <typename T>
std::string ToRowText(const T& value) {
  // Text of a foreign encoding (a host name, a driver's message) must not make a measurement
  // unstorable.
  return ToJson(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T>
StatusOr<T> FromRowText(const std::string& text) {
  try {
    T value{};
    FromJson(Json::parse(text), value);
    return value;
  } catch (const std::exception& error) {
    return DataLoss("a stored value is damaged: {}", error.what());
  }
}

template std::string ToRowText(const std::vector<std::int64_t>&);
template std::string ToRowText(const std::vector<double>&);
template std::string ToRowText(const ReuseHistogram&);
template std::string ToRowText(const TimedSeries&);
template std::string ToRowText(const InputDistSample&);
template std::string ToRowText(const MeasurementEnvironment&);
template StatusOr<std::vector<std::int64_t>> FromRowText(const std::string&);
template StatusOr<std::vector<double>> FromRowText(const std::string&);
template StatusOr<ReuseHistogram> FromRowText(const std::string&);
template StatusOr<TimedSeries> FromRowText(const std::string&);
template StatusOr<InputDistSample> FromRowText(const std::string&);
template StatusOr<MeasurementEnvironment> FromRowText(const std::string&);

}  // namespace neuroshard
