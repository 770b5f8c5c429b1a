#include "client/cli/diff_command.h"

#include <fmt/ranges.h>
#include <google/protobuf/util/message_differencer.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_from_torchrec.h"
#include "common/base/bytes.h"
#include "common/base/in_file.h"
#include "common/cli/exit_code.h"
#include "common/codec/plan_codec.h"
#include "common/codec/table_codec.h"
#include "common/domain/held_shards.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

using google::protobuf::util::MessageDifferencer;

// Files may say anything.
constexpr double kMaxBytes = 0x1.0p60;

// A table of the size that a plan gives it.
Table SizeOf(const TablePlan& plan) {
  Table table;
  table.name = plan.name;
  table.module = plan.module;
  for (const Shard& shard : plan.shards) {
    table.num_embeddings = std::max(table.num_embeddings, shard.row_offset + shard.rows);
    table.embedding_dim = std::max(table.embedding_dim, shard.col_offset + shard.cols);
  }
  return table;
}

v1::DiffPlaces PlacesOf(const TablePlan& plan) {
  v1::DiffPlaces places;
  places.set_sharding_type(std::string(ToText(plan.sharding_type)));
  places.set_shards(static_cast<int>(plan.shards.size()));
  std::set<int> ranks;
  for (const Shard& shard : plan.shards) {
    if (shard.rows > 0) ranks.insert(shard.rank);
  }
  places.mutable_ranks()->Assign(ranks.begin(), ranks.end());
  places.set_compute_kernel(std::string(ToText(plan.compute_kernel)));
  if (plan.cache_load_factor > 0) places.set_cache_load_factor(plan.cache_load_factor);
  return places;
}

// Cells of `after` on ranks that did not hold them in the same memory. Shards of one rank do not
// overlap in a plan, but are laid out as somebody likes (HeldShards takes legal ones).
double MovedCells(const TablePlan& before, const TablePlan& after) {
  std::map<int, std::vector<const Shard*>> held;
  for (const Shard& shard : before.shards) held[shard.rank].push_back(&shard);
  double moved = 0;
  for (const Shard& shard : after.shards) {
    double cells = Cells(shard);
    if (ChangesMemory(before.compute_kernel, after.compute_kernel)) {
      moved += cells;
      continue;
    }
    for (const Shard* old : held[shard.rank]) {
      if (const auto common = Overlap(shard, *old)) cells -= Cells(*common);
    }
    moved += std::max(cells, 0.0);
  }
  return moved;
}

std::int64_t BytesOf(double cells, double element_bytes) {
  return std::llround(std::min(cells * element_bytes, kMaxBytes));
}

std::string ArrowText(const std::string& before, const std::string& after) {
  return before == after ? before : before + " -> " + after;
}

// `text` of the places before, and of those after where they differ.
template <typename Text>
auto Both(const Text& text) {
  return [text](const v1::DiffTable& of) { return ArrowText(text(of.before()), text(of.after())); };
}

std::string RanksText(const v1::DiffPlaces& places) {
  constexpr int kShown = 4;
  if (places.ranks_size() <= kShown) return fmt::format("{}", fmt::join(places.ranks(), ","));
  return fmt::format("{} ranks", places.ranks_size());
}

std::string PlacesText(const v1::DiffPlaces& places) {
  return places.shards() > 1 ? fmt::format("{} x{}", places.sharding_type(), places.shards())
                             : places.sharding_type();
}

std::string KernelText(const v1::DiffPlaces& places) {
  return places.has_cache_load_factor()
             ? fmt::format("{} {:.4g}", places.compute_kernel(), places.cache_load_factor())
             : places.compute_kernel();
}

bool IsInDeviceMemory(const v1::DiffPlaces& places) {
  return TierOf(*FromText<ComputeKernel>(places.compute_kernel())) == MemoryTier::kDevice;
}

// Otherwise kernels follow from the types.
bool KernelsMatter(const v1::DiffTable& change) {
  const v1::DiffPlaces& before = change.before();
  const v1::DiffPlaces& after = change.after();
  return !IsInDeviceMemory(before) || !IsInDeviceMemory(after) ||
         (before.compute_kernel() != after.compute_kernel() &&
          before.sharding_type() == after.sharding_type());
}

// A stage before and after: "1.000 -> -".
template <typename Value>
auto Stages(const Value& value) {
  return [value](const v1::DiffRank& of) {
    return fmt::format("{} -> {}", of.has_before() ? value(of.before()) : "-",
                       of.has_after() ? value(of.after()) : "-");
  };
}

std::string CostTableText(const v1::DiffAnswer& diff) {
  using S = v1::DiffStages;
  const auto ms = [](double (S::*stage)() const) {
    return Stages([stage](const S& of) { return Cell((of.*stage)()); });
  };
  const bool input_dist = std::ranges::any_of(diff.ranks(), [](const v1::DiffRank& of) {
    return of.before().has_input_dist_ms() || of.after().has_input_dist_ms();
  });
  return TableOf<v1::DiffRank>()
      .Right("rank", &v1::DiffRank::rank)
      .Right("input_dist", Stages(IfGiven(&S::has_input_dist_ms, &S::input_dist_ms)), input_dist)
      .Right("compute_ms", ms(&S::compute_ms))
      .Right("forward_comm", ms(&S::forward_comm_ms))
      .Right("backward_comm", ms(&S::backward_comm_ms))
      .Right("total_ms", ms(&S::total_ms))
      .ToString(diff.ranks());
}

std::string CostLine(const v1::DiffAnswer& diff) {
  const auto text = [](const v1::DiffPlan& plan) {
    return plan.has_cost_ms() ? Cell(plan.cost_ms()) : "?";
  };
  std::string line = fmt::format("cost {} -> {} ms", text(diff.before()), text(diff.after()));
  if (diff.after().has_cost_ms() && diff.before().cost_ms() > 0) {
    const double change = 100 * (diff.after().cost_ms() / diff.before().cost_ms() - 1);
    line += fmt::format(", {:.1f}% {}", std::abs(change), change > 0 ? "more" : "less");
  }
  return line + '\n';
}

// Adds what one of the plans costs.
void AddCost(const PlanCost& cost, bool after, v1::DiffAnswer& diff) {
  (after ? diff.mutable_after() : diff.mutable_before())->set_cost_ms(cost.embedding_cost_ms);
  for (int r = 0; r < static_cast<int>(cost.ranks.size()); ++r) {
    const RankCost& of = At(cost.ranks, r);
    v1::DiffRank& rank = r < diff.ranks_size() ? *diff.mutable_ranks(r) : *diff.add_ranks();
    rank.set_rank(r);
    v1::DiffStages& stages = *(after ? rank.mutable_after() : rank.mutable_before());
    stages.set_compute_ms(of.compute_ms);
    stages.set_forward_comm_ms(of.forward_comm_ms);
    stages.set_backward_comm_ms(of.backward_comm_ms);
    stages.set_total_ms(of.total_ms());
    if (of.input_dist_ms) stages.set_input_dist_ms(*of.input_dist_ms);
  }
}

// Clears the kernels of tables where they follow from the types.
void LeaveOutKernels(v1::DiffAnswer& diff) {
  for (v1::DiffTable& change : *diff.mutable_tables()) {
    if (KernelsMatter(change)) continue;
    for (v1::DiffPlaces* places : {change.mutable_before(), change.mutable_after()}) {
      places->clear_compute_kernel();
      places->clear_cache_load_factor();
    }
  }
}

// The changed tables that move most; the rest is counted. `diff` has the kernels of all tables.
std::string DiffAsText(const v1::DiffAnswer& diff, const TextStyle&) {
  constexpr std::size_t kMaxTables = 20;
  std::string text = diff.price_basis().empty() ? "" : diff.price_basis() + '\n';
  std::vector<v1::DiffTable> shown(diff.tables().begin(), diff.tables().end());
  std::ranges::stable_sort(shown, std::greater{}, &v1::DiffTable::moved_bytes);
  const std::size_t changes = shown.size();
  shown.resize(std::min(kMaxTables, changes));
  TableOf<v1::DiffTable> table;
  table.Left("table", &v1::DiffTable::table)
      .Right("moved",
             [](const v1::DiffTable& of) {
               return of.resized() ? "new size" : FormatBytes(of.moved_bytes());
             })
      .Left("type", Both(PlacesText))
      .Left("ranks", Both(RanksText))
      .Left("kernel", Both(KernelText), std::ranges::any_of(diff.tables(), KernelsMatter));
  if (changes > 0) text += table.ToString(shown);
  if (changes > kMaxTables) {
    text += fmt::format("... and {} more tables (--format json has all)\n", changes - kMaxTables);
  }
  for (const auto& [what, names] :
       {std::pair{"only before", &diff.only_before()}, {"only after", &diff.only_after()}}) {
    if (names->empty()) continue;
    const int named = std::min(static_cast<int>(kMaxTables), names->size());
    text += fmt::format("{}: {}{}\n", what, fmt::join(names->begin(), names->begin() + named, ", "),
                        names->size() > named ? ", ..." : "");
  }
  text +=
      fmt::format("{} of {} move{}, {} of {} tables change\n", FormatBytes(diff.moved_bytes()),
                  FormatBytes(diff.weight_bytes()),
                  diff.weights_are_known() ? "" : " (weights of 4 bytes; --request knows better)",
                  changes, diff.after().tables());
  if (!diff.ranks().empty()) text += CostTableText(diff) + CostLine(diff);
  for (const std::string& note : diff.notes()) text += "note: " + note + '\n';
  return text;
}

struct DiffOptions {
  std::string before_file;
  std::string after_file;
  std::string request_file;
  PlannerOptions planner;
  std::string model;
  OutputOptions output;
};

// One side: what the file says.
struct Side {
  std::string file;
  PlanFile content;
  Plan plan;
};

// `request` and `other` complete a plan in TorchRec's form.
StatusOr<Side> ReadSide(const std::string& path, const StatusOr<v1::ShardPlanRequest>& request,
                        const StatusOr<PlanFile>& other) {
  Side side{path, {}, {}};
  NS_ASSIGN_OR_RETURN(side.content, ReadPlanFile(path, request));
  if (side.content.is_torchrecs && other.ok()) CompleteReplicas(other->plan, side.content.plan);
  Violations violations;
  side.plan = DecodePlanAt("plan", side.content.plan, violations);
  CheckUniqueNames(side.content.plan.tables(), "plan.tables", violations);
  CheckTilings("plan", side.content.plan, side.plan, violations);
  if (side.content.cost) CheckCosts("cost", *side.content.cost, violations);
  NS_RETURN_IF_ERROR(InFile(path, violations.ToStatus()));
  if (side.plan.tables.empty()) return InvalidArgument("{}: a plan without tables", path);
  return side;
}

// The side's plan under the request; what it breaks becomes a note. A plan that cannot be priced is
// an error: it is no plan of this request.
Status PriceSide(const PlannerClient& planner, const Side& side, v1::ShardPlanRequest& request,
                 bool after, v1::DiffAnswer& diff) {
  NS_ASSIGN_OR_RETURN(const v1::EvaluatePlanResponse answer,
                      planner.EvaluatePlan(request, side.content.plan));
  if (!answer.has_cost()) {
    return InvalidArgument(
        "{} is no plan of the request: {}: {}{}", side.file,
        answer.violations_size() > 0 ? answer.violations(0).field() : "plan",
        answer.violations_size() > 0 ? answer.violations(0).description() : "it cannot be priced",
        answer.violations_size() > 1 ? fmt::format(" (and {} more)", answer.violations_size() - 1)
                                     : "");
  }
  AddCost(DecodePlanCost(answer.cost()), after, diff);
  diff.set_price_basis(answer.price_basis().text());
  // The other side by the same version.
  AskForModelsOf(answer.cost_model(), answer.price_basis(), request);
  if (!answer.legal()) {
    diff.add_notes(fmt::format("{} breaks {} of the request, first: {}: {}", side.file,
                               Counted(answer.violations_size(), "rule"),
                               answer.violations(0).field(), answer.violations(0).description()));
  }
  return absl::OkStatus();
}

// Weights' types, as far as a request gives them; whether it is right is the planner's to say.
std::vector<Table> TablesOfRequest(const v1::ShardPlanRequest& request) {
  std::vector<Table> tables;
  for (const v1::Table& message : request.tables()) {
    Table& table = tables.emplace_back();
    table.name = message.name();
    table.module = message.module();
    table.weight_dtype = FromText<DataType>(message.weight_dtype()).value_or(DataType::kFp32);
  }
  return tables;
}

// What the files say their plans cost.
void TakeCostsOfFiles(const Side& before, const Side& after, v1::DiffAnswer& diff) {
  for (const Side* side : {&before, &after}) {
    if (side->content.cost) AddCost(DecodePlanCost(*side->content.cost), side == &after, diff);
  }
  const v1::CostModelRef& a = before.content.cost_model;
  const v1::CostModelRef& b = after.content.cost_model;
  if (!before.content.cost || !after.content.cost) {
    diff.add_notes("not both files say what their plan costs; --request has them priced");
  } else if (a.name() != b.name() || a.version() != b.version()) {
    diff.add_notes(fmt::format(
        "the costs are of different models, {} version {} and {} version {}, and do not compare; "
        "--request has both plans priced by one",
        a.name(), a.version(), b.name(), b.version()));
  } else {
    diff.set_price_basis(after.content.price_basis.text());
  }
}

StatusOr<int> RunDiff(const DiffOptions& options, const Console& console) {
  std::error_code unknown;
  if (options.before_file == options.after_file ||
      std::filesystem::equivalent(options.before_file, options.after_file, unknown)) {
    console.err << "BEFORE and AFTER are the same file, " << options.after_file << '\n';
    return kExitUsage;
  }
  auto request = options.request_file.empty()
                     ? StatusOr<v1::ShardPlanRequest>(v1::ShardPlanRequest())
                     : ReadRequestFile(options.request_file);
  auto before = ReadSide(options.before_file, request, ReadPlanFile(options.after_file));
  auto after = ReadSide(options.after_file, request, ReadPlanFile(options.before_file));
  if (ReportFailures(console, {before.status(), after.status(), request.status()})) {
    return kExitFailure;
  }
  NS_ASSIGN_OR_RETURN(v1::DiffAnswer diff,
                      DiffPlans(before->plan, after->plan, TablesOfRequest(*request)));
  diff.mutable_before()->set_file(options.before_file);
  diff.mutable_after()->set_file(options.after_file);
  diff.set_weights_are_known(!options.request_file.empty());
  if (options.request_file.empty()) {
    TakeCostsOfFiles(*before, *after, diff);
  } else {
    OverrideModel(options.model, *request);
    const PlannerClient planner = options.planner.Client(console.err);
    NS_RETURN_IF_ERROR(PriceSide(planner, *before, *request, false, diff));
    NS_RETURN_IF_ERROR(PriceSide(planner, *after, *request, true, diff));
  }
  if (options.output.json()) LeaveOutKernels(diff);
  return WriteAnswer(console, options.output, diff, DiffAsText);
}

}  // namespace

StatusOr<v1::DiffAnswer> DiffPlans(const Plan& before, const Plan& after,
                                   const std::vector<Table>& tables) {
  const std::vector<Table> now = Mapped(after.tables, SizeOf);
  const std::vector<int> now_of = TablesOf(before, now);
  const std::vector<int> described = TablesOf(after, tables);
  const TableNames names(after.tables);
  v1::DiffAnswer diff;
  diff.mutable_before()->set_tables(static_cast<int>(before.tables.size()));
  diff.mutable_after()->set_tables(static_cast<int>(after.tables.size()));
  std::vector<const TablePlan*> earlier(now.size());
  for (std::size_t t = 0; t < before.tables.size(); ++t) {
    if (now_of[t] < 0) {
      diff.add_only_before(FullName(before.tables[t].module, before.tables[t].name));
    } else {
      At(earlier, now_of[t]) = &before.tables[t];
    }
  }
  double weight_bytes = 0;
  double moved_bytes = 0;
  for (std::size_t t = 0; t < now.size(); ++t) {
    const TablePlan& plan = after.tables[t];
    const double element_bytes =
        described[t] < 0 ? 4 : ElementBytes(At(tables, described[t]).weight_dtype);
    for (const Shard& shard : plan.shards) {
      weight_bytes += static_cast<double>(BytesOf(Cells(shard), element_bytes));
    }
    const std::string& name = names.ReferenceTo(static_cast<int>(t));
    if (earlier[t] == nullptr) {
      diff.add_only_after(name);
      continue;
    }
    const Table size = SizeOf(*earlier[t]);
    v1::DiffTable change;
    change.set_table(name);
    *change.mutable_before() = PlacesOf(*earlier[t]);
    *change.mutable_after() = PlacesOf(plan);
    change.set_resized(size.num_embeddings != now[t].num_embeddings ||
                       size.embedding_dim != now[t].embedding_dim);
    if (!change.resized()) {
      change.set_moved_bytes(BytesOf(MovedCells(*earlier[t], plan), element_bytes));
    }
    moved_bytes += static_cast<double>(change.moved_bytes());
    if (change.resized() || change.moved_bytes() > 0 ||
        !MessageDifferencer::Equals(change.before(), change.after())) {
      *diff.add_tables() = std::move(change);
    }
  }
  diff.set_moved_bytes(std::llround(std::min(moved_bytes, kMaxBytes)));
  diff.set_weight_bytes(std::llround(std::min(weight_bytes, kMaxBytes)));
  if (diff.only_after_size() == diff.after().tables()) {
    return InvalidArgument("the plans have no table in common: {} before, {} after",
                           diff.only_before().empty() ? "nothing" : diff.only_before(0),
                           diff.only_after().empty() ? "nothing" : diff.only_after(0));
  }
  return diff;
}

void AddDiffCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand(
      "diff", "What changes from one plan to another: tables, bytes, cost by stage and rank");
  command
      ->add_option("BEFORE", options->before_file,
                   "JSON: output of plan --format json or torchrec, or a bare plan")
      ->required();
  command->add_option("AFTER", options->after_file, "The same, of the other plan")->required();
  CLI::Option* request = command->add_option(
      "--request", options->request_file,
      "Have a planner price both plans for this request; default: what the files say");
  AddPlannerOptions(*command, options->planner);
  AddModelOption(*command, options->model, "Cost model; default: the request's")->needs(request);
  AddFormatOption(*command, options->output);
  WhenChosen(*command, options, RunDiff, console, exit_code);
}

}  // namespace neuroshard
