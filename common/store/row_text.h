// Values that a row keeps as JSON text: arrays, series and environments. Doubles come back bit for
// bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"

namespace neuroshard {

std::string IntegersToText(const std::vector<std::int64_t>& values);
std::string RealsToText(const std::vector<double>& values);
std::string HistogramToText(const ReuseHistogram& histogram);
std::string SeriesToText(const TimedSeries& series);
// Empty text: none.
std::string InputDistToText(const std::optional<InputDistSample>& input);
// Without measured_at_unix_ms, which differs in every record and has a column of its own: equal
// environments give equal text.
std::string EnvironmentToText(const MeasurementEnvironment& environment);

// DATA_LOSS when the text is not what the functions above write.
StatusOr<std::vector<std::int64_t>> IntegersFromText(const std::string& text);
StatusOr<std::vector<double>> RealsFromText(const std::string& text);
StatusOr<ReuseHistogram> HistogramFromText(const std::string& text);
StatusOr<std::optional<InputDistSample>> InputDistFromText(const std::string& text);
StatusOr<TimedSeries> SeriesFromText(const std::string& text);
StatusOr<MeasurementEnvironment> EnvironmentFromText(const std::string& text);

}  // namespace neuroshard
