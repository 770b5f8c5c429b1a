// One rank's part in a distribution of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/measurement.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// A rank's samples of some features: lengths of bags, feature by feature, their ids, and as many
// weights or none.
struct IdBatch {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};

// As TorchRec's sharded modules distribute a KeyedJaggedTensor: features of whole tables are put in
// the order of ranks, those of cut tables bucketized by row blocks; the ranks exchange numbers of
// ids, then lengths, then ids, then weights; what came is put in the order of features. One
// exchange has what both kinds of features send, where TorchRec makes one for each.
//
// Same thread contract as the communicator, which must outlive it and whose buffers it uses. The
// sample passed CheckCommSample.
class InputDistribution {
 public:
  // Rows of every table; a row block has about a num_ranks-th.
  static constexpr std::int64_t kTableRows = std::int64_t{1} << 20;

  // Draws what the rank has, the same from the same sample; once `stop` says so, ids and weights
  // that are left are 0. No call of the communicator.
  InputDistribution(Communicator& communicator, const CommSample& sample, const StopSignal& stop);

  // Learns how much each rank sends. Every rank at the same time; an error breaks the group:
  // ABORTED when a rank says more than the sample lets it draw.
  Status ExchangeSizes();
  // Room for all of it, after ExchangeSizes. RESOURCE_EXHAUSTED when it does not fit.
  Status Reserve();
  // Distributes, after Reserve. Every rank at the same time; an error breaks the group.
  Status Run();

  // What the rank has: features of whole tables, dealt to their ranks in turn, and of cut ones.
  const IdBatch& whole() const { return whole_; }
  const IdBatch& cut() const { return cut_; }
  std::int64_t block_rows() const { return block_rows_; }
  // What came, feature by feature and in each rank by rank: whole tables of this rank, then cut
  // ones, whose ids count from the block's first row.
  const IdBatch& received() const { return received_; }

 private:
  std::size_t Ranks() const { return id_sizes_.send_bytes.size(); }
  Exchange SizeCounts() const;
  // Counts of the ids for each rank, and where the values of whole features begin.
  void CountIds();
  Status ExchangeLengths();
  Status CheckLengths() const;
  Status ExchangeIds();
  Status ExchangeWeights();
  template <typename T>
  std::span<T> Send();
  template <typename T>
  std::span<const T> Receive() const;

  Communicator& communicator_;
  const std::int64_t num_bags_;    // samples of a rank
  const std::int64_t block_rows_;  // of cut features on a rank
  const bool weighted_;
  std::size_t cut_features_;
  std::int64_t most_bytes_ = 0;  // of ids that a rank can have for this one
  IdBatch whole_;
  IdBatch cut_;
  std::vector<std::vector<std::size_t>> features_of_rank_;  // positions in whole_
  std::vector<std::size_t> by_feature_;  // of what came, by rank, in the order of features
  Exchange length_sizes_;                // bytes
  Exchange id_sizes_;                    // those of the ids
  bool reserved_ = false;
  // The parts of one run.
  std::vector<std::int64_t> cut_lengths_;  // by block
  std::vector<std::int64_t> whole_begins_;
  std::vector<std::int64_t> block_sizes_;  // ids
  std::vector<float> cut_weights_;         // by block
  std::vector<std::int64_t> came_lengths_;
  std::vector<std::int64_t> came_begins_;
  IdBatch received_;
};

}  // namespace neuroshard
