#include "client/cli/commands.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/testing/command_line_fixture.h"
#include "common/base/build_info.h"
#include "common/base/violations.h"
#include "common/cli/command_line_parse.h"
#include "common/codec/text_file.h"
#include "common/observe/metrics_exporter.h"
#include "common/rpc/status_mapping.h"
#include "common/store/profile_store.h"
#include "tests/support/fake_planner.h"
#include "tests/support/fake_worker.h"
#include "tests/support/silent_port.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::FakePlanner;
using testing::FakeWorker;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::kPlan;
using testing::kRequest;
using ::testing::Not;
using testing::SilentPort;

std::size_t LongestLine(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST_F(CommandLineTest, SaysItsVersion) {
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_EQ(out_, BuildText() + "\n");
}

// Parses, and ends before the command is run.
class AppThatRunsNothing : public CLI::App {
 public:
  AppThatRunsNothing() : CLI::App("", "neuroshard") {}
  void pre_callback() override { throw CLI::Success(); }
};

// Parses `path` with a variable of the environment for every option that has one, and the option
// itself besides where `given`. Counts options in `looked_at`.
void ExpectOptionsFrom(bool given, const std::vector<std::string>& path,
                       const std::function<std::string(const CLI::Option&, bool)>& value,
                       int* looked_at) {
  const Console console{std::cout, std::cerr};
  int exit_code = 0;
  AppThatRunsNothing app;
  AddCommands(app, console, &exit_code);
  CLI::App* chosen = &app;
  for (const std::string& name : path) chosen = chosen->get_subcommand(name);
  for (CLI::App* group : chosen->get_subcommands([](CLI::App*) { return true; })) {
    group->require_option(0);
  }
  std::vector<std::string> words = {"neuroshard"};
  words.insert(words.end(), path.begin(), path.end());
  std::vector<const CLI::Option*> options;
  for (CLI::Option* option : chosen->get_options([](CLI::Option*) { return true; })) {
    option->required(false);
    if (option->get_envname().empty()) continue;
    setenv(option->get_envname().c_str(), value(*option, false).c_str(), 1);
    options.push_back(option);
    if (given) words.insert(words.end(), {option->get_name(), value(*option, true)});
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  std::ostringstream err;
  ASSERT_EQ(ParseCommandLine(app, static_cast<int>(argv.size()), argv.data(), out, err), 0)
      << err.str();
  for (const CLI::Option* option : options) {
    EXPECT_THAT(option->results(), ElementsAre(value(*option, given))) << option->get_name();
    ++*looked_at;
  }
  const std::function<void(const CLI::App&)> expect_untouched = [&](const CLI::App& command) {
    for (const CLI::Option* option : command.get_options()) {
      EXPECT_TRUE(&command == chosen || option->count() == 0)
          << command.get_name() << option->get_name();
    }
    for (const CLI::App* below : CommandsOf(command)) expect_untouched(*below);
  };
  expect_untouched(app);
}

// Calls visit(command, path) for every command that has none below it.
void VisitCommands(
    const CLI::App& command, const std::vector<std::string>& path,
    const std::function<void(const CLI::App&, const std::vector<std::string>&)>& visit) {
  bool is_leaf = true;
  for (const CLI::App* below : CommandsOf(command)) {
    if (below->get_name().empty()) continue;  // a group of options
    is_leaf = false;
    std::vector<std::string> longer = path;
    longer.push_back(below->get_name());
    VisitCommands(*below, longer, visit);
  }
  if (is_leaf) visit(command, path);
}

TEST_F(CommandLineTest, NoOptionOfAnyCommandTakesAnEmptyValueForAbsence) {
  const Console console{std::cout, std::cerr};
  int exit_code = 0;
  CLI::App app("", "neuroshard");
  AddCommands(app, console, &exit_code);
  int looked_at = 0;
  VisitCommands(app, {}, [&](const CLI::App& command, const std::vector<std::string>& path) {
    for (const CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
      if (option->get_items_expected_max() == 0 || option->get_lnames().empty()) continue;
      std::vector<std::string> words = path;
      words.insert(words.end(), {"--" + option->get_lnames()[0], ""});
      EXPECT_EQ(Run(words), 2) << ::testing::PrintToString(words);
      EXPECT_THAT(err_, ::testing::StartsWith(option->get_name() + ": "));
      ++looked_at;
    }
  });
  EXPECT_GT(looked_at, 120);
}

TEST_F(CommandLineTest, OptionsWinOverVariablesInEveryCommand) {
  // One file that is good as certificate, as key and as authority.
  const std::string make = std::string(NEUROSHARD_SOURCE_DIR) + "/deploy/make_dev_certs.sh " +
                           folder_.string() + " a=DNS:a >/dev/null 2>&1";
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string all =
      *ReadTextFile((folder_ / "a.pem").string()) + *ReadTextFile((folder_ / "a.key").string());
  const std::vector<std::string> pem = {Write("variable.pem", all), Write("given.pem", all)};
  const auto value = [&pem](const CLI::Option& option, bool given) -> std::string {
    if (option.get_name().starts_with("--tls-")) return pem[given ? 1 : 0];
    return given ? "given:1" : "variable:1";
  };
  int looked_at = 0;
  const Console console{std::cout, std::cerr};
  int exit_code = 0;
  CLI::App app("", "neuroshard");
  AddCommands(app, console, &exit_code);
  VisitCommands(app, {}, [&](const CLI::App&, const std::vector<std::string>& path) {
    SCOPED_TRACE(::testing::PrintToString(path));
    ExpectOptionsFrom(true, path, value, &looked_at);
    ExpectOptionsFrom(false, path, value, &looked_at);
  });
  EXPECT_GT(looked_at, 80);
  for (const char* name :
       {"STORE", "PLANNER", "WORKERS", "TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_SERVER_NAME"}) {
    unsetenv((std::string("NEUROSHARD_") + name).c_str());
  }
}

// A file that was cut between two keys is a whole one with more defaults.
TEST_F(CommandLineTest, ASweepSaysAllValuesOfItsConfiguration) {
  const std::string config = Write("sweep.yaml", "kind: comm\nnum_samples: 3\nnum_ranks: [2]\n");
  const std::string store = (folder_ / "s.db").string();
  EXPECT_EQ(Run({"sweep", "comm", config, "--workers", "127.0.0.1:1", "--store", store,
                 "--reconnect-s", "0"}),
            1);
  EXPECT_THAT(err_, ::testing::StartsWith("measures kind=comm seed=0 num_samples=3 repeats=1 "));
  EXPECT_THAT(err_, HasSubstr(" flush_cache=true\n"));
  EXPECT_EQ(Run({"sweep", "compute", config, "--workers", "127.0.0.1:1", "--store", store}), 1);
  EXPECT_THAT(err_, HasSubstr("the other kind of sweep; `neuroshard sweep comm` runs it"));
}

TEST_F(CommandLineTest, AReportWithoutThePythonPackageSaysHowToGetIt) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_EQ(Run({"report", "plan.json"}), 1);
  EXPECT_THAT(err_,
              HasSubstr("cannot run neuroshard-report: No such file or directory; the Python"));
  setenv("PATH", path.c_str(), 1);
}

TEST_F(CommandLineTest, EveryCommandHasHelp) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"plan"},
                                             {"evaluate"},
                                             {"eval-tasks"},
                                             {"sweep"},
                                             {"sweep", "compute"},
                                             {"sweep", "comm"},
                                             {"validate"},
                                             {"predict"},
                                             {"predict", "compute"},
                                             {"models"},
                                             {"models", "list"},
                                             {"models", "show"},
                                             {"devices"},
                                             {"diff"},
                                             {"init"},
                                             {"doctor"},
                                             {"completion"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    EXPECT_EQ(Run(arguments), 0);
    EXPECT_THAT(out_, HasSubstr("Usage:"));
    EXPECT_THAT(err_, IsEmpty());
    EXPECT_THAT(LongestLine(out_), ::testing::Le(80u)) << out_;
  }
}

TEST_F(CommandLineTest, UsageErrorsExitWithTwoAndPrintNothingOnStdout) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"fly"},
           {"plan"},
           {"plan", request_, "--format", "xml"},
           {"plan", request_, "--planner", "nowhere"},
           {"plan", request_, "--time-budget-ms", "-1"},
           {"plan", request_, "--seed", "x"},
           {"plan", request_, "--seed", "-1"},
           {"plan", request_, "--unknown"},
           {"eval-tasks", "--tables", "t.csv"},
           {"eval-tasks", "--tables", "t", "--tasks", "t", "--devices", "0", "--memory-gib", "4",
            "--model", "m", "--strategy", "s"},
           {"eval-tasks", "--tables", "t", "--tasks", "t", "--devices", "4", "--memory-gib", "-4",
            "--model", "m", "--strategy", "s"},
           {"sweep"},
           {"sweep", "compute", "c.yaml", "--workers", "a:1"},
           {"sweep", "compute", "c.yaml", "--workers", "a:1,a:1", "--store", "s.db"},
           {"validate", request_, plan_},
           {"validate", request_, plan_, "--workers", "a:1,b:1,a:1"},
           {"plan", request_, "--model", "cpu/0"},
           {"sweep", "compute", "c.yaml", "--workers", "a:1", "--store", "s.db", "--model",
            "cpu/x"},
           {"predict", request_},
           {"predict", "compute"},
           {"predict", "compute", request_, "--batch-size", "64,0"},
           {"predict", "compute", request_, "--optimizer", "momentum"},
           {"models"},
           {"models", "show"},
           {"models", "list", "--tls-ca", folder_.string()},
           {"models", "show", "cpu/0"}}) {
    EXPECT_EQ(Run(arguments), 2) << ::testing::PrintToString(arguments);
    EXPECT_THAT(out_, IsEmpty());
    EXPECT_THAT(err_, Not(IsEmpty()));
  }
}

TEST_F(CommandLineTest, AMisspeltCommandIsNamedBesideThoseThereAre) {
  EXPECT_EQ(Run({"plna", request_}), 2);
  EXPECT_THAT(err_, AllOf(HasSubstr("\"plna\" is no command of neuroshard; did you mean plan?"),
                          HasSubstr("there are plan, evaluate, ")));
  EXPECT_EQ(Run({"fly", "a", "b"}), 2);
  EXPECT_THAT(err_, AllOf(HasSubstr("\"fly\" is no command"), Not(HasSubstr("did you mean"))));
  EXPECT_EQ(Run({"models", "lst"}), 2);
  EXPECT_THAT(err_, HasSubstr("\"lst\" is no command of neuroshard models; did you mean list?"));
}

TEST_F(CommandLineTest, TheEnvironmentNamesAPlannerAndTheFlagWins) {
  ASSERT_EQ(setenv("NEUROSHARD_PLANNER", planner_.address().c_str(), 1), 0);
  EXPECT_EQ(Run({"plan", request_}), 0) << err_;
  ASSERT_EQ(setenv("NEUROSHARD_PLANNER", "127.0.0.1:1", 1), 0);
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address()}), 0) << err_;
  ASSERT_EQ(setenv("NEUROSHARD_PLANNER", "nowhere", 1), 0);
  EXPECT_EQ(Run({"plan", request_}), 2);
  ASSERT_EQ(unsetenv("NEUROSHARD_PLANNER"), 0);
  EXPECT_EQ(Run({"plan", "--help"}), 0);
  EXPECT_THAT(out_, HasSubstr("NEUROSHARD_PLANNER"));
}

TEST_F(CommandLineTest, TheEnvironmentNamesWorkersAndAStore) {
  ASSERT_EQ(setenv("NEUROSHARD_WORKERS", "a:1,a:1", 1), 0);
  ASSERT_EQ(setenv("NEUROSHARD_STORE", "/nowhere/s.db", 1), 0);
  EXPECT_EQ(Run({"sweep", "comm", "c.yaml"}), 2);
  EXPECT_THAT(err_, HasSubstr("a:1 is listed more than once"));
  ASSERT_EQ(setenv("NEUROSHARD_WORKERS", "a", 1), 0);
  EXPECT_EQ(Run({"sweep", "comm", "c.yaml"}), 2);
  EXPECT_THAT(err_, HasSubstr("must be HOST:PORT, got \"a\" (from NEUROSHARD_WORKERS)"));
  ASSERT_EQ(unsetenv("NEUROSHARD_WORKERS"), 0);
  EXPECT_EQ(Run({"sweep", "comm",
                 Write("c.yaml",
                       "kind: comm\nnum_samples: 1\nnum_ranks: [2]\n"
                       "batch_size: 64\n"),
                 "--workers", "a:1"}),
            1);
  EXPECT_THAT(err_, HasSubstr("/nowhere/s.db"));
  ASSERT_EQ(unsetenv("NEUROSHARD_STORE"), 0);
}

// Standard input holds `text` while it lives.
class StandardInput {
 public:
  explicit StandardInput(const std::string& file) : saved_(dup(STDIN_FILENO)) {
    const int opened = open(file.c_str(), O_RDONLY);
    dup2(opened, STDIN_FILENO);
    close(opened);
  }
  ~StandardInput() {
    dup2(saved_, STDIN_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

TEST_F(CommandLineTest, AMinusIsStandardInputAndOutput) {
  {
    const StandardInput input(request_);
    EXPECT_EQ(Run({"plan", "-", "--planner", planner_.address(), "--format", "json", "--out", "-"}),
              0)
        << err_;
  }
  EXPECT_EQ(planner_.requests().back().tables_size(), 2);
  planner_.evaluation.set_legal(true);
  const StandardInput input(Write("response", out_));  // JSON, by its first character
  EXPECT_EQ(Run({"evaluate", request_, "-", "--planner", planner_.address()}), 0) << err_;
}

TEST_F(CommandLineTest, FilesInTheWrongPlacesAreCalledWhatTheyAre) {
  EXPECT_EQ(Run({"evaluate", plan_, request_, "--planner", planner_.address()}), 1);
  EXPECT_EQ(err_, "error: " + plan_ +
                      ": this is a plan; a request is wanted here\nerror: " + request_ +
                      ": this is a request; a plan, as `neuroshard plan --format json` "
                      "writes it, is wanted here\n");
  EXPECT_EQ(Run({"plan", Write("c.yaml", "kind: comm\nnum_samples: 1\n"), "--planner",
                 planner_.address()}),
            1);
  EXPECT_THAT(err_, HasSubstr("c.yaml: this is a sweep's configuration"));
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(CommandLineTest, MisspeltFieldsStrategiesAndOptionsAreToldWhichWasMeant) {
  EXPECT_EQ(Run({"plan", Write("bad.yaml", "tabels: []\n"), "--planner", planner_.address()}), 1);
  EXPECT_THAT(err_, HasSubstr("tabels: unknown field; did you mean tables? (line 1)"));
  EXPECT_EQ(Run({"plan", request_, "--strategy", "refin"}), 2);
  EXPECT_THAT(err_, HasSubstr("got \"refin\"; did you mean refine?"));
  EXPECT_EQ(Run({"plan", request_, "--stategy", "refine"}), 2);
  EXPECT_THAT(err_,
              HasSubstr("neuroshard plan has no option \"--stategy\"; did you mean --strategy?"));
}

TEST_F(CommandLineTest, DurationsMayHaveAUnit) {
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--timeout-s", "1h",
                 "--time-budget-ms", "1.5s"}),
            0)
      << err_;
  EXPECT_EQ(planner_.requests().back().search().time_budget_ms(), 1500);
}

TEST_F(CommandLineTest, AnUnwritableOutputIsFoundBeforeThePlannerIsAsked) {
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--out", "/nowhere/p.json"}),
            1);
  EXPECT_THAT(err_, HasSubstr("/nowhere/p.json"));
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(CommandLineTest, AServerThatSpeaksNoGrpcIsCalledThat) {
  const auto exporter =
      MetricsExporter::Start("127.0.0.1:0", std::make_shared<prometheus::Registry>());
  ASSERT_THAT(exporter, IsOk());
  EXPECT_EQ(Run({"models", "list", "--planner", (*exporter)->address(), "--timeout-s", "20"}), 1);
  EXPECT_THAT(err_, HasSubstr("speaks HTTP/1.1 and not gRPC: a port of metrics, perhaps"));
  EXPECT_EQ(Run({"models", "list", "--planner", "127.0.0.1:1"}), 1);
  EXPECT_THAT(err_, HasSubstr("nothing listens there (Connection refused)"));
}

TEST_F(CommandLineTest, PlanSendsTheRequestWithItsOverrides) {
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--strategy", "random",
                 "--time-budget-ms", "5", "--steps", "7", "--seed", "9", "--model", "cpu",
                 "--format", "json"}),
            0)
      << err_;
  ASSERT_EQ(planner_.requests().size(), 1u);
  const v1::ShardPlanRequest request = planner_.requests().front();
  EXPECT_EQ(request.tables_size(), 2);
  EXPECT_EQ(request.search().strategy(), "random");
  EXPECT_EQ(request.search().time_budget_ms(), 5);
  EXPECT_EQ(request.search().seed(), 9u);
  EXPECT_EQ(request.search().refine_steps(), 7);
  EXPECT_EQ(request.cost_model().name(), "cpu");
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["cost"]["embedding_cost_ms"], 7.5);
  EXPECT_EQ(json["plan"]["tables"][1]["name"], "b");
}

TEST_F(CommandLineTest, PlanSendsThePreviousPlanAndWhatMayMove) {
  EXPECT_EQ(
      Run({"plan", request_, "--planner", planner_.address(), "--previous", plan_,
           "--migration-budget-gib", "1.5", "--only-types", "table_wise,column_wise", "--explain"}),
      0)
      << err_;
  v1::ShardPlanRequest request = planner_.requests().back();
  EXPECT_EQ(request.migration().previous().tables_size(), 2);
  EXPECT_EQ(request.migration().budget_bytes(), std::int64_t{3} << 29);
  EXPECT_THAT(request.migration().only_types(), ElementsAre("table_wise", "column_wise"));
  EXPECT_TRUE(request.search().explain());
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--previous", plan_}), 0);
  EXPECT_FALSE(planner_.requests().back().migration().has_budget_bytes());
  EXPECT_THAT(planner_.requests().back().migration().only_types(), IsEmpty());

  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--migration-budget-gib", "0"}),
            1);
  EXPECT_THAT(err_, HasSubstr("--previous"));
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--only-types", "table_wise"}),
            1);
  EXPECT_THAT(err_, HasSubstr("--only-types needs a plan to migrate from"));
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--previous", plan_,
                 "--only-types", "row"}),
            2);
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--previous", plan_,
                 "--migration-budget-gib", "nan"}),
            2);
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--previous", "/no.json"}), 1);
  EXPECT_THAT(err_, HasSubstr("/no.json"));
  EXPECT_EQ(planner_.calls(), 2);
}

TEST_F(CommandLineTest, ReconnectStillGoesByItsOldName) {
  EXPECT_EQ(
      Run({"sweep", "comm", "/no.yaml", "--workers", "a:1", "--store", "s.db", "--reconnect", "0"}),
      1);
  EXPECT_THAT(err_, HasSubstr("/no.yaml"));
}

TEST_F(CommandLineTest, EveryFormatOfPlanIsOneDocument) {
  for (const char* format :
       {"json", "torchrec", "neuroshard", "hugectr", "distributed_embeddings"}) {
    EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--format", format}), 0)
        << err_;
    EXPECT_TRUE(nlohmann::json::accept(out_)) << out_;
  }
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--stream"}), 0);
  EXPECT_THAT(out_, HasSubstr("cost 7.500 ms"));
  EXPECT_THAT(err_, HasSubstr("progress"));
}

TEST_F(CommandLineTest, PlacementsAreOnTheDeviceOfTheFlagTheRequestOrTheModel) {
  const auto placement = [&](const std::string& request, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"plan",     request,   "--planner", planner_.address(),
                                          "--format", "torchrec"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Run(arguments), 0) << err_;
    return nlohmann::json::parse(out_)["plan"][""]["a"]["shards"][0]["placement"];
  };
  EXPECT_EQ(placement(request_), "rank:0/cuda:0");
  EXPECT_EQ(placement(request_, {"--device-type", "cpu"}), "rank:0/cpu");
  std::string with_device = kRequest;
  with_device.replace(with_device.find("topology: {"), 11, "topology: {compute_device: cpu, ");
  const std::string for_cpu = Write("for_cpu.yaml", with_device);
  EXPECT_EQ(placement(for_cpu), "rank:0/cpu");
  EXPECT_THAT(err_, Not(HasSubstr("warning")));
  EXPECT_EQ(placement(for_cpu, {"--device-type", "cuda"}), "rank:0/cuda:0");

  planner_.plan = [plan = planner_.plan](const v1::ShardPlanRequest& request,
                                         v1::ShardPlanResponse* response) {
    response->mutable_cost()->mutable_measured_with()->set_backend("neuroshard-cpu");
    return plan(request, response);
  };
  EXPECT_EQ(placement(request_), "rank:0/cpu");
  EXPECT_THAT(err_, HasSubstr("--device-type"));
  EXPECT_EQ(placement(request_, {"--device-type", "cuda"}), "rank:0/cuda:0");
  EXPECT_THAT(err_, Not(HasSubstr("warning")));
}

TEST_F(CommandLineTest, AFileThatCannotBeWrittenIsFoundBeforeThePlannerIsAsked) {
  int asked = 0;
  planner_.plan = [&asked](const v1::ShardPlanRequest&, v1::ShardPlanResponse*) {
    ++asked;
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--out",
                 (folder_ / "absent" / "plan.json").string()}),
            1);
  EXPECT_THAT(err_, HasSubstr("absent/plan.json"));
  EXPECT_EQ(asked, 0);
}

TEST_F(CommandLineTest, PlanWritesItsFileWholeOrNotAtAll) {
  const std::string file = (folder_ / "out.json").string();
  EXPECT_EQ(
      Run({"plan", request_, "--planner", planner_.address(), "--format", "json", "--out", file}),
      0);
  EXPECT_THAT(out_, IsEmpty());
  const auto text = ReadTextFile(file);
  ASSERT_THAT(text, IsOk());
  EXPECT_TRUE(nlohmann::json::accept(*text));
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--out",
                 (folder_ / "no" / "out.json").string()}),
            1);
  planner_.failures = {{grpc::StatusCode::FAILED_PRECONDITION, "no plan exists"}};
  const std::string other = (folder_ / "other.json").string();
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address(), "--out", other}), 1);
  EXPECT_THAT(err_, HasSubstr("no plan exists"));
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(CommandLineTest, ViolationsAreListedOneALine) {
  Violations violations;
  violations.Add("tables[3].embedding_dim", "must be at least 1, got -4");
  violations.Add("topology", "is required");
  planner_.failures = {ToGrpc(violations.ToStatus())};
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address()}), 1);
  EXPECT_EQ(err_,
            "error: 2 faults in the input\n  tables[3].embedding_dim: must be at least 1, got -4\n "
            " topology: is required\n");
}

TEST_F(CommandLineTest, WhyNoPlanCanExistIsSaidAlthoughFieldsAreNamed) {
  Violations violations;
  violations.Add("topology", "200 B for shards on 2 ranks");
  Status status = absl::FailedPreconditionError("no plan can exist: 'a' fits nowhere");
  violations.ToStatus().ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { status.SetPayload(type, payload); });
  planner_.failures = {ToGrpc(status)};
  EXPECT_EQ(Run({"plan", request_, "--planner", planner_.address()}), 1);
  EXPECT_THAT(err_, HasSubstr("no plan can exist: 'a' fits nowhere"));
}

TEST_F(CommandLineTest, ACutListOfFaultsSaysSo) {
  std::string many = "topology: {}\n";
  for (int i = 0; i < 150; ++i) many += fmt::format("unknown_{}: 1\n", i);
  EXPECT_EQ(Run({"plan", Write("many.yaml", many), "--planner", planner_.address()}), 1);
  EXPECT_THAT(err_, ::testing::StartsWith("error: at least 100 faults in the input\n"));
}

TEST_F(CommandLineTest, BadFilesAreNamed) {
  EXPECT_EQ(Run({"plan", "/nowhere.yaml", "--planner", planner_.address()}), 1);
  EXPECT_THAT(err_, HasSubstr("/nowhere.yaml"));
  EXPECT_EQ(Run({"plan", Write("bad.yaml", "tables: [{nam: x}]"), "--planner", planner_.address()}),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr("bad.yaml"), HasSubstr("nam")));
  EXPECT_EQ(Run({"evaluate", request_, Write("bad.json", "{\"plan\": [}"), "--planner",
                 planner_.address()}),
            1);
  EXPECT_THAT(err_, HasSubstr("bad.json"));
  for (const std::string command : {"evaluate", "validate"}) {
    EXPECT_EQ(Run({command, "/nowhere.yaml", "/nowhere.json",
                   command == "evaluate" ? "--planner" : "--workers", planner_.address()}),
              1);
    EXPECT_THAT(err_, AllOf(HasSubstr("/nowhere.yaml"), HasSubstr("/nowhere.json")));
  }
  EXPECT_EQ(Run({"eval-tasks", "--tables", request_, "--tasks", plan_, "--devices", "4",
                 "--memory-gib", "4", "--model", "m", "--strategy", "refine"}),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr("request.yaml: line 1: must be"),
                          HasSubstr("plan.json: line 1.parts")));
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(CommandLineTest, FaultsOfTypeAndOfRangeAreListedInOnePass) {
  const std::string bad = Write("bad.yaml", R"(
tables:
- {name: a, num_embeddings: many, embedding_dim: -8, zipf_exponent: 1}
- {name: b, num_embeddings: 50, embedding_dim: 16, poolingfactor: 1}
- 7
topology: {hosts: [{num_devices: 0, memory_bytes: 1}]}
global_batch_size: 0
)");
  EXPECT_EQ(Run({"plan", bad, "--planner", planner_.address()}), 1);
  EXPECT_THAT(err_,
              AllOf(HasSubstr("6 faults"), HasSubstr("bad.yaml: tables[0].num_embeddings"),
                    HasSubstr("tables[0].embedding_dim: must be at least 1, got -8"),
                    HasSubstr("tables[1].poolingfactor: unknown"), HasSubstr("tables[2]"),
                    HasSubstr("topology.hosts[0].num_devices"), HasSubstr("global_batch_size")));
  EXPECT_EQ(planner_.calls(), 0);
}

TEST_F(CommandLineTest, AServerOfAnotherKindIsCalledThat) {
  FakeWorker worker;
  EXPECT_EQ(Run({"models", "list", "--planner", worker.address()}), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr(worker.address()), HasSubstr("no planner")));
  EXPECT_EQ(Run({"validate", request_, plan_, "--workers", planner_.address()}), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr(planner_.address()), HasSubstr("no worker")));
}

TEST_F(CommandLineTest, APlannerThatIsNotThereIsNamed) {
  EXPECT_EQ(Run({"models", "list", "--planner", "127.0.0.1:1"}), 1);
  EXPECT_THAT(err_, HasSubstr("planner at 127.0.0.1:1"));
}

TEST_F(CommandLineTest, APlannerThatNeverAnswersIsLeftAtTheTimeout) {
  const SilentPort silent;
  EXPECT_EQ(Run({"models", "list", "--planner", silent.address(), "--timeout-s", "1"}), 1);
  EXPECT_THAT(err_, HasSubstr("planner at " + silent.address()));
}

TEST_F(CommandLineTest, EvaluateFailsWhenThePlanIsIllegal) {
  planner_.evaluation.set_legal(true);
  planner_.evaluation.mutable_cost()->set_embedding_cost_ms(3);
  EXPECT_EQ(Run({"evaluate", request_, plan_, "--planner", planner_.address()}), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("cost 3.000 ms"), HasSubstr("legal")));
  planner_.evaluation.set_legal(false);
  v1::PlanViolation* violation = planner_.evaluation.add_violations();
  violation->set_field("plan.tables[0]");
  violation->set_description("too wide");
  EXPECT_EQ(Run({"evaluate", request_, plan_, "--planner", planner_.address()}), 1);
  EXPECT_THAT(out_, HasSubstr("plan.tables[0]: too wide"));
  EXPECT_EQ(Run({"evaluate", request_, plan_, "--planner", planner_.address(), "--format", "json"}),
            1);
  EXPECT_EQ(nlohmann::json::parse(out_)["violations"][0]["description"], "too wide");
}

TEST_F(CommandLineTest, AModelOnTheCommandLineIsItsNewestVersionUnlessItNamesOne) {
  const std::string pinned =
      Write("pinned.yaml", std::string(kRequest) + "cost_model: {name: gpu, version: 7}\n");
  planner_.evaluation.set_legal(true);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"plan", pinned}, {"evaluate", pinned, plan_}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--planner", planner_.address(), "--model", "cpu"});
    EXPECT_EQ(Run(arguments), 0) << err_;
    const v1::CostModelRef asked = planner_.requests().back().cost_model();
    EXPECT_EQ(asked.name(), "cpu");
    EXPECT_EQ(asked.version(), 0);
    arguments.back() = "cpu/3";
    EXPECT_EQ(Run(arguments), 0) << err_;
    EXPECT_EQ(planner_.requests().back().cost_model().version(), 3);
  }
}

TEST_F(CommandLineTest, EvaluateTakesWhatPlanPrinted) {
  const std::string file = (folder_ / "response.json").string();
  EXPECT_EQ(
      Run({"plan", request_, "--planner", planner_.address(), "--format", "json", "--out", file}),
      0);
  planner_.evaluation.set_legal(true);
  EXPECT_EQ(Run({"evaluate", request_, file, "--planner", planner_.address()}), 0) << err_;
}

TEST_F(CommandLineTest, EvalTasksAsksForEveryTaskAndStrategy) {
  std::string csv = "index,row,pooling_factor";
  for (int bin = 0; bin < 17; ++bin) csv += fmt::format(",bin_{}", bin);
  for (int i = 0; i < 3; ++i)
    csv += fmt::format("\n{},{},2.5,1{}", i, 100 + i, ",0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0");
  const std::string tables = Write("tables.csv", csv + "\n");
  const std::string tasks = Write("tasks.txt", "0,2,2 8,16,4\n1 4\n0 4\n");
  planner_.model.set_global_batch_size(512);
  planner_.failures = {
      grpc::Status::OK, grpc::Status::OK, {grpc::StatusCode::FAILED_PRECONDITION, "too small"}};
  EXPECT_EQ(Run({"eval-tasks", "--strategy", "neuroshard,random", "--tables", tables, "--tasks",
                 tasks, "--devices", "4", "--memory-gib", "2", "--model", "m", "--limit=2",
                 "--effort=quick", "--planner", planner_.address(), "--format", "json"}),
            0)
      << err_;
  const auto json = nlohmann::json::parse(out_);
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][0]["strategy"], "neuroshard");
  EXPECT_EQ(json["results"][0]["solved"], 2);
  EXPECT_EQ(json["results"][1]["solved"], 1);
  EXPECT_THAT(json["results"][1]["tasks"][0]["error"].get<std::string>(), HasSubstr("too small"));
  ASSERT_EQ(planner_.requests().size(), 4u);
  const v1::ShardPlanRequest first = planner_.requests().front();
  EXPECT_EQ(first.search().effort(), "quick");
  EXPECT_EQ(first.tables_size(), 3);
  EXPECT_EQ(first.tables(1).embedding_dim(), 16);
  EXPECT_EQ(first.memory().rule(), "weights_only");
  EXPECT_EQ(first.global_batch_size(), 512) << "the model's";
  int devices = 0;
  for (const v1::HostGroup& host : first.topology().hosts())
    devices += (host.has_count() ? host.count() : 1) * host.num_devices();
  EXPECT_EQ(devices, 4);

  EXPECT_EQ(Run({"eval-tasks", "--strategy", "neuroshard", "--tables", tables, "--tasks",
                 Write("wrong.txt", "0 4\n3 4\n"), "--devices", "4", "--memory-gib", "2", "--model",
                 "m", "--planner", planner_.address()}),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr("wrong.txt: task 1"), HasSubstr("got 3")));
  EXPECT_EQ(planner_.requests().size(), 4u) << "nothing is asked for a faulty file";
}

TEST_F(CommandLineTest, AVersionIsToldToServe) {
  planner_.served.set_channel("version 4, version 5 for 25% of the requests");
  planner_.served.add_overruled("compute is 60% off");
  EXPECT_EQ(Run({"models", "serve", "cpu/5", "--share", "0.25", "--force", "--planner",
                 planner_.address()}),
            0);
  EXPECT_EQ(out_, "cpu: version 4, version 5 for 25% of the requests\n");
  EXPECT_THAT(err_, HasSubstr("overruled: compute is 60% off"));
  EXPECT_EQ(Run({"models", "serve", "cpu/4", "--planner", planner_.address()}), 0);
  ASSERT_EQ(planner_.serve_requests.size(), 2U);
  EXPECT_EQ(planner_.serve_requests[0].ShortDebugString(),
            "name: \"cpu\" version: 5 share: 0.25 force: true");
  EXPECT_EQ(planner_.serve_requests[1].ShortDebugString(), "name: \"cpu\" version: 4");
  EXPECT_EQ(Run({"models", "serve", "cpu", "--planner", planner_.address()}), 2);
  EXPECT_THAT(err_, HasSubstr("NAME/VERSION"));
  EXPECT_EQ(Run({"models", "serve", "cpu/4", "--share", "2"}), 2);
}

TEST_F(CommandLineTest, ARolloutOfAnyNameIsListed) {
  const auto add = [&](const char* name, int version, double share) {
    v1::CostModelSummary* model = planner_.models.add_models();
    model->set_name(name);
    model->set_version(version);
    model->set_share(share);
    return model;
  };
  add("cpu", 1, 1)->set_is_default(true);
  ASSERT_EQ(Run({"models", "list", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_, Not(HasSubstr("share")));
  add("gpu", 3, 0.875);
  add("gpu", 4, 0.125);
  ASSERT_EQ(Run({"models", "list", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("share"), HasSubstr("87.5%"), HasSubstr("12.5%")));
}

TEST_F(CommandLineTest, ModelsAreListedAndShown) {
  v1::CostModelSummary* model = planner_.models.add_models();
  model->set_name("cpu");
  model->set_version(2);
  model->set_is_default(true);
  model->add_num_devices(2);
  model->add_num_devices(4);
  model->set_collective_backend("fake-rings");
  v1::RefusedCostModel* refused = planner_.models.add_refused();
  refused->set_path("bad/1");
  refused->set_reason("no model.yaml");
  model->add_poor_reasons("compute is 60% off");
  model->set_digest("00ff");
  EXPECT_EQ(Run({"models", "list", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_,
              AllOf(HasSubstr("cpu"), HasSubstr("2,4"), HasSubstr("refused: bad/1: no model.yaml"),
                    HasSubstr("poor: cpu/2: compute is 60% off")));
  *planner_.model.mutable_summary() = *model;
  (*planner_.model.mutable_details())["metrics.compute.kendall_tau"] = "0.97";
  for (const char* kernel : {"fused", "fused_uvm"}) {
    planner_.model.mutable_measured_ranges()->add_compute_kernels(kernel);
  }
  EXPECT_EQ(Run({"models", "show", "cpu", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("metrics.compute.kendall_tau"), HasSubstr("fake-rings"),
                          HasSubstr("00ff"), ContainsRegex("poor +compute is 60% off")));
  EXPECT_THAT(out_, ContainsRegex("measured_compute_kernels +fused fused_uvm\n"));
  EXPECT_EQ(Run({"models", "show", "cpu", "--planner", planner_.address(), "--format", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_)["measured_ranges"]["compute_kernels"],
            nlohmann::json({"fused", "fused_uvm"}));

  // While a rollout is staged.
  model = planner_.models.mutable_models(0);
  model->set_share(0.75);
  v1::CostModelSummary* const staged = planner_.models.add_models();
  *staged = *model;
  staged->set_version(3);
  staged->set_is_default(false);
  staged->set_share(0.25);
  EXPECT_EQ(Run({"models", "list", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("75%"), HasSubstr("25%")));
  *planner_.model.mutable_summary() = *staged;
  EXPECT_EQ(Run({"models", "show", "cpu", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_, HasSubstr("25% of the requests for cpu without a version"));
}

constexpr char kTables[] =
    "index,row,pooling_factor,bin_0,bin_1,bin_2,bin_3,bin_4,bin_5,bin_6,bin_7,bin_8,bin_9,bin_10,"
    "bin_11,bin_12,bin_13,bin_14,bin_15,bin_16\n"
    "0,1000,2,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"
    "1,500,3,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n";
constexpr char kCommSweep[] = "kind: comm\nnum_samples: 5\nnum_ranks: [2]\nbatch_size: 64\n";

TEST_F(CommandLineTest, ASweepFillsTheStoreAndTheSameCommandResumes) {
  FakeWorker a;
  const std::string config = Write("sweep.yaml", kCommSweep);
  const std::string store = (folder_ / "store.db").string();
  {
    FakeWorker dying({.dies_after_samples = 4});
    EXPECT_EQ(Run({"sweep", "comm", config, "--store", store, "--reconnect-s", "0", "--workers",
                   a.address() + "," + dying.address()}),
              1);
    EXPECT_THAT(err_, HasSubstr("run the same command again"));
  }
  FakeWorker b;
  EXPECT_EQ(Run({"sweep", "comm", "--workers", a.address() + "," + b.address(), config, "--store",
                 store, "--format", "json"}),
            0)
      << err_;
  const auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["samples"], 10);
  EXPECT_EQ(json["done_before"], 4);
  EXPECT_EQ(json["recorded"], 6);
  EXPECT_EQ(json["complete"], true);
  const auto opened = ProfileStore::Open(store, StoreMode::kReadOnly);
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ((*opened)->ReadRecords<CommRecord>()->size(), 10u);
}

TEST_F(CommandLineTest, ASweepOfTheOtherKindOrWithFaultsIsRefused) {
  const std::string store = (folder_ / "store.db").string();
  EXPECT_EQ(Run({"sweep", "compute", Write("sweep.yaml", kCommSweep), "--workers", "a:1", "--store",
                 store}),
            1);
  EXPECT_THAT(err_, HasSubstr("neuroshard sweep comm"));
  EXPECT_EQ(Run({"sweep", "comm", Write("bad.yaml", std::string(kCommSweep) + "colour: red\n"),
                 "--workers", "a:1", "--store", store}),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr("bad.yaml"), HasSubstr("colour")));
  EXPECT_FALSE(std::filesystem::exists(store)) << "nothing to store yet";
  EXPECT_EQ(Run({"sweep", "comm", (folder_ / "sweep.yaml").string(), "--workers", "a:1", "--store",
                 "/nowhere/store.db"}),
            1);
  EXPECT_THAT(err_, HasSubstr("/nowhere/store.db"));
}

TEST_F(CommandLineTest, TablesOfASweepThatAreNotThereAreNamedWithTheirField) {
  const std::string config =
      Write("lost.yaml", "kind: compute\nnum_samples: 4\ntables: nowhere.csv\nmax_tables: 1\n");
  EXPECT_EQ(Run({"sweep", "compute", config, "--workers", "a:1", "--store",
                 (folder_ / "store.db").string()}),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr(config + ": tables: "), HasSubstr("nowhere.csv")));
}

TEST_F(CommandLineTest, AnActiveSweepMeasuresWhatTheModelIsLeastSureOfAndResumesThat) {
  Write("tables.csv", kTables);
  const std::string config =
      Write("active.yaml",
            "kind: compute\nnum_samples: 4\ntables: tables.csv\nmax_tables: 1\n"
            "batch_sizes: [32, 64]\nactive: {candidates: 8}\n");
  const std::string store = (folder_ / "store.db").string();
  planner_.model.mutable_summary()->set_name("cpu");
  planner_.model.mutable_summary()->set_version(1);
  planner_.model.set_interval_coverage(0.9);
  int questions = 0;
  planner_.predict = [&](const v1::PredictComputeRequest& request,
                         v1::PredictComputeResponse* response) {
    for (const v1::ComputeSet& set : request.sets()) {
      ++questions;
      v1::ComputePrediction& prediction = *response->add_predictions();
      prediction.set_total_ms(1);
      prediction.mutable_total_interval()->set_high_ms(set.batch_size() == 64 ? 3 : 2);
    }
    return grpc::Status::OK;
  };
  const auto run = [&](const std::string& worker, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"sweep", "compute",       config, "--store",
                                          store,   "--format",      "json", "--workers",
                                          worker,  "--reconnect-s", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  const std::vector<std::string> newest = {"--planner", planner_.address(), "--model", "cpu"};
  FakeWorker dying({.dies_after_samples = 1});
  EXPECT_EQ(run(dying.address(), newest), 1);
  EXPECT_EQ(questions, 32);

  // The same version, and the planner is not asked again.
  FakeWorker worker({.dies_after_samples = 1});
  EXPECT_EQ(run(worker.address(), newest), 1);
  EXPECT_EQ(nlohmann::json::parse(out_)["done_before"], 1);
  EXPECT_EQ(questions, 32);

  // A newer one: nothing is chosen behind the operator's back.
  planner_.model.mutable_summary()->set_version(2);
  worker.Revive();
  EXPECT_EQ(run(worker.address(), newest), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr("chosen by cpu/1"), HasSubstr("lacks 2 of 4"),
                          HasSubstr("now has cpu/2"), HasSubstr("--model cpu/1")));
  EXPECT_EQ(run(worker.address(), {"--model", "cpu"}), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr("--planner is required"), HasSubstr("chosen by cpu/1")));
  FakeWorker healthy;
  EXPECT_EQ(run(healthy.address(), {"--model", "cpu/1"}), 0) << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["recorded"], 2);
  EXPECT_EQ(questions, 32) << "the list is in the store; no planner is needed";
  const auto opened = ProfileStore::Open(store, StoreMode::kReadOnly);
  ASSERT_THAT(opened, IsOk());
  const auto records = (*opened)->ReadRecords<ComputeRecord>();
  ASSERT_THAT(records, IsOk());
  for (const ComputeRecord& record : *records) {
    EXPECT_EQ(record.sample.batch_size, 64) << record.sample.sample_id;
  }

  // With the first sweep complete, the newer version chooses its own.
  EXPECT_EQ(run(healthy.address(), newest), 0) << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["done_before"], 0);
  EXPECT_EQ((*opened)->Statistics()->size(), 2u);
}

TEST_F(CommandLineTest, AnActiveSweepNeedsAModelAndOnlyThat) {
  Write("tables.csv", kTables);
  const std::string plain = "kind: compute\nnum_samples: 1\ntables: tables.csv\nmax_tables: 1\n";
  const std::string store = (folder_ / "store.db").string();
  const auto run = [&](const std::string& config, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"sweep", "compute",   config, "--store",
                                          store,   "--workers", "a:1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Run(arguments), 1);
    return err_;
  };
  const std::string active = Write("active.yaml", plain + "active: {candidates: 2}\n");
  EXPECT_THAT(run(active, {}), HasSubstr("--model is required"));
  EXPECT_THAT(run(Write("plain.yaml", plain), {"--model", "cpu"}), HasSubstr("`active` section"));
  EXPECT_FALSE(std::filesystem::exists(store));
  EXPECT_THAT(run(active, {"--model", "cpu"}), HasSubstr("--planner is required"));
}

}  // namespace
}  // namespace neuroshard
