// OpenSSL on sockets that block: SSL_connect, SSL_write and SSL_read. OpenSSL
// keeps errors in a queue of the thread, and goroutines of a home share it.
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gump/go.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("python3", "openssl");

class OpensslTest : public Clients {};

// Authority is the certificate that clients trust.
class Authority {
 public:
  explicit Authority(const std::string& certificate)
      : ctx_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_verify(ctx_, SSL_VERIFY_PEER, nullptr);
    EXPECT_EQ(SSL_CTX_load_verify_locations(ctx_, certificate.c_str(), nullptr),
              1);
  }
  ~Authority() { SSL_CTX_free(ctx_); }
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;
  SSL_CTX* get() const { return ctx_; }

 private:
  SSL_CTX* const ctx_;
};

// FirstError returns the oldest error of the thread, and forgets all.
std::string FirstError(const char* call) {
  const int err = errno;
  const unsigned long e = ERR_get_error();
  ERR_clear_error();
  if (e == 0)
    return absl::StrCat("no error of OpenSSL in ", call, ", errno ", err);
  const char* reason = ERR_reason_error_string(e);
  return reason == nullptr ? absl::StrCat("error ", e) : reason;
}

// Client is a connection with TLS.
class Client {
 public:
  Client(const Authority& authority, int port)
      : bio_(BIO_new_ssl_connect(authority.get())) {
    BIO_set_conn_hostname(bio_, absl::StrCat("127.0.0.1:", port).c_str());
    connected_ = BIO_do_handshake(bio_) == 1;
    if (!connected_) error_ = FirstError("BIO_do_handshake");
  }
  ~Client() { BIO_free_all(bio_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  // Get returns the body of a page, or the error.
  std::string Get(const std::string& path) {
    if (!connected_) return error_;
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\n\r\n");
    if (BIO_write(bio_, request.data(), static_cast<int>(request.size())) <=
        0) {
      return FirstError("BIO_write");
    }
    const std::string end = "\r\n\r\n";
    const std::string length = "Content-Length: ";
    std::string got;
    for (;;) {
      if (const size_t at = got.find(end); at != got.npos) {
        const size_t size = std::stoul(got.substr(got.find(length) + 16));
        if (got.size() == at + end.size() + size) {
          return got.substr(at + end.size());
        }
      }
      char buf[16384];
      const int n = BIO_read(bio_, buf, sizeof(buf));
      if (n <= 0) return FirstError("BIO_read");
      got.append(buf, static_cast<size_t>(n));
    }
  }

 private:
  BIO* const bio_;
  bool connected_ = false;
  std::string error_;
};

TEST_F(OpensslTest, Crowd) {
  Run([this] {
    About(OpenSSL_version(OPENSSL_VERSION), "HTTPS (Python asyncio)",
          "parks in `read`");
    const WebServer web(WebServer::Transport::kTls);
    const Authority authority(web.Certificate());
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int) {
      auto c = std::make_shared<Client>(authority, web.Port());
      EXPECT_EQ(c->Get("/bytes/3"), "xxx");
      return [c](int seconds) {
        EXPECT_EQ(c->Get(absl::StrCat("/wait/", seconds)),
                  absl::StrCat(seconds));
      };
    });
    ExpectFewThreads(f);
    Shows(f.Text());
  });
}

// Each tenth connection has an error, and no other one sees it.
TEST_F(OpensslTest, Faults) {
  Run([this] {
    WebServer web(WebServer::Transport::kTls);
    const WebServer stranger(WebServer::Transport::kTls);
    const Authority authority(web.Certificate());
    const RudeServer resets(RudeServer::Manner::kResets);
    constexpr int kConnections = 1000;
    std::atomic<int> right = 0;
    std::atomic<int> wrong = 0;
    InHooked(50, [&](int i) {
      for (int k = i; k < kConnections; k += 50) {
        if (k / 50 % 10 == 0) {
          const bool here = i % 2 == 0;
          Client c(authority, here ? stranger.Port() : resets.Port());
          EXPECT_FALSE(c.connected());
          wrong++;
        } else {
          Client c(authority, web.Port());
          const std::string answer = c.Get("/wait/0.001");
          EXPECT_EQ(answer, "0.001");
          right += answer == "0.001" ? 1 : 0;
        }
      }
    });
    EXPECT_EQ(wrong, kConnections / 10);
    EXPECT_EQ(right, kConnections - kConnections / 10);
    ExpectAllDie(*web, kWaiters, [&](int) {
      auto c = std::make_shared<Client>(authority, web.Port());
      EXPECT_EQ(c->Get("/bytes/1"), "x");
      return [c] { return c->Get("/wait/600") != "600"; };
    });
    Shows(
        "server killed, reset and wrong certificate among 900 good "
        "connections");
  });
}

TEST_F(OpensslTest, Mixed) {
  Run([this] {
    const WebServer web(WebServer::Transport::kTls);
    const Authority authority(web.Certificate());
    constexpr int kGoroutines = 20;
    constexpr int kRequests = 10;
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        Client c(authority, web.Port());
        for (int k = 0; k < kRequests; k++) {
          const size_t size = static_cast<size_t>(1000 * k + i);
          const std::string got = c.Get(absl::StrCat("/bytes/", size));
          right += got == std::string(size, 'x') ? 1 : 0;
        }
      });
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    Shows(absl::StrCat(kGoroutines * kRequests, " requests"));
  });
}

TEST_F(OpensslTest, Differential) {
  Run([this] {
    const WebServer web(WebServer::Transport::kTls);
    const WebServer stranger(WebServer::Transport::kTls);
    const Authority authority(web.Certificate());
    const HeldPort none;
    const size_t calls = ExpectSame([&]() -> Transcript {
      Transcript t;
      Client c(authority, web.Port());
      t.push_back(c.Get("/bytes/10"));
      t.push_back(absl::StrCat(c.Get("/bytes/3000000").size()));
      t.push_back(c.Get("/nowhere"));
      t.push_back(Client(authority, stranger.Port()).Get("/bytes/1"));
      t.push_back(Client(authority, none.Port()).Get("/bytes/1"));
      t.push_back(c.Get("/half/100000"));
      t.push_back(FirstError("none"));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
