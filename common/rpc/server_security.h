// Who may call what: mutual TLS and roles.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/vocabulary.h"
#include "common/rpc/rpc_gate.h"
#include "common/rpc/tls_files.h"
#include "common/text/config_reader.h"

namespace neuroshard {

// What a caller may be; the identities of one are listed in the configuration.
//   read      which models, which devices a planner knows or a worker has
//   plan      all of a planner, read included
//   profile   all of a worker, read included
//   admin     everything, reflection included
// Health is for every caller with a certificate.
enum class CallerRole { kRead, kPlan, kProfile, kAdmin };

NS_WORDS(CallerRole, {kRead, "read"}, {kPlan, "plan"}, {kProfile, "profile"}, {kAdmin, "admin"});

// A server's certificate and what it asks of its callers. Files are in PEM.
struct ServerTls {
  // Callers without a certificate of `client_ca` are refused.
  ServerTlsFiles files;
  // How often the files are read again, so that certificates rotate without a restart. What cannot
  // be used, such as a key that is not the certificate's yet, is not taken (CheckedTlsFiles).
  // Connections that are open stay.
  int reload_s = 60;
  // For each role, patterns of a caller's subject alternative names (URI, DNS, IP, e-mail, all in
  // one list); `*` is any run of characters, `/` and `.` too. Nobody has a role without patterns,
  // and a caller without such names has none. Not read again.
  std::map<CallerRole, std::vector<std::string>> roles;
};

// Keys certificate, key, client_ca, reload_s and roles of a section `tls`.
ServerTls ReadServerTls(ConfigReader& section);

// Whether `*` in `pattern` can stand for runs of characters so that it becomes `text`.
bool MatchesPattern(std::string_view pattern, std::string_view text);

// OK when one of `names` has a role that may call `path`, "/package.Service/Method"; else
// PERMISSION_DENIED, which says what role the call needs. A method that nobody listed here is
// admin's.
Status CheckRole(const ServerTls& tls, std::string_view path,
                 const std::vector<std::string>& names);

// Credentials for TLS 1.2 and later with a verified certificate of the caller; every call is
// checked by CheckRole before its handler runs, and one that is refused is told to `gate`, which
// must outlive the credentials. Errors as ReadTlsMaterial has them: with files that cannot be used
// gRPC itself would start, and fail every handshake.
StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(const ServerTls& tls,
                                                                      RpcGate& gate);

}  // namespace neuroshard
