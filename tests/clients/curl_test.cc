// libcurl, a client that waits in poll, with TLS by OpenSSL.
#include <curl/curl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("python3", "openssl");

class CurlClientTest : public Clients {
 protected:
  CurlClientTest() { EXPECT_EQ(curl_global_init(CURL_GLOBAL_ALL), 0); }
};

size_t Append(char* data, size_t size, size_t n, void* to) {
  static_cast<std::string*>(to)->append(data, size * n);
  return size * n;
}

// Client is an easy handle that trusts one certificate.
class Client {
 public:
  explicit Client(const std::string& certificate) : h_(curl_easy_init()) {
    Set(CURLOPT_CAINFO, certificate.c_str());
    Set(CURLOPT_CAPATH, nullptr);
    Set(CURLOPT_NOPROXY, "*");
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_WRITEFUNCTION, &Append);
    Set(CURLOPT_WRITEDATA, &body_);
  }
  ~Client() { curl_easy_cleanup(h_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  template <class Value>
  void Set(CURLoption option, Value value) {
    EXPECT_EQ(curl_easy_setopt(h_, option, value), CURLE_OK);
  }
  // Returns the status and the body, or the error.
  std::string Get(const std::string& url) {
    body_.clear();
    Set(CURLOPT_URL, url.c_str());
    const CURLcode e = curl_easy_perform(h_);
    if (e != CURLE_OK) return absl::StrCat("error ", static_cast<int>(e));
    long status = 0;
    curl_easy_getinfo(h_, CURLINFO_RESPONSE_CODE, &status);
    return absl::StrCat(status, " ", body_);
  }
  std::string Post(const std::string& url, const std::string& data) {
    Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(data.size()));
    Set(CURLOPT_POSTFIELDS, data.c_str());
    std::string answer = Get(url);
    Set(CURLOPT_HTTPGET, 1L);
    return answer;
  }

 private:
  CURL* const h_;
  std::string body_;
};

TEST_F(CurlClientTest, Crowd) {
  Run([this] {
    const curl_version_info_data* v = curl_version_info(CURLVERSION_NOW);
    About(absl::StrCat("libcurl ", v->version, " with ", v->ssl_version),
          "HTTPS (Python asyncio)", "parks in `poll`");
    const WebServer web(WebServer::Transport::kTls);
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int) {
      auto c = std::make_shared<Client>(web.Certificate());
      EXPECT_EQ(c->Get(web.Url("/bytes/3")), "200 xxx");
      return [c, &web](int seconds) {
        EXPECT_EQ(c->Get(web.Url(absl::StrCat("/wait/", seconds))),
                  absl::StrCat("200 ", seconds));
      };
    });
    ExpectFewThreads(f);
    Shows(f.Text());
  });
}

TEST_F(CurlClientTest, Faults) {
  Run([this] {
    WebServer web(WebServer::Transport::kTls);
    const WebServer stranger(WebServer::Transport::kTls);
    const RudeServer silent(RudeServer::Manner::kIsSilent);
    const RudeServer resets(RudeServer::Manner::kResets);
    const HeldPort none;
    ExpectSame([&]() -> Transcript {
      Transcript t;
      Client c(web.Certificate());
      t.push_back(c.Get(web.Url("/reset")));
      t.push_back(c.Get(web.Url("/half/1000000")));
      // An error of TLS stays with its connection.
      t.push_back(c.Get(stranger.Url("/bytes/1")));
      t.push_back(c.Get(web.Url("/bytes/1")));
      t.push_back(c.Get(absl::StrCat("https://127.0.0.1:", resets.Port())));
      t.push_back(c.Get(absl::StrCat("http://127.0.0.1:", none.Port())));
      c.Set(CURLOPT_TIMEOUT_MS, 50L);
      const absl::Time begin = absl::Now();
      t.push_back(c.Get(absl::StrCat("http://127.0.0.1:", silent.Port())));
      t.push_back(c.Get(web.Url("/wait/60")));
      EXPECT_GE(absl::Now() - begin, absl::Milliseconds(98));
      return t;
    });
    ExpectAllDie(*web, kWaiters, [&](int) {
      auto c = std::make_shared<Client>(web.Certificate());
      EXPECT_EQ(c->Get(web.Url("/bytes/1")), "200 x");
      return [c, &web] {
        return c->Get(web.Url("/wait/600")).starts_with("error");
      };
    });
    Shows(
        "server killed, reset, half a body, wrong certificate, refused, "
        "time limits");
  });
}

TEST_F(CurlClientTest, Mixed) {
  Run([this] {
    const WebServer web(WebServer::Transport::kTls);
    // All handles share sessions of TLS, under locks of the program.
    struct Shared {
      static void Lock(CURL*, curl_lock_data data, curl_lock_access, void* p) {
        static_cast<Shared*>(p)->mu[data].lock();
      }
      static void Unlock(CURL*, curl_lock_data data, void* p) {
        static_cast<Shared*>(p)->mu[data].unlock();
      }
      std::mutex mu[CURL_LOCK_DATA_LAST];
    } shared;
    CURLSH* share = curl_share_init();
    curl_share_setopt(share, CURLSHOPT_USERDATA, &shared);
    curl_share_setopt(share, CURLSHOPT_LOCKFUNC, &Shared::Lock);
    curl_share_setopt(share, CURLSHOPT_UNLOCKFUNC, &Shared::Unlock);
    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
    constexpr int kGoroutines = 20;
    constexpr int kRequests = 10;
    std::atomic<int> right = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        for (int k = 0; k < kRequests; k++) {
          Client c(web.Certificate());
          c.Set(CURLOPT_SHARE, share);
          const std::string text = absl::StrCat("request ", i, " ", k);
          const std::string answer = c.Post(web.Url("/"), text);
          EXPECT_EQ(answer, absl::StrCat("200 ", text));
          right += answer == absl::StrCat("200 ", text) ? 1 : 0;
        }
      });
    }
    EXPECT_EQ(right, kGoroutines * kRequests);
    EXPECT_EQ(curl_share_cleanup(share), CURLSHE_OK);
    Shows(absl::StrCat(kGoroutines * kRequests,
                       " connections, with a share handle"));
  });
}

TEST_F(CurlClientTest, Differential) {
  Run([this] {
    const WebServer web(WebServer::Transport::kTls);
    const size_t calls = ExpectSame([&]() -> Transcript {
      Transcript t;
      Client c(web.Certificate());
      t.push_back(c.Get(web.Url("/bytes/10")));
      t.push_back(c.Get(web.Url("/nowhere")));
      t.push_back(absl::StrCat(c.Get(web.Url("/bytes/3000000")).size()));
      t.push_back(absl::StrCat(
          c.Post(web.Url("/"), std::string(2'000'000, 'y')).size()));
      // A name, which a thread of libcurl looks up.
      t.push_back(
          c.Get(absl::StrCat("https://localhost:", web.Port(), "/bytes/5")));
      t.push_back(c.Get("https://name.invalid/"));
      t.push_back(c.Get("nonsense://x"));
      c.Set(CURLOPT_SSL_VERIFYPEER, 0L);
      t.push_back(c.Get(web.Url("/wait/0.01")));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
