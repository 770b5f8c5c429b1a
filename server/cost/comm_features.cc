#include "server/cost/comm_features.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "server/cost/feature_names.h"

namespace neuroshard {
namespace {

constexpr std::array<std::string_view, kCollectiveKinds> kCollectiveNames = {
    "all_to_all_forward", "all_to_all_backward", "reduce_scatter", "all_gather", "all_reduce"};

constexpr std::array<std::string_view, kCommFeatures> kCommNames =
    NamesOf("own_intra", "own_inter", "peer_intra", "peer_inter", "host_inter", "mean", "rms",
            "max", "max_host_inter", "wait", "mean_wait", "own_offset", "max_offset", "last_alone",
            "log_ranks", "log_local_ranks", "log_hosts", "collective_all_to_all_forward",
            "collective_all_to_all_backward", "collective_reduce_scatter", "collective_all_gather",
            "collective_all_reduce");
constexpr std::size_t kFirstCollectiveFeature = kCommFeatures - kCollectiveKinds;
static_assert(kCommNames[kFirstCollectiveFeature] == "collective_all_to_all_forward");

double OfBytes(double bytes) {
  static const double kOfNone = std::log(1024.0);
  return bytes == 0 ? kOfNone : std::log(1024 + bytes);
}

double OfMs(double ms) { return ms == 0 ? 0 : std::log1p(10 * ms); }

struct Offsets {
  double first = 0;
  double second_last = 0;
  double last = 0;
  double mean = 0;
};

Offsets OffsetsOf(std::span<const double> start_offsets_ms) {
  if (start_offsets_ms.empty()) return {};
  Offsets all{start_offsets_ms[0], start_offsets_ms[0], start_offsets_ms[0], 0};
  double sum = start_offsets_ms[0];
  all.second_last = -1;  // before any offset
  for (const double offset : start_offsets_ms.subspan(1)) {
    sum += offset;
    all.first = std::min(all.first, offset);
    all.second_last = std::max(all.second_last, std::min(all.last, offset));
    all.last = std::max(all.last, offset);
  }
  all.mean = sum / static_cast<double>(start_offsets_ms.size());
  return all;
}

}  // namespace

std::string_view CollectiveName(CollectiveKind kind) { return At(kCollectiveNames, kind); }

std::optional<CollectiveKind> CollectiveFromName(std::string_view name) {
  const auto found = std::ranges::find(kCollectiveNames, name);
  if (found == kCollectiveNames.end()) return std::nullopt;
  return static_cast<CollectiveKind>(found - kCollectiveNames.begin());
}

std::span<const std::string_view> CommFeatureNames() { return kCommNames; }

CommLayout::CommLayout(int num_ranks, std::vector<HostRanks> hosts)
    : hosts_(std::move(hosts)),
      num_ranks_(static_cast<std::size_t>(num_ranks)),
      log_ranks_(std::log(static_cast<double>(num_ranks))) {
  if (hosts_.empty()) hosts_.push_back({0, num_ranks});
  assert(hosts_.back().first + hosts_.back().count == num_ranks);
  log_hosts_ = std::log(static_cast<double>(hosts_.size()));
  for (const HostRanks& host : hosts_) {
    log_local_ranks_.push_back(std::log(static_cast<double>(host.count)));
  }
}

void CommFeaturesOf(const CommLayout& layout, CollectiveKind kind, std::span<const double> bytes,
                    std::span<const double> start_offsets_ms, std::span<CommFeatureRow> rows,
                    std::span<double> wait_ms) {
  const std::size_t num_ranks = layout.num_ranks();
  assert(num_ranks > 1 && bytes.size() == num_ranks && rows.size() == num_ranks);
  const double n = static_cast<double>(num_ranks);

  double sum = 0;
  double sum_of_squares = 0;
  double largest = 0;
  for (const double v : bytes) {
    sum += v;
    sum_of_squares += v * v;
    largest = std::max(largest, v);
  }
  const auto sum_on = [&](const HostRanks& host) {
    double of_host = 0;
    for (int r = host.first; r < host.first + host.count; ++r) {
      of_host += At(bytes, r);
    }
    return of_host;
  };
  double largest_host_inter = 0;
  for (const HostRanks& host : layout.hosts()) {
    largest_host_inter = std::max(largest_host_inter, sum_on(host) * (n - host.count) / n);
  }
  const double others = (n - 1) / n;
  const double mean = OfBytes(sum / n * others);
  const double rms = OfBytes(std::sqrt(sum_of_squares / n) * others);
  const double max = OfBytes(largest * others);
  const double max_host_inter = OfBytes(largest_host_inter);
  const Offsets offsets = OffsetsOf(start_offsets_ms);
  const double mean_wait = OfMs(offsets.last - offsets.mean);
  const double max_offset = OfMs(offsets.last - offsets.first);
  const double last_alone = OfMs(offsets.last - offsets.second_last);

  for (std::size_t h = 0; h < layout.hosts().size(); ++h) {
    const HostRanks& host = layout.hosts()[h];
    const double local = host.count;
    const double of_host = sum_on(host);
    const double elsewhere = layout.hosts().size() == 1 ? 0 : std::max(0.0, sum - of_host);
    const double host_inter = OfBytes(of_host * (n - local) / n);
    const double peer_inter = OfBytes(elsewhere / n);
    for (int rank = host.first; rank < host.first + host.count; ++rank) {
      const std::size_t r = static_cast<std::size_t>(rank);
      const double offset = start_offsets_ms.empty() ? 0 : start_offsets_ms[r];
      wait_ms[r] = offsets.last - offset;
      rows[r] = {OfBytes(bytes[r] * (local - 1) / n),
                 OfBytes(bytes[r] * (n - local) / n),
                 OfBytes(std::max(0.0, of_host - bytes[r]) / n),
                 peer_inter,
                 host_inter,
                 mean,
                 rms,
                 max,
                 max_host_inter,
                 OfMs(wait_ms[r]),
                 mean_wait,
                 OfMs(offset - offsets.first),
                 max_offset,
                 last_alone,
                 layout.log_ranks(),
                 layout.log_local_ranks(h),
                 layout.log_hosts()};
      rows[r][kFirstCollectiveFeature + static_cast<std::size_t>(kind)] = 1;
    }
  }
}

}  // namespace neuroshard
