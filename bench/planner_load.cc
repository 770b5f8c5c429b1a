// Load on a running planner over real connections: how many plans a second, and how long each
// takes, with so many calls in flight.
//
//   planner_load --planner H:P --in-flight 1,4,16 --seconds 10 REQUEST.yaml...
//   planner_load --planner H:P --tasks TASKS.txt --tables TABLES.csv --devices 4 --memory-gib 4
//                --model NAME
//
//   planner_load --planner H:P --callers 400 --seconds 20 REQUEST.yaml
//
// The requests are asked for in turn. Markdown on stdout, with --json FILE also every figure. With
// --stream the calls are ShardPlanStream, and the time to the first plan is measured too. With
// --callers so many ask for the first request and come back when a refusal tells them to (crowd.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/crowd.h"
#include "client/cli/input_file.h"
#include "client/stub/planner_client.h"
#include "common/base/bytes.h"
#include "common/codec/request_codec.h"
#include "common/codec/table_files.h"

namespace neuroshard {
namespace {

using SteadyTime = std::chrono::steady_clock;

double MsSince(SteadyTime::time_point begin) {
  return std::chrono::duration<double, std::milli>(SteadyTime::now() - begin).count();
}

struct LoadOptions {
  std::string planner = "127.0.0.1:50051";
  std::vector<std::string> request_files;
  std::string tasks_file;
  std::string tables_file;
  int devices = 4;
  double memory_gib = 4;
  std::string model;
  std::string strategy;
  std::optional<std::int64_t> time_budget_ms;
  std::vector<int> in_flight = {1, 4, 16};
  double seconds = 10;
  int calls = 0;
  bool stream = false;
  int callers = 0;
  double spread_s = 1;
  std::string json_file;
};

struct Improvement {
  double at_ms = 0;  // since the call
  double cost_ms = 0;
};

struct CallRecord {
  std::size_t request = 0;
  double total_ms = 0;
  double search_ms = 0;  // inside the server
  double cost_ms = 0;
  std::vector<Improvement> improvements;  // with --stream
  std::string error;                      // empty: a plan came back
};

StatusOr<std::vector<v1::ShardPlanRequest>> ReadRequests(const LoadOptions& options) {
  std::vector<v1::ShardPlanRequest> requests;
  for (const std::string& path : options.request_files) {
    NS_ASSIGN_OR_RETURN(v1::ShardPlanRequest request, ReadRequestFile(path));
    requests.push_back(std::move(request));
  }
  if (!options.tasks_file.empty()) {
    NS_ASSIGN_OR_RETURN(const std::vector<Table> tables, ReadTableCsv(options.tables_file));
    NS_ASSIGN_OR_RETURN(const std::vector<BenchmarkTask> tasks, ReadTaskFile(options.tasks_file));
    const PlannerClient planner(options.planner);
    v1::CostModelRef model;
    model.set_name(options.model);
    NS_ASSIGN_OR_RETURN(const v1::GetCostModelResponse described, planner.GetCostModel(model));
    for (const BenchmarkTask& task : tasks) {
      PlanRequest request;
      NS_ASSIGN_OR_RETURN(request.tables, TablesOfTask(tables, task));
      request.topology.devices.assign(
          static_cast<std::size_t>(options.devices),
          Device{0, std::llround(options.memory_gib * static_cast<double>(kGiB))});
      request.memory.rule = MemoryRule::kWeightsOnly;
      if (described.global_batch_size() > 0) {
        request.global_batch_size = described.global_batch_size();
      }
      requests.push_back(EncodePlanRequest(request));
    }
  }
  for (v1::ShardPlanRequest& request : requests) {
    if (!options.model.empty()) request.mutable_cost_model()->set_name(options.model);
    if (!options.strategy.empty()) request.mutable_search()->set_strategy(options.strategy);
    if (options.time_budget_ms) {
      request.mutable_search()->set_time_budget_ms(*options.time_budget_ms);
    }
  }
  if (requests.empty()) return InvalidArgument("no requests: name files or --tasks");
  return requests;
}

CallRecord Call(const PlannerClient& planner, const v1::ShardPlanRequest& request, bool stream) {
  CallRecord record;
  const auto begin = SteadyTime::now();
  const auto response =
      stream ? planner.ShardPlanStream(
                   request,
                   [&](const v1::ShardPlanUpdate& update) {
                     if (!update.has_best()) return;
                     record.improvements.push_back({MsSince(begin), update.best_cost_ms()});
                   })
             : planner.ShardPlan(request);
  record.total_ms = MsSince(begin);
  if (response.ok()) {
    record.search_ms = response->search().search_ms();
    record.cost_ms = response->cost().embedding_cost_ms();
  } else {
    record.error = Message(response.status());
  }
  return record;
}

struct Run {
  int in_flight = 0;
  double wall_s = 0;
  std::vector<CallRecord> calls;
};

// So many threads, each with a connection of its own, call one after the other until the time is
// over, or until --calls calls are made.
Run MakeRun(const LoadOptions& options, const std::vector<v1::ShardPlanRequest>& requests,
            int in_flight) {
  Run run{in_flight, 0, {}};
  std::mutex mutex;  // guards run.calls
  std::atomic<std::size_t> next{0};
  std::vector<std::unique_ptr<PlannerClient>> clients;
  for (int i = 0; i < in_flight; ++i) {
    clients.push_back(std::make_unique<PlannerClient>(options.planner));
    clients.back()->ListCostModels().IgnoreError();  // connects
  }
  const auto begin = SteadyTime::now();
  const auto over = [&](std::size_t call) {
    return options.calls > 0 ? call >= static_cast<std::size_t>(options.calls)
                             : MsSince(begin) >= options.seconds * 1000;
  };
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&] {
      for (std::size_t call = next++; !over(call); call = next++) {
        const std::size_t which = call % requests.size();
        CallRecord record = Call(*client, requests[which], options.stream);
        record.request = which;
        const std::lock_guard lock(mutex);
        run.calls.push_back(std::move(record));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  run.wall_s = MsSince(begin) / 1000;
  return run;
}

// Nearest rank; 0 of nothing.
double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

struct Summary {
  std::size_t plans = 0;
  std::size_t failed = 0;
  double plans_per_s = 0;
  double p50_ms = 0, p99_ms = 0;
  double first_p50_ms = 0, first_p99_ms = 0;
  double search_p50_ms = 0;
};

Summary Summarise(const Run& run) {
  Summary summary;
  std::vector<double> total_ms, first_ms, search_ms;
  for (const CallRecord& call : run.calls) {
    if (!call.error.empty()) {
      ++summary.failed;
      continue;
    }
    total_ms.push_back(call.total_ms);
    search_ms.push_back(call.search_ms);
    if (!call.improvements.empty()) first_ms.push_back(call.improvements.front().at_ms);
  }
  summary.plans = total_ms.size();
  summary.plans_per_s = static_cast<double>(summary.plans) / run.wall_s;
  summary.p50_ms = Percentile(total_ms, 0.5);
  summary.p99_ms = Percentile(total_ms, 0.99);
  summary.first_p50_ms = Percentile(first_ms, 0.5);
  summary.first_p99_ms = Percentile(first_ms, 0.99);
  summary.search_p50_ms = Percentile(search_ms, 0.5);
  return summary;
}

nlohmann::json AsJson(const Run& run, const Summary& summary, bool stream) {
  nlohmann::json calls = nlohmann::json::array();
  for (const CallRecord& call : run.calls) {
    nlohmann::json entry = {{"request", call.request}, {"total_ms", call.total_ms}};
    if (call.error.empty()) {
      entry["search_ms"] = call.search_ms;
      entry["cost_ms"] = call.cost_ms;
    } else {
      entry["error"] = call.error;
    }
    for (const Improvement& improvement : call.improvements) {
      entry["improvements"].push_back({improvement.at_ms, improvement.cost_ms});
    }
    calls.push_back(std::move(entry));
  }
  nlohmann::json json = {{"in_flight", run.in_flight}, {"wall_s", run.wall_s},
                         {"plans", summary.plans},     {"failed", summary.failed},
                         {"p50_ms", summary.p50_ms},   {"p99_ms", summary.p99_ms},
                         {"calls", std::move(calls)},  {"plans_per_s", summary.plans_per_s}};
  if (stream) {
    json["first_plan_p50_ms"] = summary.first_p50_ms;
    json["first_plan_p99_ms"] = summary.first_p99_ms;
  }
  return json;
}

Status WriteJson(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path);
  file << json.dump(1) << '\n';
  file.close();
  return file ? absl::OkStatus() : Unavailable("{}: cannot be written", path);
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1e3));
}

// What `ms` of every code's calls is, by `kind`.
void PrintTimes(std::string_view kind, const std::map<std::string, std::vector<double>>& ms) {
  for (const auto& [code, times] : ms) {
    fmt::print("| {}: {} | {} | {:.1f} | {:.1f} | {:.1f} |\n", kind, code, times.size(),
               Percentile(times, 0.5), Percentile(times, 0.99), Percentile(times, 1));
  }
}

Status RunCallers(const LoadOptions& options, const v1::ShardPlanRequest& request) {
  NS_ASSIGN_OR_RETURN(const std::vector<CrowdCall> calls,
                      RunCrowd({.planner = options.planner,
                                .callers = options.callers,
                                .length = Milliseconds(options.seconds),
                                .spread = Milliseconds(options.spread_s)},
                               request));
  std::map<std::string, std::vector<double>> call_ms, late_ms, retry_ms;
  nlohmann::json list = nlohmann::json::array();
  for (const CrowdCall& call : calls) {
    const std::string code = absl::StatusCodeToString(static_cast<absl::StatusCode>(call.code));
    call_ms[code].push_back(static_cast<double>(call.ended_ns - call.began_ns) / 1e6);
    late_ms["all"].push_back(static_cast<double>(call.began_ns - call.due_ns) / 1e6);
    list.push_back({{"caller", call.caller},
                    {"began_ns", call.began_ns},
                    {"ended_ns", call.ended_ns},
                    {"late_ns", call.began_ns - call.due_ns},
                    {"code", code}});
    if (!call.retry_after.has_value()) continue;
    retry_ms[code].push_back(static_cast<double>(call.retry_after->count()));
    list.back()["retry_after_ms"] = call.retry_after->count();
  }
  fmt::print("| what | calls | p50, ms | p99, ms | most, ms |\n|---|---|---|---|---|\n");
  PrintTimes("answered after", call_ms);
  PrintTimes("come back after", retry_ms);
  PrintTimes("began late by", late_ms);
  return WriteJson(options.json_file, {{"calls", std::move(list)}});
}

Status RunLoad(const LoadOptions& options) {
  NS_ASSIGN_OR_RETURN(const auto requests, ReadRequests(options));
  if (options.callers > 0) return RunCallers(options, requests.front());
  // Connections, code and the server's memory are warm before anything is measured.
  const CallRecord first = Call(PlannerClient(options.planner), requests.front(), options.stream);
  if (!first.error.empty()) return InvalidArgument("{}", first.error);

  fmt::print("| in flight | plans | failed | plans/s | p50 ms | p99 ms | search p50 ms |{}\n",
             options.stream ? " first plan p50 ms | first plan p99 ms |" : "");
  fmt::print("|---|---|---|---|---|---|---|{}\n", options.stream ? "---|---|" : "");
  nlohmann::json runs = nlohmann::json::array();
  for (const int in_flight : options.in_flight) {
    const Run run = MakeRun(options, requests, in_flight);
    const Summary s = Summarise(run);
    fmt::print("| {} | {} | {} | {:.1f} | {:.2f} | {:.2f} | {:.2f} |", in_flight, s.plans, s.failed,
               s.plans_per_s, s.p50_ms, s.p99_ms, s.search_p50_ms);
    if (options.stream) fmt::print(" {:.2f} | {:.2f} |", s.first_p50_ms, s.first_p99_ms);
    fmt::print("\n");
    std::fflush(stdout);
    runs.push_back(AsJson(run, s, options.stream));
  }
  return WriteJson(options.json_file, {{"requests", requests.size()}, {"runs", std::move(runs)}});
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  neuroshard::LoadOptions options;
  CLI::App app("Load on a running planner");
  app.add_option("REQUEST", options.request_files, "Requests, YAML or JSON");
  app.add_option("--planner", options.planner, "Address")->capture_default_str();
  auto* tasks = app.add_option("--tasks", options.tasks_file, "Benchmark tasks");
  app.add_option("--tables", options.tables_file, "CSV of the tasks' tables")->needs(tasks);
  app.add_option("--devices", options.devices, "Devices of each task")->capture_default_str();
  app.add_option("--memory-gib", options.memory_gib, "Memory of each")->capture_default_str();
  app.add_option("--model", options.model, "Cost model; default: the requests'");
  app.add_option("--strategy", options.strategy, "Strategy; default: the requests'");
  app.add_option("--time-budget-ms", options.time_budget_ms, "Time budget of each search");
  app.add_option("--in-flight", options.in_flight, "Calls in flight, one run each")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--seconds", options.seconds, "Length of each run")->capture_default_str();
  app.add_option("--calls", options.calls, "Calls of each run, instead of a length");
  app.add_flag("--stream", options.stream, "ShardPlanStream instead of ShardPlan");
  app.add_option("--callers", options.callers, "Callers that heed refusals, instead of --in-flight")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--spread-s", options.spread_s, "Over what time callers begin")
      ->capture_default_str();
  app.add_option("--json", options.json_file, "Also write every call's figures there");
  CLI11_PARSE(app, argc, argv);
  const neuroshard::Status status = neuroshard::RunLoad(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "planner_load: {}\n", neuroshard::Message(status));
  return 1;
}
