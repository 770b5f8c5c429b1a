#include "worker/measure/input_distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/base/random.h"
#include "kernels/api/input_dist_kernels.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kIdBytes = sizeof(std::int64_t);
constexpr std::size_t kDrawsBetweenStops = std::size_t{1} << 20;

double MeanOfBag(std::size_t features, double ids_of_sample) {
  return features == 0 ? 0 : ids_of_sample / static_cast<double>(features);
}

// Most that DrawIds puts into one bag.
std::int64_t MostOfBag(std::size_t features, double ids_of_sample) {
  return 2 * static_cast<std::int64_t>(MeanOfBag(features, ids_of_sample)) + 1;
}

// Appends features to the batch. Bags have the mean number of ids on average: whole parts spread
// evenly from none to twice the mean.
void DrawIds(std::size_t features, double ids_of_sample, std::int64_t num_bags, bool weighted,
             std::int64_t table_rows, Random& random, const StopSignal& stop, IdBatch& batch) {
  const std::size_t first = batch.ids.size();
  const double mean = MeanOfBag(features, ids_of_sample);
  const auto whole = static_cast<std::uint64_t>(mean);
  std::size_t end = first;
  for (std::size_t i = 0; i < features * static_cast<std::size_t>(num_bags); ++i) {
    const bool one_more = random.UniformReal() < mean - std::floor(mean);
    batch.lengths.push_back(static_cast<std::int64_t>(random.Below(2 * whole + 1)) + one_more);
    end += static_cast<std::size_t>(batch.lengths.back());
  }
  const auto fill = [&](auto& values, const auto& draw) {
    values.resize(end);
    for (std::size_t i = first; i < end; ++i) {
      if ((i - first) % kDrawsBetweenStops == 0 && stop.ShouldStop()) return;
      values[i] = draw();
    }
  };
  fill(batch.ids, [&] { return random.Between(0, table_rows - 1); });
  if (weighted) fill(batch.weights, [&] { return static_cast<float>(random.UniformReal()); });
}

// Features of whole tables come from a loader in an order of their own: dealt to the ranks in turn.
std::vector<std::vector<std::size_t>> DealFeatures(const std::vector<std::int64_t>& of_rank) {
  std::vector<std::vector<std::size_t>> features(of_rank.size());
  std::size_t feature = 0;
  const std::int64_t most = *std::ranges::max_element(of_rank);
  for (std::int64_t round = 0; round < most; ++round) {
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
      if (round < of_rank[rank]) features[rank].push_back(feature++);
    }
  }
  return features;
}

}  // namespace

InputDistribution::InputDistribution(Communicator& communicator, const CommSample& sample,
                                     const StopSignal& stop)
    : communicator_(communicator),
      num_bags_(sample.batch_size / communicator.world_size()),
      block_rows_((kTableRows + communicator.world_size() - 1) / communicator.world_size()),
      weighted_(sample.input_dist->weighted),
      cut_features_(static_cast<std::size_t>(sample.input_dist->cut_features)) {
  const InputDistSample& input = *sample.input_dist;
  Random random(input.seed ^
                (0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(communicator.rank() + 1)));
  features_of_rank_ = DealFeatures(input.whole_features);
  // Features of one rank are alike, those of different ranks are not: each rank's are drawn with
  // its own mean, then put where the loader has them.
  IdBatch by_rank;
  for (std::size_t rank = 0; rank < features_of_rank_.size(); ++rank) {
    DrawIds(features_of_rank_[rank].size(), input.whole_ids[rank], num_bags_, weighted_, kTableRows,
            random, stop, by_rank);
  }
  const std::vector<std::int64_t> begins = RowBegins(by_rank.lengths, num_bags_);
  std::vector<std::size_t> order(begins.size() - 1);
  std::size_t row = 0;
  for (const std::vector<std::size_t>& features : features_of_rank_) {
    for (const std::size_t feature : features) order[feature] = row++;
  }
  whole_.lengths.resize(by_rank.lengths.size());
  whole_.ids.resize(by_rank.ids.size());
  whole_.weights.resize(by_rank.weights.size());
  PermuteLengths(by_rank.lengths, num_bags_, order, whole_.lengths);
  PermuteValues<std::int64_t>(by_rank.ids, begins, order, whole_.ids);
  if (weighted_) PermuteValues<float>(by_rank.weights, begins, order, whole_.weights);
  DrawIds(cut_features_, input.cut_ids, num_bags_, weighted_, kTableRows, random, stop, cut_);

  const std::size_t ranks = features_of_rank_.size();
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const std::size_t own = features_of_rank_[rank].size();
  most_bytes_ = num_bags_ * kIdBytes *
                (static_cast<std::int64_t>(own) * MostOfBag(own, input.whole_ids[rank]) +
                 input.cut_features * MostOfBag(cut_features_, input.cut_ids));
  const std::size_t came = own + cut_features_;
  for (std::size_t feature = 0; feature < came; ++feature) {
    for (std::size_t from = 0; from < ranks; ++from) by_feature_.push_back(from * came + feature);
  }
  for (const std::vector<std::size_t>& features_of_peer : features_of_rank_) {
    const auto bytes_of = [&](std::size_t features) {
      return static_cast<std::int64_t>(features) * num_bags_ * kIdBytes;
    };
    length_sizes_.send_bytes.push_back(bytes_of(features_of_peer.size() + cut_features_));
    length_sizes_.receive_bytes.push_back(bytes_of(came));
  }
  id_sizes_.send_bytes.resize(ranks);
  id_sizes_.receive_bytes.resize(ranks);
  cut_lengths_.resize(ranks * cut_.lengths.size());
  cut_weights_.resize(cut_.weights.size());
  received_.lengths.resize(by_feature_.size() * static_cast<std::size_t>(num_bags_));
}

template <typename T>
std::span<T> InputDistribution::Send() {
  const std::span<std::byte> bytes = communicator_.SendBuffer();
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

template <typename T>
std::span<const T> InputDistribution::Receive() const {
  const std::span<const std::byte> bytes = std::as_const(communicator_).ReceiveBuffer();
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void InputDistribution::CountIds() {
  CountInBlocks(block_rows_, cut_.lengths, cut_.ids, cut_lengths_);
  whole_begins_ = RowBegins(whole_.lengths, num_bags_);
  block_sizes_.clear();
  for (std::size_t rank = 0; rank < Ranks(); ++rank) {
    const auto block =
        cut_lengths_.begin() + static_cast<std::ptrdiff_t>(rank * cut_.lengths.size());
    block_sizes_.push_back(
        std::accumulate(block, block + std::ssize(cut_.lengths), std::int64_t{0}));
    std::int64_t ids = block_sizes_.back();
    for (const std::size_t feature : features_of_rank_[rank]) {
      ids += whole_begins_[feature + 1] - whole_begins_[feature];
    }
    id_sizes_.send_bytes[rank] = ids * kIdBytes;
  }
}

// The counts of the exchange of sizes: a number for each rank.
Exchange InputDistribution::SizeCounts() const {
  const std::vector<std::int64_t> bytes(Ranks(), kIdBytes);
  return {bytes, bytes};
}

Status InputDistribution::ExchangeSizes() {
  const Exchange counts = SizeCounts();
  if (!reserved_) {
    CountIds();
    NS_RETURN_IF_ERROR(communicator_.Reserve(counts));
  }
  std::copy(id_sizes_.send_bytes.begin(), id_sizes_.send_bytes.end(), Send<std::int64_t>().begin());
  NS_RETURN_IF_ERROR(communicator_.Run(counts));
  const auto sizes = Receive<std::int64_t>().first(Ranks());
  for (std::size_t rank = 0; rank < Ranks(); ++rank) {
    if (sizes[rank] < 0 || sizes[rank] > most_bytes_ || sizes[rank] % kIdBytes != 0) {
      return Aborted(
          "rank {} sends {} bytes of ids, the sample lets it have at most {}, of {} each", rank,
          sizes[rank], most_bytes_, kIdBytes);
    }
    if (reserved_ && sizes[rank] != id_sizes_.receive_bytes[rank]) {
      return Aborted("rank {} sends {} bytes of ids, before it sent {}", rank, sizes[rank],
                     id_sizes_.receive_bytes[rank]);
    }
  }
  std::copy(sizes.begin(), sizes.end(), id_sizes_.receive_bytes.begin());
  return absl::OkStatus();
}

Status InputDistribution::Reserve() {
  Exchange most = SizeCounts();
  const auto total = [](const std::vector<std::int64_t>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  };
  for (const Exchange* counts : {&length_sizes_, &id_sizes_}) {
    if (total(counts->send_bytes) > total(most.send_bytes)) most.send_bytes = counts->send_bytes;
    if (total(counts->receive_bytes) > total(most.receive_bytes)) {
      most.receive_bytes = counts->receive_bytes;
    }
  }
  // A rank sends itself what it receives from itself; sizes alone count here.
  const auto own = static_cast<std::size_t>(communicator_.rank());
  const std::int64_t more = most.send_bytes[own] - most.receive_bytes[own];
  (more > 0 ? most.receive_bytes : most.send_bytes)[own] += std::abs(more);
  NS_RETURN_IF_ERROR(communicator_.Reserve(most));
  const auto ids = static_cast<std::size_t>(total(id_sizes_.receive_bytes) / kIdBytes);
  received_.ids.resize(ids);
  if (weighted_) received_.weights.resize(ids);
  reserved_ = true;
  return absl::OkStatus();
}

Status InputDistribution::Run() {
  CountIds();
  NS_RETURN_IF_ERROR(ExchangeSizes());
  NS_RETURN_IF_ERROR(ExchangeLengths());
  NS_RETURN_IF_ERROR(ExchangeIds());
  return weighted_ ? ExchangeWeights() : absl::OkStatus();
}

Status InputDistribution::ExchangeLengths() {
  std::span<std::int64_t> out = Send<std::int64_t>();
  for (std::size_t rank = 0; rank < Ranks(); ++rank) {
    const auto& features = features_of_rank_[rank];
    PermuteLengths(whole_.lengths, num_bags_, features, out);
    out = out.subspan(features.size() * static_cast<std::size_t>(num_bags_));
    std::copy_n(cut_lengths_.begin() + static_cast<std::ptrdiff_t>(rank * cut_.lengths.size()),
                cut_.lengths.size(), out.begin());
    out = out.subspan(cut_.lengths.size());
  }
  NS_RETURN_IF_ERROR(communicator_.Run(length_sizes_));
  const auto came = Receive<std::int64_t>().first(received_.lengths.size());
  came_lengths_.assign(came.begin(), came.end());
  NS_RETURN_IF_ERROR(CheckLengths());
  PermuteLengths(came_lengths_, num_bags_, by_feature_, received_.lengths);
  came_begins_ = RowBegins(came_lengths_, num_bags_);
  return absl::OkStatus();
}

// What another process sends is not to be trusted with positions in this one.
Status InputDistribution::CheckLengths() const {
  const std::size_t of_rank = came_lengths_.size() / Ranks();
  for (std::size_t rank = 0; rank < Ranks(); ++rank) {
    std::int64_t left = id_sizes_.receive_bytes[rank] / kIdBytes;
    for (std::size_t i = rank * of_rank; i < (rank + 1) * of_rank; ++i) {
      if (came_lengths_[i] < 0 || came_lengths_[i] > left) {
        return Aborted("rank {} sends lengths that are not those of its ids", rank);
      }
      left -= came_lengths_[i];
    }
    if (left != 0) {
      return Aborted("rank {} sends ids that are in no bag", rank);
    }
  }
  return absl::OkStatus();
}

Status InputDistribution::ExchangeIds() {
  const std::span<std::int64_t> out = Send<std::int64_t>();
  std::vector<std::int64_t> block_begins;
  std::vector<std::int64_t> weight_begins;
  std::int64_t at = 0;
  std::int64_t weights = 0;
  for (std::size_t rank = 0; rank < Ranks(); ++rank) {
    at += PermuteValues<std::int64_t>(whole_.ids, whole_begins_, features_of_rank_[rank],
                                      out.subspan(static_cast<std::size_t>(at)));
    block_begins.push_back(at);
    at += block_sizes_[rank];
    weight_begins.push_back(weights);
    weights += block_sizes_[rank];
  }
  MoveToBlocks(block_rows_, cut_.ids, cut_.weights,
               {block_begins, out, weight_begins, cut_weights_});
  NS_RETURN_IF_ERROR(communicator_.Run(id_sizes_));
  PermuteValues<std::int64_t>(Receive<std::int64_t>(), came_begins_, by_feature_, received_.ids);
  return absl::OkStatus();
}

Status InputDistribution::ExchangeWeights() {
  std::span<float> out = Send<float>();
  auto cut = cut_weights_.begin();
  Exchange counts;
  for (std::size_t rank = 0; rank < Ranks(); ++rank) {
    const std::int64_t whole =
        PermuteValues<float>(whole_.weights, whole_begins_, features_of_rank_[rank], out);
    out = out.subspan(static_cast<std::size_t>(whole));
    std::copy_n(cut, block_sizes_[rank], out.begin());
    cut += block_sizes_[rank];
    out = out.subspan(static_cast<std::size_t>(block_sizes_[rank]));
    const auto bytes = [](std::int64_t of_ids) {
      return of_ids / kIdBytes * static_cast<std::int64_t>(sizeof(float));
    };
    counts.send_bytes.push_back(bytes(id_sizes_.send_bytes[rank]));
    counts.receive_bytes.push_back(bytes(id_sizes_.receive_bytes[rank]));
  }
  NS_RETURN_IF_ERROR(communicator_.Run(counts));
  PermuteValues<float>(Receive<float>(), came_begins_, by_feature_, received_.weights);
  return absl::OkStatus();
}

}  // namespace neuroshard
