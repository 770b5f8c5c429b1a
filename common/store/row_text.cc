#include "common/store/row_text.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/domain/backend_names.h"

namespace neuroshard {
namespace {

using Json = nlohmann::json;

// Text of a foreign encoding (a host name, a driver's message) must not make a measurement
// unstorable.
std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T, typename Convert>
StatusOr<T> Parse(const std::string& text, Convert convert) {
  try {
    return convert(Json::parse(text));
  } catch (const std::exception& error) {
    return absl::DataLossError(fmt::format("a stored value is damaged: {}", error.what()));
  }
}

}  // namespace

std::string IntegersToText(const std::vector<std::int64_t>& values) { return Dump(values); }
std::string RealsToText(const std::vector<double>& values) { return Dump(values); }
std::string HistogramToText(const ReuseHistogram& histogram) { return Dump(histogram); }

std::string SeriesToText(const TimedSeries& series) {
  return Dump({{"samples_ms", series.samples_ms},
               {"median_ms", series.median_ms},
               {"relative_spread", series.relative_spread},
               {"stop_reason", std::string(ToText(series.stop_reason))},
               {"warmup_iterations", series.warmup_iterations}});
}

std::string EnvironmentToText(const MeasurementEnvironment& environment) {
  return Dump({{"worker_version", environment.worker_version},
               {"git_commit", environment.git_commit},
               {"hostname", environment.hostname},
               {"device", environment.device},
               {"backend", environment.backend},
               {"properties", environment.properties}});
}

std::string InputDistToText(const std::optional<InputDistSample>& input) {
  if (!input) return "";
  return Dump({{"whole_features", input->whole_features},
               {"whole_ids", input->whole_ids},
               {"cut_features", input->cut_features},
               {"cut_ids", input->cut_ids},
               {"weighted", input->weighted},
               {"seed", input->seed}});
}

StatusOr<std::vector<std::int64_t>> IntegersFromText(const std::string& text) {
  using Integers = std::vector<std::int64_t>;
  return Parse<Integers>(text, [](const Json& value) -> StatusOr<Integers> {
    // What JSON reads as a real may be beyond every integer, and converting it is then undefined.
    const bool whole = std::all_of(value.begin(), value.end(), [](const Json& number) {
      return number.is_number_integer() &&
             (!number.is_number_unsigned() ||
              std::in_range<std::int64_t>(number.get<std::uint64_t>()));
    });
    if (!whole) return absl::DataLossError("a stored value is damaged: a number is no integer");
    return value.get<Integers>();
  });
}

StatusOr<std::vector<double>> RealsFromText(const std::string& text) {
  return Parse<std::vector<double>>(
      text, [](const Json& value) { return value.get<std::vector<double>>(); });
}

StatusOr<std::optional<InputDistSample>> InputDistFromText(const std::string& text) {
  using Input = std::optional<InputDistSample>;
  if (text.empty()) return Input();
  return Parse<Input>(text, [](const Json& value) -> StatusOr<Input> {
    InputDistSample input;
    NS_ASSIGN_OR_RETURN(input.whole_features, IntegersFromText(value.at("whole_features").dump()));
    input.whole_ids = value.at("whole_ids").get<std::vector<double>>();
    input.cut_features = value.at("cut_features").get<std::int64_t>();
    input.cut_ids = value.at("cut_ids").get<double>();
    input.weighted = value.at("weighted").get<bool>();
    input.seed = value.at("seed").get<std::uint64_t>();
    return input;
  });
}

StatusOr<ReuseHistogram> HistogramFromText(const std::string& text) {
  NS_ASSIGN_OR_RETURN(const std::vector<double> shares, RealsFromText(text));
  ReuseHistogram histogram{};
  if (shares.size() != histogram.size()) {
    return absl::DataLossError("a stored reuse histogram is damaged");
  }
  std::copy(shares.begin(), shares.end(), histogram.begin());
  return histogram;
}

StatusOr<TimedSeries> SeriesFromText(const std::string& text) {
  return Parse<TimedSeries>(text, [](const Json& value) {
    TimedSeries series;
    series.samples_ms = value.at("samples_ms").get<std::vector<double>>();
    series.median_ms = value.at("median_ms").get<double>();
    series.relative_spread = value.at("relative_spread").get<double>();
    series.stop_reason = FromText<StopReason>(value.at("stop_reason").get<std::string>()).value();
    series.warmup_iterations = value.at("warmup_iterations").get<int>();
    return series;
  });
}

StatusOr<MeasurementEnvironment> EnvironmentFromText(const std::string& text) {
  return Parse<MeasurementEnvironment>(text, [](const Json& value) {
    MeasurementEnvironment environment;
    environment.worker_version = value.at("worker_version").get<std::string>();
    environment.git_commit = value.at("git_commit").get<std::string>();
    environment.hostname = value.at("hostname").get<std::string>();
    environment.device = value.at("device").get<std::string>();
    environment.backend = value.at("backend").get<std::string>();
    environment.properties = value.at("properties").get<std::map<std::string, std::string>>();
    UseBackendNamesOfToday(environment);
    return environment;
  });
}

}  // namespace neuroshard
