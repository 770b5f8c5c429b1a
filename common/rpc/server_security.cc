#include "common/rpc/server_security.h"

#include <absl/strings/str_join.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <optional>
#include <utility>

namespace neuroshard {
namespace {

// How often gRPC looks at files in memory, which change no more often than `reload_s` says.
constexpr unsigned kMemoryFilesPollS = 1;

constexpr char kAlternativeName[] = "x509_subject_alternative_name";

// A method and who may call it. Every role of a longer list is named on its own: a table of what is
// allowed, not of what is left out.
struct MethodRule {
  std::string_view path;  // ends in / for all methods of a service
  std::vector<CallerRole> roles;
  bool everybody = false;
};

const std::vector<MethodRule>& MethodRules() {
  using enum CallerRole;
  static const auto& rules = *new std::vector<MethodRule>{
      {"/grpc.health.v1.Health/", {}, true},
      {"/neuroshard.v1.PlannerService/ListCostModels", {kRead, kPlan, kAdmin}},
      {"/neuroshard.v1.PlannerService/GetCostModel", {kRead, kPlan, kAdmin}},
      {"/neuroshard.v1.PlannerService/ListDevices", {kRead, kPlan, kAdmin}},
      {"/neuroshard.v1.PlannerService/ServeModel", {kAdmin}},
      {"/neuroshard.v1.PlannerService/", {kPlan, kAdmin}},
      {"/neuroshard.v1.WorkerService/GetWorkerInfo", {kRead, kProfile, kAdmin}},
      {"/neuroshard.v1.WorkerService/", {kProfile, kAdmin}},
  };
  return rules;
}

// The first rule that fits; nobody else than admins may call what no rule is for.
const MethodRule& RuleFor(std::string_view path) {
  static const MethodRule& otherwise = *new MethodRule{"", {CallerRole::kAdmin}};
  for (const MethodRule& rule : MethodRules()) {
    const bool fits = rule.path.ends_with('/') ? path.starts_with(rule.path) : path == rule.path;
    if (fits) return rule;
  }
  return otherwise;
}

bool HasRole(const ServerTls& tls, CallerRole role, const std::vector<std::string>& names) {
  const auto patterns = tls.roles.find(role);
  if (patterns == tls.roles.end()) return false;
  for (const std::string& pattern : patterns->second) {
    for (const std::string& name : names) {
      if (MatchesPattern(pattern, name)) return true;
    }
  }
  return false;
}

// Called by gRPC for every call, after the handshake and before the handler.
class RoleCheck final : public grpc::AuthMetadataProcessor {
 public:
  // Keeps `files`, since it lives as long as the credentials do.
  RoleCheck(ServerTls tls, std::unique_ptr<CheckedTlsFiles> files, RpcGate& gate)
      : tls_(std::move(tls)), files_(std::move(files)), gate_(gate) {}

  // Nothing here waits.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    std::vector<std::string> names;
    for (const grpc::string_ref& name : context->FindPropertyValues(kAlternativeName)) {
      names.emplace_back(name.data(), name.size());
    }
    const std::string_view method =
        path == metadata.end() ? "" : std::string_view(path->second.data(), path->second.size());
    const Status allowed = CheckRole(tls_, method, names);
    if (allowed.ok()) return grpc::Status::OK;
    const CallIdentity identity = IdentifyCall(metadata, context, "");
    gate_.RefusedOutside(identity, method, allowed);
    // There is no metadata in this answer.
    return {grpc::StatusCode::PERMISSION_DENIED,
            fmt::format("{} (request id {})", Message(allowed), identity.request_id)};
  }

 private:
  const ServerTls tls_;
  const std::unique_ptr<CheckedTlsFiles> files_;
  RpcGate& gate_;
};

}  // namespace

ServerTls ReadServerTls(ConfigReader& section) {
  ServerTls tls;
  section.Require({"certificate", "key", "client_ca", "roles"});
  section.Read("certificate", &tls.files.certificate);
  section.Read("key", &tls.files.key);
  section.Read("client_ca", &tls.files.client_ca);
  section.Read("reload_s", &tls.reload_s, {1, 86'400});
  ConfigReader roles = section.Section("roles");
  for (const auto& [role, word] : kWords<CallerRole>) roles.Read(word, &tls.roles[role]);
  return tls;
}

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  // Greedy; after a mismatch the last star takes one character more. O(pattern * text).
  std::size_t p = 0, t = 0;
  std::optional<std::size_t> star;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star.has_value()) {
      p = *star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Status CheckRole(const ServerTls& tls, std::string_view path,
                 const std::vector<std::string>& names) {
  const MethodRule& rule = RuleFor(path);
  if (rule.everybody) return absl::OkStatus();
  std::vector<std::string> roles;
  for (const CallerRole role : rule.roles) {
    if (HasRole(tls, role, names)) return absl::OkStatus();
    roles.emplace_back(ToText(role));
  }
  return PermissionDenied(
      "{} needs the role {}, which the certificate of {} does not have here", path,
      absl::StrJoin(roles, " or "),
      names.empty() ? "the caller (without alternative names)" : absl::StrJoin(names, ", "));
}

StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(const ServerTls& tls,
                                                                      RpcGate& gate) {
  NS_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsMaterial(tls.files));
  NS_ASSIGN_OR_RETURN(auto files,
                      CheckedTlsFiles::Start(tls.files, std::move(material), tls.reload_s, gate));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files->identity_path(), files->identity_path(), files->client_ca_path(),
          kMemoryFilesPollS));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<RoleCheck>(tls, std::move(files), gate));
  return credentials;
}

}  // namespace neuroshard
