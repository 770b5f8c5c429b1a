// Registration of metrics with the Prometheus client library. For .cc files: others use
// prometheus_types.h.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

namespace neuroshard {

// A family of what `builder` makes: prometheus::BuildCounter(), BuildGauge() or BuildHistogram().
// The registry has one of a name, however often this is called.
template <typename Builder>
auto& FamilyOf(prometheus::Registry& registry, Builder builder, const char* name,
               const char* help) {
  return builder.Name(name).Help(help).Register(registry);
}

// The one metric of a family without labels.
inline prometheus::Counter& OneCounter(prometheus::Registry& registry, const char* name,
                                       const char* help) {
  return FamilyOf(registry, prometheus::BuildCounter(), name, help).Add({});
}
inline prometheus::Gauge& OneGauge(prometheus::Registry& registry, const char* name,
                                   const char* help) {
  return FamilyOf(registry, prometheus::BuildGauge(), name, help).Add({});
}

}  // namespace neuroshard
