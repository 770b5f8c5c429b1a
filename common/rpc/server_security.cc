#include "common/rpc/server_security.h"

#include <absl/strings/str_join.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <optional>
#include <span>
#include <utility>

#include "common/base/violations.h"

namespace neuroshard {
namespace {

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
  RoleCheck(ServerTls tls, RpcGate& gate) : tls_(std::move(tls)), gate_(gate) {}

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
  RpcGate& gate_;
};

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File Open(const std::string& path) { return {std::fopen(path.c_str(), "re"), &std::fclose}; }

// Empty: the file has one.
std::string CertificateFault(const std::string& path, X509** certificate) {
  const File file = Open(path);
  if (file == nullptr) return fmt::format("cannot read {}", path);
  *certificate = PEM_read_X509(file.get(), nullptr, nullptr, nullptr);
  return *certificate == nullptr ? fmt::format("{} has no certificate in PEM", path) : "";
}

}  // namespace

ServerTls ReadServerTls(ConfigReader& section) {
  ServerTls tls;
  section.Require({"certificate", "key", "client_ca", "roles"});
  section.Read("certificate", &tls.certificate);
  section.Read("key", &tls.key);
  section.Read("client_ca", &tls.client_ca);
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
  return absl::PermissionDeniedError(fmt::format(
      "{} needs the role {}, which the certificate of {} does not have here", path,
      absl::StrJoin(roles, " or "),
      names.empty() ? "the caller (without alternative names)" : absl::StrJoin(names, ", ")));
}

Status CheckTlsFiles(const ServerTls& tls) {
  Violations violations;
  const auto check = [&](const char* field, const std::string& fault) {
    if (!fault.empty()) violations.Add(std::string("tls.") + field, fault);
  };
  X509* certificate = nullptr;
  X509* authority = nullptr;
  check("certificate", CertificateFault(tls.certificate, &certificate));
  check("client_ca", CertificateFault(tls.client_ca, &authority));
  EVP_PKEY* key = nullptr;
  if (const File file = Open(tls.key); file == nullptr) {
    check("key", fmt::format("cannot read {}", tls.key));
  } else {
    // An empty pass phrase, as gRPC has: nobody is asked for one.
    key = PEM_read_PrivateKey(file.get(), nullptr, nullptr, const_cast<char*>(""));
    if (key == nullptr) {
      check("key", fmt::format("{} has no private key in PEM without a pass phrase", tls.key));
    }
  }
  if (certificate != nullptr && key != nullptr && X509_check_private_key(certificate, key) != 1) {
    check("key", fmt::format("{} is not the key of {}", tls.key, tls.certificate));
  }
  X509_free(certificate);
  X509_free(authority);
  EVP_PKEY_free(key);
  return violations.ToStatus();
}

StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(const ServerTls& tls,
                                                                      RpcGate& gate) {
  NS_RETURN_IF_ERROR(CheckTlsFiles(tls));
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          tls.key, tls.certificate, tls.client_ca, static_cast<unsigned>(tls.reload_s)));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<RoleCheck>(tls, gate));
  return credentials;
}

}  // namespace neuroshard
