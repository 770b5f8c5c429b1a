#include "server/search/neuroshard/neuroshard_strategy.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "server/search/baselines/baselines.h"
#include "server/search/core/merge_shards.h"
#include "server/search/core/shard_table.h"
#include "server/search/neuroshard/greedy_grid.h"
#include "server/search/packing/find_packing.h"

namespace neuroshard {
namespace {

constexpr double kNoCap = std::numeric_limits<double>::infinity();

// Tables x ranks from which on the inner search alone takes some 100 ms.
constexpr std::size_t kLargeRequest = 200'000;

// The beam search for one request.
class NeuroShardSearch {
 public:
  explicit NeuroShardSearch(SearchContext& context)
      : context_(context),
        options_(context.request().search),
        shard_table_(context),
        grid_(context, shard_table_),
        base_(MakeSequence(WholeTables(context.request()), shard_table_)) {}

  Status Run() {
    NS_RETURN_IF_ERROR(FindCheapest());
    return TakeFewestCuts();
  }

 private:
  // A plan that was the cheapest when it was found.
  struct Found {
    double cost_ms;
    Placement placement;
  };

  Status FindCheapest() {
    NS_RETURN_IF_ERROR(AnswerLargeRequestsAtOnce());
    const std::vector<double> caps = DimCapFactors(options_.search_steps);
    const double level_share = 1.0 / (options_.max_length + 1);
    NS_ASSIGN_OR_RETURN(const bool found_uncut, Evaluate(base_, caps, {0.0, level_share}));
    if (found_uncut) return Beam({base_}, caps, {level_share, 1.0}).status();

    NS_ASSIGN_OR_RETURN(std::vector<SplitSequence> starts, FindFirstPlan());
    if (context_.stopped()) return absl::OkStatus();
    NS_ASSIGN_OR_RETURN(const bool found_cut, Beam({base_}, caps, {level_share, 0.5}));
    if (found_cut || context_.stopped()) return absl::OkStatus();
    return Beam(std::move(starts), {kNoCap}, {0.5, 1.0}).status();
  }

  // Takes, of plans that differ by less than the model can tell, the one with the fewest shards,
  // merged.
  Status TakeFewestCuts() {
    if (found_.empty() || context_.ShouldStop()) return absl::OkStatus();
    const double max_ms = MaxEquivalentCostMs(context_);
    if (max_ms <= context_.best_cost_ms()) return absl::OkStatus();
    const Found* fewest = &found_.back();
    for (const Found& found : found_) {
      if (found.cost_ms <= max_ms &&
          found.placement.pieces.size() < fewest->placement.pieces.size()) {
        fewest = &found;
      }
    }
    if (fewest != &found_.back()) NS_RETURN_IF_ERROR(context_.Improve(fewest->placement));
    return MergeShards(context_);
  }

  // A split to be made: the sequence in the beam and the piece to halve.
  struct Child {
    std::size_t parent;
    std::size_t piece;
    double cost_ms;
  };

  // The first plan must not take longer than a deadline is likely to be.
  Status AnswerLargeRequestsAtOnce() {
    if (base_.pieces.size() * context_.request().topology.devices.size() < kLargeRequest) {
      return absl::OkStatus();
    }
    std::optional<Placement> first =
        PlaceByLoad(context_, TableLoad::kSizeLookup, WholeTables(context_.request()));
    if (context_.stopped()) return absl::OkStatus();
    if (!first) {
      NS_ASSIGN_OR_RETURN(first,
                          FindPacking(context_.request(), Cutting::kColumns, context_.stop()));
    }
    return BeginWith(*first);
  }

  // A plan that was not found by the inner search.
  Status BeginWith(const Placement& placement) {
    ++context_.statistics().plans_evaluated;
    NS_RETURN_IF_ERROR(context_.Improve(placement));
    best_cost_ms_ = context_.best_cost_ms();
    return absl::OkStatus();
  }

  // A plan that fits, when no dim cap allows one for uncut tables. Returns the sequences to split
  // further without a cap.
  StatusOr<std::vector<SplitSequence>> FindFirstPlan() {
    NS_ASSIGN_OR_RETURN(const bool found, Evaluate(base_, {kNoCap}, {}));
    if (found || context_.has_plan() || context_.stopped()) return std::vector{base_};
    NS_ASSIGN_OR_RETURN(const Placement packed,
                        FindPacking(context_.request(), Cutting::kColumns, context_.stop()));
    NS_RETURN_IF_ERROR(BeginWith(packed));
    if (packed.pieces.size() == base_.pieces.size()) return std::vector{base_};
    SplitSequence cut = MakeSequence(packed.pieces, shard_table_);
    NS_RETURN_IF_ERROR(Evaluate(cut, {kNoCap}, {}).status());
    return std::vector{base_, std::move(cut)};
  }

  // The inner search on one sequence; whether it has a plan.
  StatusOr<bool> Evaluate(const SplitSequence& sequence, const std::vector<double>& caps,
                          ProgressRange progress) {
    const std::vector<GridResult> results = grid_.Run(std::span(&sequence, 1), caps, progress);
    NS_RETURN_IF_ERROR(ImproveWith(sequence, results.front()));
    return results.front().found();
  }

  Status ImproveWith(const SplitSequence& sequence, const GridResult& result) {
    if (!(result.cost_ms < best_cost_ms_)) return absl::OkStatus();
    best_cost_ms_ = result.cost_ms;
    found_.push_back({result.cost_ms, {sequence.pieces, result.rank_of_piece}});
    return context_.Improve(found_.back().placement);
  }

  // The outer search; whether any sequence beyond `beam` has a plan.
  StatusOr<bool> Beam(std::vector<SplitSequence> beam, const std::vector<double>& caps,
                      ProgressRange progress) {
    bool found = false;
    const double level_share = (progress.end - progress.begin) / options_.max_length;
    for (int level = 0; level < options_.max_length; ++level) {
      std::vector<Child> children = Children(beam);
      if (children.empty()) break;
      const double begin = progress.begin + level * level_share;
      NS_RETURN_IF_ERROR(EvaluateChildren(beam, caps, {begin, begin + level_share}, children));
      if (context_.stopped()) break;
      std::ranges::stable_sort(children, {}, &Child::cost_ms);
      children.resize(std::min(children.size(), static_cast<std::size_t>(options_.beam_width)));
      found = found || children.front().cost_ms < kNoCap;
      std::vector<SplitSequence> kept = Mapped(children, [&](const Child& child) {
        return Halve(beam[child.parent], child.piece, shard_table_);
      });
      beam = std::move(kept);
    }
    return found;
  }

  std::vector<Child> Children(const std::vector<SplitSequence>& beam) const {
    std::vector<Child> children;
    for (std::size_t parent = 0; parent < beam.size(); ++parent) {
      for (const std::size_t piece :
           SplitCandidates(beam[parent], options_.num_candidates, shard_table_)) {
        children.push_back({parent, piece, kNoCap});
      }
    }
    return children;
  }

  // Fills in the costs, and improves the plan, in as few runs of the inner search as memory allows.
  Status EvaluateChildren(const std::vector<SplitSequence>& beam, const std::vector<double>& caps,
                          ProgressRange progress, std::vector<Child>& children) {
    std::size_t max_pieces = 0;
    for (const SplitSequence& s : beam) max_pieces = std::max(max_pieces, s.pieces.size() + 1);
    const std::size_t per_run = grid_.SequencesPerRun(max_pieces, caps.size());
    const double share = (progress.end - progress.begin) / static_cast<double>(children.size());
    for (std::size_t begin = 0; begin < children.size(); begin += per_run) {
      const std::size_t end = std::min(begin + per_run, children.size());
      std::vector<SplitSequence> sequences;
      for (std::size_t c = begin; c < end; ++c) {
        sequences.push_back(Halve(beam[children[c].parent], children[c].piece, shard_table_));
      }
      const std::vector<GridResult> results =
          grid_.Run(sequences, caps,
                    {progress.begin + share * static_cast<double>(begin),
                     progress.begin + share * static_cast<double>(end)});
      std::size_t best = 0;
      for (std::size_t i = 0; i < results.size(); ++i) {
        children[begin + i].cost_ms = results[i].cost_ms;
        if (results[i].cost_ms < results[best].cost_ms) best = i;
      }
      NS_RETURN_IF_ERROR(ImproveWith(sequences[best], results[best]));
      if (context_.stopped()) break;
    }
    return absl::OkStatus();
  }

  SearchContext& context_;
  const SearchOptions& options_;
  ShardTable shard_table_;
  GreedyGrid grid_;
  const SplitSequence base_;
  double best_cost_ms_ = std::numeric_limits<double>::infinity();
  std::vector<Found> found_;  // each cheaper than the ones before
};

}  // namespace

Status RunNeuroShard(SearchContext& context) { return NeuroShardSearch(context).Run(); }

}  // namespace neuroshard
