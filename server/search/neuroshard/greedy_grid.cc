#include "server/search/neuroshard/greedy_grid.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/base/positions.h"

namespace neuroshard {
namespace {

// Appends a copy of the `count` values at `begin` to the same vector.
template <typename T>
void AppendOwn(std::vector<T>& values, std::size_t begin, std::size_t count) {
  const std::size_t end = values.size();
  values.resize(end + count);
  std::copy_n(values.data() + begin, count, values.data() + end);
}

// What the branches of a run may take.
constexpr std::size_t kRunBytes = std::size_t{32} << 20;
constexpr std::size_t kMaxGridContents = 1U << 18;  // that the cost cache remembers

}  // namespace

SplitSequence MakeSequence(std::vector<Piece> pieces, ShardTable& shard_table) {
  SplitSequence sequence;
  sequence.pieces = std::move(pieces);
  sequence.shards.reserve(sequence.pieces.size());
  for (const Piece& piece : sequence.pieces) {
    sequence.shards.push_back(shard_table.Whole(piece.table, piece.cols));
  }
  return sequence;
}

SplitSequence Halve(const SplitSequence& sequence, std::size_t index, ShardTable& shard_table) {
  SplitSequence child = sequence;
  Piece& first = child.pieces[index];
  first.cols /= 2;
  const Piece second{first.table, first.col_offset + first.cols, first.cols};
  const int shard = shard_table.Whole(first.table, first.cols);
  child.shards[index] = shard;
  child.pieces.push_back(second);
  child.shards.push_back(shard);
  return child;
}

std::vector<std::size_t> SplitCandidates(const SplitSequence& sequence, int num_candidates,
                                         const ShardTable& shard_table) {
  const std::size_t num_pieces = sequence.pieces.size();
  const std::size_t kept = std::min(num_pieces, static_cast<std::size_t>(num_candidates));
  std::vector<std::size_t> candidates;
  const auto add_largest = [&](const auto& key) {
    const std::vector<std::size_t> order =
        PositionsDescending(num_pieces, [&](std::size_t i) { return key(sequence.shards[i]); });
    candidates.insert(candidates.end(), order.begin(),
                      order.begin() + static_cast<std::ptrdiff_t>(kept));
  };
  add_largest([&](int shard) { return shard_table.bytes(shard); });
  add_largest([&](int shard) { return shard_table.shard_cost_ms(shard); });
  SortUnique(candidates);
  std::erase_if(candidates, [&](std::size_t i) { return !CanHalve(sequence.pieces[i]); });
  return candidates;
}

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

std::size_t BranchTable::Add(const Head& head) {
  heads_.push_back(head);
  ranks_.resize(ranks_.size() + num_ranks_);
  sums_.resize(sums_.size() + num_ranks_ * width_, 0.0F);
  rank_of_piece_.resize(rank_of_piece_.size() + max_pieces_, 0);
  return heads_.size() - 1;
}

std::size_t BranchTable::Copy(std::size_t branch, const Head& head) {
  heads_.push_back(head);
  AppendOwn(ranks_, branch * num_ranks_, num_ranks_);
  AppendOwn(sums_, branch * num_ranks_ * width_, num_ranks_ * width_);
  AppendOwn(rank_of_piece_, branch * max_pieces_, max_pieces_);
  return heads_.size() - 1;
}

std::vector<double> DimCapFactors(int steps) {
  std::vector<double> factors;
  for (int i = 0; i < steps; ++i) factors.push_back(steps == 1 ? 1.0 : 1.0 + 0.5 * i / (steps - 1));
  return factors;
}

GreedyGrid::GreedyGrid(SearchContext& context, ShardTable& shard_table)
    : context_(context),
      shard_table_(shard_table),
      cost_cache_(context, shard_table.width(), kMaxGridContents),
      available_bytes_(AvailableBytes(context.request())) {}

std::size_t GreedyGrid::SequencesPerRun(std::size_t max_pieces, std::size_t num_caps) const {
  const std::size_t branch_bytes =
      BranchTable::BytesPerBranch(available_bytes_.size(), shard_table_.width(), max_pieces);
  return std::max<std::size_t>(1, kRunBytes / (num_caps * branch_bytes));
}

std::vector<GridResult> GreedyGrid::Run(std::span<const SplitSequence> sequences,
                                        std::span<const double> cap_factors,
                                        ProgressRange progress) {
  shard_table_.PredictNew();
  SetDimLimits(cap_factors);
  const std::size_t steps = Start(sequences);
  for (std::size_t step = 0; step < steps && !live_.empty(); ++step) {
    if (!Step(sequences, step)) return std::vector<GridResult>(sequences.size());
    const double done = static_cast<double>(step + 1) / static_cast<double>(steps);
    context_.ReportProgress(progress.begin + (progress.end - progress.begin) * done);
  }
  return PriceBranches(sequences);
}

void GreedyGrid::SetDimLimits(std::span<const double> cap_factors) {
  double all_dims = 0;
  for (const Table& table : context_.request().tables) {
    all_dims += static_cast<double>(table.embedding_dim);
  }
  dim_limits_.clear();
  for (const double factor : cap_factors) {
    dim_limits_.push_back(factor * (all_dims / static_cast<double>(available_bytes_.size())));
  }
}

std::size_t GreedyGrid::Start(std::span<const SplitSequence> sequences) {
  std::size_t max_pieces = 0;
  for (const SplitSequence& s : sequences) max_pieces = std::max(max_pieces, s.pieces.size());
  // A branch a cap at most, so that no step asks for memory.
  const std::size_t most = sequences.size() * dim_limits_.size();
  branches_.Reset(available_bytes_.size(), shard_table_.width(), max_pieces, most);
  candidates_.reserve(available_bytes_.size());
  choices_.reserve(dim_limits_.size());
  live_.reserve(most);
  next_live_.reserve(most);
  predictions_.reserve(most);
  orders_.resize(std::max(orders_.size(), sequences.size()));
  live_.clear();
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    SortPieces(sequences[s], orders_[s]);
    live_.push_back(
        branches_.Add({static_cast<int>(s), 0, static_cast<int>(dim_limits_.size()) - 1}));
  }
  return max_pieces;
}

bool GreedyGrid::Step(std::span<const SplitSequence> sequences, std::size_t step) {
  cost_cache_.TrimIfLarge();
  predictions_.clear();
  next_live_.clear();
  for (const std::size_t branch : live_) {
    // A step of many branches over many ranks takes longer than a cancel may.
    if (context_.ShouldStop()) return false;
    const std::size_t s = static_cast<std::size_t>(branches_.head(branch).sequence);
    if (step >= orders_[s].size()) {
      next_live_.push_back(branch);
      continue;
    }
    context_.AddWork(Work::kGreedyChoice, available_bytes_.size());
    const std::size_t piece = static_cast<std::size_t>(orders_[s][step]);
    const int shard = sequences[s].shards[piece];
    CollectCandidates(branch, shard);
    Choose(branch);
    // The last choice takes the branch itself, after all others have copied it.
    for (std::size_t c = 0; c < choices_.size(); ++c) {
      const Choice& choice = choices_[c];
      const BranchTable::Head head{static_cast<int>(s), choice.first_cap, choice.last_cap};
      std::size_t target = branch;
      if (c + 1 < choices_.size()) {
        target = branches_.Copy(branch, head);
      } else {
        branches_.head(branch) = head;
      }
      Place(target, piece, choice.rank, shard);
      next_live_.push_back(target);
    }
  }
  cost_cache_.EvaluateQueued();
  for (const Prediction& p : predictions_) {
    branches_.rank(p.branch, p.rank).cost_ms =
        cost_cache_.cost_ms(p.slot) * context_.model().compute_scale(p.rank);
  }
  live_.swap(next_live_);
  return true;
}

void GreedyGrid::Place(std::size_t branch, std::size_t piece, std::size_t rank, int shard) {
  BranchTable::RankState& state = branches_.rank(branch, rank);
  state.used_bytes += shard_table_.bytes(shard);
  state.dims += shard_table_.cols(shard);
  state.load += shard_table_.load(shard);
  state.content = AddToContent(state.content, shard);
  const std::span<float> sum = branches_.sum(branch, rank);
  const float* const phi = shard_table_.phi(shard);
  for (std::size_t w = 0; w < sum.size(); ++w) sum[w] += phi[w];
  branches_.rank_of_piece(branch)[piece] = static_cast<int>(rank);
  const RankCostCache::Slot slot =
      cost_cache_.Find(state.content, context_.model().kind(rank),
                       [&](std::span<float> row) { std::ranges::copy(sum, row.begin()); });
  predictions_.push_back({branch, rank, slot});
}

void GreedyGrid::SortPieces(const SplitSequence& sequence, std::vector<int>& order) const {
  order.resize(sequence.pieces.size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    return shard_table_.shard_cost_ms(sequence.shards[static_cast<std::size_t>(a)]) >
           shard_table_.shard_cost_ms(sequence.shards[static_cast<std::size_t>(b)]);
  });
}

void GreedyGrid::CollectCandidates(std::size_t branch, int shard) {
  const std::int64_t bytes = shard_table_.bytes(shard);
  const std::int64_t cols = shard_table_.cols(shard);
  const int first_cap = branches_.head(branch).first_cap;
  const double loosest = dim_limits_[static_cast<std::size_t>(branches_.head(branch).last_cap)];
  candidates_.clear();
  for (std::size_t rank = 0; rank < available_bytes_.size(); ++rank) {
    const BranchTable::RankState& state = branches_.rank(branch, rank);
    const double dims = static_cast<double>(state.dims + cols);
    if (state.used_bytes + bytes > available_bytes_[rank] || dims > loosest) continue;
    int cap = first_cap;
    while (dims > dim_limits_[static_cast<std::size_t>(cap)]) ++cap;
    candidates_.push_back({rank, cap});
  }
}

// Every looser cap only adds ranks to choose from, so the caps that choose one rank are neighbours.
void GreedyGrid::Choose(std::size_t branch) {
  const auto key = [&](std::size_t rank) {
    const BranchTable::RankState& state = branches_.rank(branch, rank);
    return std::make_tuple(state.cost_ms, state.used_bytes, rank);
  };
  choices_.clear();
  const int last_cap = branches_.head(branch).last_cap;
  const Candidate* best = nullptr;
  for (int cap = branches_.head(branch).first_cap; cap <= last_cap;) {
    const Candidate* const before = best;
    int next_cap = last_cap + 1;  // the next one that adds a rank
    for (const Candidate& candidate : candidates_) {
      if (candidate.first_cap > cap) {
        next_cap = std::min(next_cap, candidate.first_cap);
      } else if (candidate.first_cap == cap &&
                 (best == nullptr || key(candidate.rank) < key(best->rank))) {
        best = &candidate;
      }
    }
    if (best != nullptr) {
      if (best != before) choices_.push_back({cap, cap, best->rank});
      choices_.back().last_cap = next_cap - 1;
    }
    cap = next_cap;
  }
}

std::vector<GridResult> GreedyGrid::PriceBranches(std::span<const SplitSequence> sequences) {
  const std::size_t num_ranks = available_bytes_.size();
  compute_ms_.clear();
  forward_loads_.clear();
  backward_loads_.clear();
  for (const std::size_t branch : live_) {
    if (context_.ShouldStop()) return std::vector<GridResult>(sequences.size());
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      const BranchTable::RankState& state = branches_.rank(branch, rank);
      compute_ms_.push_back(state.cost_ms);
      forward_loads_.push_back(state.load.forward);
      backward_loads_.push_back(state.load.backward);
    }
  }
  PricePlacements(context_.model(), compute_ms_, forward_loads_, backward_loads_, prices_);
  context_.AddWork(Work::kRankPrice, compute_ms_.size());
  context_.statistics().plans_evaluated += static_cast<std::int64_t>(live_.size());

  std::vector<GridResult> results(sequences.size());
  std::vector<std::size_t> best_branch(sequences.size());
  for (std::size_t i = 0; i < live_.size(); ++i) {
    const std::size_t s = static_cast<std::size_t>(branches_.head(live_[i]).sequence);
    GridResult& result = results[s];
    if (!result.found() || prices_.cost_ms[i] < result.cost_ms ||
        (prices_.cost_ms[i] == result.cost_ms &&
         branches_.head(live_[i]).first_cap < branches_.head(best_branch[s]).first_cap)) {
      result.cost_ms = prices_.cost_ms[i];
      best_branch[s] = live_[i];
      const auto ranks = branches_.rank_of_piece(live_[i]).first(sequences[s].pieces.size());
      result.rank_of_piece.assign(ranks.begin(), ranks.end());
    }
  }
  return results;
}

}  // namespace neuroshard
