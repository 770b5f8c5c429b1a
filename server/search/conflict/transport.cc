#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>

#include "server/search/conflict/proof_parts.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// Nodes: source, suppliers, sinks, drain. Edges are kept in pairs, each with its reverse after it.
class Network {
 public:
  Network(const std::vector<Supplier>& suppliers, const std::vector<std::int64_t>& room,
          std::int64_t most_per_pair)
      : num_suppliers_(suppliers.size()),
        drain_(1 + suppliers.size() + room.size()),
        edges_of_(drain_ + 1) {
    for (std::size_t i = 0; i < suppliers.size(); ++i) {
      AddEdge(kSource, 1 + i, suppliers[i].supply);
      for (const int sink : *suppliers[i].sinks) {
        AddEdge(1 + i, FirstSink() + static_cast<std::size_t>(sink), most_per_pair);
      }
    }
    for (std::size_t s = 0; s < room.size(); ++s) {
      AddEdge(FirstSink() + s, drain_, std::max<std::int64_t>(0, room[s]));
    }
  }

  void Saturate() {
    while (Layer()) {
      next_.assign(edges_of_.size(), 0);
      while (Push(kSource, kUnlimited) > 0) {
      }
    }
  }

  // After Saturate: suppliers that could send more if there were room for it.
  std::vector<std::size_t> Stuck() const {
    std::vector<std::size_t> stuck;
    for (std::size_t i = 0; i < num_suppliers_; ++i) {
      if (layer_[1 + i] >= 0) stuck.push_back(i);
    }
    return stuck;
  }

 private:
  static constexpr std::size_t kSource = 0;

  struct Edge {
    std::size_t to;
    std::int64_t left;
  };

  std::size_t FirstSink() const { return 1 + num_suppliers_; }

  void AddEdge(std::size_t from, std::size_t to, std::int64_t capacity) {
    edges_of_[from].push_back(edges_.size());
    edges_.push_back({to, capacity});
    edges_of_[to].push_back(edges_.size());
    edges_.push_back({from, 0});
  }

  // Distances from the source over edges with capacity left; whether they reach the drain.
  bool Layer() {
    layer_.assign(edges_of_.size(), -1);
    layer_[kSource] = 0;
    std::vector<std::size_t> queue = {kSource};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const std::size_t e : edges_of_[queue[i]]) {
        if (edges_[e].left == 0 || layer_[edges_[e].to] >= 0) continue;
        layer_[edges_[e].to] = layer_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
    }
    return layer_[drain_] >= 0;
  }

  // The depth is at most the length of a shortest path, which alternates between both sides.
  std::int64_t Push(std::size_t node, std::int64_t amount) {
    if (node == drain_) return amount;
    for (; next_[node] < edges_of_[node].size(); ++next_[node]) {
      const std::size_t e = edges_of_[node][next_[node]];
      if (edges_[e].left == 0 || layer_[edges_[e].to] != layer_[node] + 1) continue;
      const std::int64_t pushed = Push(edges_[e].to, std::min(amount, edges_[e].left));
      if (pushed == 0) continue;
      edges_[e].left -= pushed;
      edges_[e ^ 1].left += pushed;
      return pushed;
    }
    return 0;
  }

  const std::size_t num_suppliers_;
  const std::size_t drain_;
  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> layer_;
  std::vector<std::size_t> next_;
};

}  // namespace

std::optional<std::vector<std::size_t>> FindOverfull(const std::vector<Supplier>& suppliers,
                                                     const std::vector<std::int64_t>& room,
                                                     std::int64_t most_per_pair) {
  Network network(suppliers, room, most_per_pair);
  network.Saturate();
  std::vector<std::size_t> stuck = network.Stuck();
  if (stuck.empty()) return std::nullopt;
  return stuck;
}

std::optional<OverfullRanks> FindOverfullRanks(
    const CompiledRules& rules, const std::vector<LeastDemand>& least,
    std::vector<std::int64_t> room, const std::vector<std::int64_t>& taken,
    const std::function<std::int64_t(const LeastDemand&)>& want) {
  OverfullRanks found;
  std::unordered_map<const RankSet*, std::size_t> class_of;
  std::vector<std::vector<int>> classes;  // tables with one set of ranks
  std::vector<Supplier> suppliers;        // a class each
  for (std::size_t t = 0; t < least.size(); ++t) {
    const int table = static_cast<int>(t);
    if (!least[t].on_each_rank.empty()) {
      found.tables.push_back(table);
      continue;
    }
    const std::int64_t wanted = want(least[t]);
    if (wanted == 0) continue;
    const RankSet* ranks = rules.of(table).ranks.get();
    const auto [at, is_new] = class_of.emplace(ranks, classes.size());
    if (is_new) {
      classes.emplace_back();
      suppliers.push_back({0, &ranks->ranks()});
    }
    classes[at->second].push_back(table);
    std::int64_t& supply = suppliers[at->second].supply;
    supply = CappedSum(supply, wanted);
  }
  for (std::size_t r = 0; r < room.size(); ++r) {
    room[r] = std::max<std::int64_t>(0, room[r]);
    if (taken[r] > room[r]) {
      found.wanted = taken[r];
      found.room = room[r];
      return found;
    }
    room[r] -= taken[r];
  }
  if (classes.size() * room.size() > kMaxFlowEdges) return std::nullopt;
  const auto stuck = FindOverfull(suppliers, room, kMaxFlow);
  if (!stuck.has_value()) return std::nullopt;
  std::vector<bool> reached(room.size());
  for (const std::size_t c : *stuck) {
    found.wanted = CappedSum(found.wanted, suppliers[c].supply);
    found.tables.insert(found.tables.end(), classes[c].begin(), classes[c].end());
    for (const int rank : *suppliers[c].sinks) reached[static_cast<std::size_t>(rank)] = true;
  }
  for (std::size_t r = 0; r < room.size(); ++r) {
    if (reached[r]) found.room = CappedSum(found.room, room[r]);
  }
  return found;
}

}  // namespace neuroshard
