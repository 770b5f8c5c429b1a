#include "common/rpc/tls_files.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "common/base/clock.h"
#include "common/base/violations.h"

namespace neuroshard {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Memory = std::unique_ptr<BIO, decltype(&BIO_free)>;

std::int64_t NowUnixS() { return UnixMillisecondsNow() / 1000; }

std::int64_t UnixS(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

std::optional<std::string> ContentsOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;  // a directory opens, and throws where it is read
  if (!file || std::filesystem::is_directory(path, error)) return std::nullopt;
  std::string text(std::istreambuf_iterator<char>(file), {});
  // gRPC would not see what begins in the line of a byte order mark.
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

Memory Over(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

// The certificates of a file, up to the first that cannot be read.
struct PemCertificates {
  std::vector<Certificate> all;
  std::string fault;  // of the file; empty: there is none
};

PemCertificates CertificatesIn(const std::string& text) {
  const Memory memory = Over(text);
  PemCertificates read;
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) {
    read.all.emplace_back(next, &X509_free);
  }
  // A last line that begins as one of PEM's and ends nothing is the beginning of another one.
  const std::size_t last = text.rfind('\n') + 1;
  const bool begins = text.compare(last, 1, "-") == 0 && text.compare(last, 8, "-----END") != 0;
  const bool is_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE && !begins;
  if (read.all.empty()) {
    read.fault = "has no certificate in PEM";
  } else if (!is_end) {
    read.fault = fmt::format("has {} certificate{} and one that cannot be read: is it cut?",
                             read.all.size(), read.all.size() == 1 ? "" : "s");
  }
  ERR_clear_error();
  return read;
}

// Null: there is none without a pass phrase. An empty one is offered, as gRPC does: nobody is asked.
Key KeyIn(const std::string& text) {
  const Memory memory = Over(text);
  return {PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, const_cast<char*>("")),
          &EVP_PKEY_free};
}

// Why `certificate` is not to be used now; empty: it is.
std::string TimeFault(const X509& certificate, std::int64_t now_unix_s) {
  const std::int64_t begins = UnixS(X509_get0_notBefore(&certificate));
  const std::int64_t ends = UnixS(X509_get0_notAfter(&certificate));
  if (ends < now_unix_s) return "expired at " + DateOf(ends);
  return begins > now_unix_s ? "is not valid before " + DateOf(begins) : "";
}

// Why the other side of a connection would refuse the chain whatever it trusts; empty: it would
// not.
std::string ChainFault(const std::vector<Certificate>& chain, TlsSide side,
                       std::int64_t now_unix_s) {
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::string fault = TimeFault(*chain[i], now_unix_s);
    if (!fault.empty())
      return i == 0 ? fault : fmt::format("has certificate {}, which {}", i + 1, fault);
  }
  const bool is_server = side == TlsSide::kServer;
  const int purpose = is_server ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT;
  if (X509_check_purpose(chain[0].get(), purpose, 0) != 1) {
    return fmt::format("is not for {} (its extended key usage)", is_server ? "servers" : "clients");
  }
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls(SSL_CTX_new(TLS_method()),
                                                              &SSL_CTX_free);
  std::string fault;
  if (tls == nullptr || SSL_CTX_use_certificate(tls.get(), chain[0].get()) != 1) {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    fault = fmt::format("is not taken for TLS: {}", reason == nullptr ? "no reason" : reason);
  }
  ERR_clear_error();
  return fault;
}

}  // namespace

std::string DateOf(std::int64_t unix_s) { return fmt::format("{:%FT%TZ}", fmt::gmtime(unix_s)); }

ShownCertificate LookAtCertificate(const std::string& address, const TlsMaterial& caller) {
  constexpr int kConnectTimeoutS = 5;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  // A connection that the server has closed already would end the process with SIGPIPE.
  SSL_CTX_set_quiet_shutdown(context.get(), 1);
  for (const Certificate& one : CertificatesIn(caller.client_ca).all) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), one.get());
  }
  const std::vector<Certificate> chain = CertificatesIn(caller.identity).all;
  const Key key = KeyIn(caller.identity);
  if (!chain.empty() && key != nullptr) {
    SSL_CTX_use_cert_and_key(context.get(), chain[0].get(), key.get(), nullptr, /*override=*/1);
  }
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> connection(BIO_new_ssl_connect(context.get()),
                                                                 &BIO_free_all);
  BIO_set_conn_hostname(connection.get(), address.c_str());
  SSL* tls = nullptr;
  BIO_get_ssl(connection.get(), &tls);
  // We may be refused, but not before the server has shown its certificate.
  BIO_do_connect_retry(connection.get(), kConnectTimeoutS, 0);
  ERR_clear_error();
  const X509* const shown = SSL_get0_peer_certificate(tls);
  if (shown == nullptr) return {};
  ShownCertificate certificate{.ends_unix_s = UnixS(X509_get0_notAfter(shown)),
                               .fault = TimeFault(*shown, NowUnixS())};
  const long verified = SSL_get_verify_result(tls);  // NOLINT(google-runtime-int): OpenSSL's
  if (certificate.fault.empty() && verified != X509_V_OK) {
    certificate.fault = fmt::format("is not from an authority that the caller trusts ({})",
                                    X509_verify_cert_error_string(verified));
  }
  return certificate;
}

StatusOr<TlsMaterial> ReadTlsMaterial(const ServerTlsFiles& files, TlsSide side) {
  const bool is_server = side == TlsSide::kServer;
  const char* const certificate_field = is_server ? "tls.certificate" : "--tls-cert";
  const char* const key_field = is_server ? "tls.key" : "--tls-key";
  const char* const ca_field = is_server ? "tls.client_ca" : "--tls-ca";
  Violations violations;
  const std::int64_t now_unix_s = NowUnixS();
  const auto read = [&](const char* field, const std::string& path) {
    std::optional<std::string> text = ContentsOf(path);
    if (!text.has_value()) violations.Add(field, "cannot read {}", path);
    return text;
  };
  const auto certificate = read(certificate_field, files.certificate);
  const auto key_text = read(key_field, files.key);
  const auto client_ca = read(ca_field, files.client_ca);

  const auto [chain, unread] = CertificatesIn(certificate.value_or(""));
  const auto [authorities, unread_authority] = CertificatesIn(client_ca.value_or(""));
  const std::string fault_of_chain = unread.empty() ? ChainFault(chain, side, now_unix_s) : unread;
  if (certificate.has_value() && !fault_of_chain.empty()) {
    violations.Add(certificate_field, "{} {}", files.certificate, fault_of_chain);
  }
  const bool one_is_valid = std::ranges::any_of(
      authorities, [&](const Certificate& one) { return TimeFault(*one, now_unix_s).empty(); });
  if (client_ca.has_value() && !(one_is_valid && unread_authority.empty())) {
    violations.Add(
        ca_field, "{} {}", files.client_ca,
        unread_authority.empty() ? TimeFault(*authorities[0], now_unix_s) : unread_authority);
  }
  if (key_text.has_value()) {
    const Key key = KeyIn(*key_text);
    if (key == nullptr) {
      violations.Add(key_field, "{} has no private key in PEM without a pass phrase", files.key);
    } else if (!chain.empty() && X509_check_private_key(chain[0].get(), key.get()) != 1) {
      violations.Add(key_field, "{} is not the key of {}", files.key, files.certificate);
    }
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());

  TlsMaterial material{.identity = *certificate + '\n' + *key_text,
                       .client_ca = *client_ca,
                       .certificate_ends_unix_s = UnixS(X509_get0_notAfter(chain[0].get()))};
  for (const Certificate& one : authorities) {
    material.client_ca_ends_unix_s =
        std::max(material.client_ca_ends_unix_s, UnixS(X509_get0_notAfter(one.get())));
  }
  return material;
}

StatusOr<std::unique_ptr<CheckedTlsFiles>> CheckedTlsFiles::Start(ServerTlsFiles files,
                                                                  TlsMaterial material,
                                                                  int reload_s, RpcGate& gate) {
  std::unique_ptr<CheckedTlsFiles> checked(
      new CheckedTlsFiles(std::move(files), std::move(material), gate));
  NS_RETURN_IF_ERROR(checked->Write());
  checked->Report();
  checked->reloading_.emplace(std::chrono::seconds(reload_s),
                              [self = checked.get()] { self->Reload(); });
  return checked;
}

std::string CheckedTlsFiles::PathOf(const FileDescriptor& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

// A new file takes the descriptor of the old one, so that a reader has either.
Status CheckedTlsFiles::Write() {
  for (const auto& [text, fd] : {std::pair(&material_.identity, &identity_fd_),
                                 std::pair(&material_.client_ca, &client_ca_fd_)}) {
    FileDescriptor written(memfd_create("neuroshard-tls", MFD_CLOEXEC));
    if (!written.open() || !WriteAll(written.get(), *text)) {
      return Internal("no memory for the files of TLS: {}", std::strerror(errno));
    }
    if (fd->open()) {
      dup3(written.get(), fd->get(), O_CLOEXEC);
    } else {
      *fd = std::move(written);
    }
  }
  return absl::OkStatus();
}

void CheckedTlsFiles::Report() const {
  gate_.metrics().SetTlsEnds(static_cast<double>(material_.certificate_ends_unix_s),
                             static_cast<double>(material_.client_ca_ends_unix_s));
}

void CheckedTlsFiles::Reload() {
  StatusOr<TlsMaterial> read = ReadTlsMaterial(files_);
  Status status = read.status();
  // Also where the same files are back: the log has to say that the failure is over.
  if (status.ok() && (*read != material_ || !failure_.empty())) {
    std::swap(material_, *read);
    status = Write();
    if (status.ok()) {
      Report();
      gate_.logger().Info("tls_reloaded",
                          {{"certificate_ends", DateOf(material_.certificate_ends_unix_s)},
                           {"client_ca_ends", DateOf(material_.client_ca_ends_unix_s)}});
    } else {
      std::swap(material_, *read);
    }
  }
  const std::string failure = status.ok() ? "" : Message(status);
  if (!failure.empty()) gate_.metrics().TlsReloadFailed();
  if (!failure.empty() && failure != failure_) {
    gate_.logger().Error(
        "tls_reload_failed",
        {{"reason", failure}, {"in_use_until", DateOf(material_.certificate_ends_unix_s)}});
  }
  failure_ = failure;
}

}  // namespace neuroshard
