#include "server/search/neuroshard/branch_table.h"

#include <algorithm>

namespace neuroshard {
namespace {

// Appends a copy of the `count` values at `begin` to the same vector.
template <typename T>
void AppendOwn(std::vector<T>& values, std::size_t begin, std::size_t count) {
  const std::size_t end = values.size();
  values.resize(end + count);
  std::copy_n(values.data() + begin, count, values.data() + end);
}

}  // namespace

void BranchTable::Reset(std::size_t num_ranks, std::size_t width, std::size_t max_pieces,
                        std::size_t max_branches) {
  num_ranks_ = num_ranks;
  width_ = width;
  max_pieces_ = max_pieces;
  heads_.clear();
  ranks_.clear();
  sums_.clear();
  rank_of_piece_.clear();
  heads_.reserve(max_branches);
  ranks_.reserve(max_branches * num_ranks);
  sums_.reserve(max_branches * num_ranks * width);
  rank_of_piece_.reserve(max_branches * max_pieces);
}

std::size_t BranchTable::Add(int sequence, int first_cap, int last_cap) {
  heads_.push_back({sequence, first_cap, last_cap});
  ranks_.resize(ranks_.size() + num_ranks_);
  sums_.resize(sums_.size() + num_ranks_ * width_, 0.0F);
  rank_of_piece_.resize(rank_of_piece_.size() + max_pieces_, 0);
  return heads_.size() - 1;
}

std::size_t BranchTable::Copy(std::size_t branch, int first_cap, int last_cap) {
  heads_.push_back({heads_[branch].sequence, first_cap, last_cap});
  AppendOwn(ranks_, branch * num_ranks_, num_ranks_);
  AppendOwn(sums_, branch * num_ranks_ * width_, num_ranks_ * width_);
  AppendOwn(rank_of_piece_, branch * max_pieces_, max_pieces_);
  return heads_.size() - 1;
}

void BranchTable::Place(std::size_t branch, std::size_t piece, std::size_t rank, int shard,
                        const float* phi, const CommLoad& load, std::int64_t bytes,
                        std::int64_t cols) {
  RankState& state = ranks_[branch * num_ranks_ + rank];
  state.used_bytes += bytes;
  state.dims += cols;
  state.load += load;
  state.content = AddToContent(state.content, shard);
  float* const sum = sums_.data() + (branch * num_ranks_ + rank) * width_;
  for (std::size_t w = 0; w < width_; ++w) sum[w] += phi[w];
  rank_of_piece_[branch * max_pieces_ + piece] = static_cast<int>(rank);
}

void BranchTable::SetCaps(std::size_t branch, int first_cap, int last_cap) {
  heads_[branch].first_cap = first_cap;
  heads_[branch].last_cap = last_cap;
}

}  // namespace neuroshard
