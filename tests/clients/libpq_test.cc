// libpq, a client that waits in poll, and PostgreSQL.
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "gump/runtime.h"
#include "gump/sync/waitgroup.h"
#include "tests/clients/harness.h"
#include "tests/testing/held_port.h"
#include "tests/testing/known_thread.h"

namespace gump::testing {
namespace {

class LibpqTest : public Clients {
 protected:
  void SetUp() override {
    if (ProgramIn(kPrograms + std::string("initdb")).empty()) {
      Skip("postgresql is not installed");
    }
    Clients::SetUp();
  }

 public:
  static constexpr char kPrograms[] = "/usr/lib/postgresql/*/bin/";
  static constexpr char kUser[] = "postgres";
};

// Postgres is a server on a loopback port, with a new cluster of its own.
class Postgres {
 public:
  Postgres() : server_(Command(), LibpqTest::kUser) {
    server_.Says("database system is ready to accept connections");
  }
  LocalServer& operator*() { return server_; }
  std::string Info() const {
    return absl::StrCat("host=127.0.0.1 port=", port_.Port(),
                        " user=postgres dbname=postgres");
  }

 private:
  // Makes the cluster, which the server's user must own.
  std::vector<std::string> Command() {
    const std::string bin = LibpqTest::kPrograms;
    EXPECT_EQ(chmod((dir_ / "").c_str(), 0777), 0);
    const std::string data = dir_ / "data";
    RunToEnd(AsUser(LibpqTest::kUser,
                    {ProgramIn(bin + "initdb"), "-D", data, "-N", "-U",
                     "postgres", "-A", "trust", "--no-instructions"}));
    return {ProgramIn(bin + "postgres"),
            "-D",
            data,
            "-p",
            absl::StrCat(port_.Port()),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "max_connections=1100",
            "-c",
            "shared_buffers=16MB",
            "-c",
            "fsync=off"};
  }

  HeldPort port_;
  TempDir dir_;
  LocalServer server_;
};

struct Finish {
  void operator()(PGconn* c) const { PQfinish(c); }
};
using Connection = std::unique_ptr<PGconn, Finish>;

Connection Connect(const std::string& info) {
  Connection c(PQconnectdb(info.c_str()));
  EXPECT_EQ(PQstatus(c.get()), CONNECTION_OK) << PQerrorMessage(c.get());
  return c;
}

// Ask returns the rows of a query, or its error.
std::string Ask(PGconn* c, const std::string& sql) {
  PGresult* r = PQexec(c, sql.c_str());
  std::string text;
  if (PQresultStatus(r) == PGRES_TUPLES_OK) {
    for (int row = 0; row < PQntuples(r); row++) {
      for (int column = 0; column < PQnfields(r); column++) {
        absl::StrAppend(&text, column > 0 ? "," : "",
                        PQgetvalue(r, row, column));
      }
      absl::StrAppend(&text, ";");
    }
  } else if (PQresultStatus(r) == PGRES_COMMAND_OK) {
    text = PQcmdStatus(r);
  } else {
    text = absl::StrCat(PQresStatus(PQresultStatus(r)), " ",
                        PQresultErrorMessage(r));
    if (PQstatus(c) == CONNECTION_BAD) text += "broken";
  }
  PQclear(r);
  return text;
}

TEST_F(LibpqTest, Crowd) {
  Run([this] {
    Postgres postgres;
    std::string version;
    InHooked(1, [&](int) {
      version =
          PQparameterStatus(Connect(postgres.Info()).get(), "server_version");
    });
    const int v = PQlibVersion();
    About(absl::StrCat("libpq ", v / 10000, ".", v % 10000),
          absl::StrCat("PostgreSQL ", version.substr(0, version.find(' '))),
          "parks in `poll`");
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int i) {
      std::shared_ptr<PGconn> c = Connect(postgres.Info());
      return [c, i](int seconds) {
        EXPECT_EQ(Ask(c.get(), absl::StrCat("SELECT ", i, " FROM pg_sleep(",
                                            seconds, ")")),
                  absl::StrCat(i, ";"));
      };
    });
    ExpectFewThreads(f);
    Shows(f.Text());
  });
}

TEST_F(LibpqTest, Faults) {
  Run([this] {
    const auto postgres = std::make_unique<Postgres>();
    // A time limit of the server, and one of the client.
    ExpectSame([&]() -> Transcript {
      const Connection c = Connect(postgres->Info());
      Ask(c.get(), "SET statement_timeout = 50");
      return {Ask(c.get(), "SELECT pg_sleep(60)")};
    });
    const RudeServer silent(RudeServer::Manner::kIsSilent);
    ExpectSame([&]() -> Transcript {
      const absl::Time begin = absl::Now();
      const Connection c(PQconnectdb(
          absl::StrCat("host=127.0.0.1 connect_timeout=2 port=", silent.Port())
              .c_str()));
      // libpq counts whole seconds.
      EXPECT_GE(absl::Now() - begin, absl::Seconds(1));
      return {absl::StrCat(PQstatus(c.get()), " ", PQerrorMessage(c.get()))};
    });
    const RudeServer resets(RudeServer::Manner::kResets);
    ExpectSame([&]() -> Transcript {
      const Connection c(PQconnectdb(
          absl::StrCat("host=127.0.0.1 port=", resets.Port()).c_str()));
      return {absl::StrCat(PQstatus(c.get()), " ", PQerrorMessage(c.get()))};
    });
    // PQcancel makes a connection of its own. It is asked until it has ended
    // the query, because one that comes before the query does nothing.
    ExpectSame([&]() -> Transcript {
      const Connection c = Connect(postgres->Info());
      PGcancel* cancel = PQgetCancel(c.get());
      std::atomic<bool> over = false;
      std::thread other([&] {
        char error[256];
        while (!over) PQcancel(cancel, error, sizeof(error));
      });
      std::string text = Ask(c.get(), "SELECT pg_sleep(60)");
      over = true;
      other.join();
      PQfreeCancel(cancel);
      return {std::move(text)};
    });
    ExpectAllDie(**postgres, kWaiters, [&](int) {
      std::shared_ptr<PGconn> c = Connect(postgres->Info());
      EXPECT_EQ(Ask(c.get(), "SELECT 1"), "1;");
      return [c] {
        return Ask(c.get(), "SELECT pg_sleep(600)").ends_with("broken");
      };
    });
    Shows("server killed, reset, two time limits, PQcancel");
  });
}

TEST_F(LibpqTest, Mixed) {
  Run([this] {
    Postgres postgres;
    constexpr int kGoroutines = 10;
    constexpr int kRequests = 10;
    std::string total;
    InHooked(1, [&](int) {
      EXPECT_EQ(
          Ask(Connect(postgres.Info()).get(), "CREATE TABLE t (i int, k int)"),
          "CREATE TABLE");
    });
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        const Connection c = Connect(postgres.Info());
        for (int k = 0; k < kRequests; k++) {
          EXPECT_EQ(Ask(c.get(),
                        absl::StrCat("INSERT INTO t VALUES (", i, ",", k, ")")),
                    "INSERT 0 1");
          EXPECT_EQ(
              Ask(c.get(), absl::StrCat("SELECT max(k) FROM t WHERE i=", i)),
              absl::StrCat(k, ";"));
        }
      });
    }
    InHooked(1, [&](int) {
      total = Ask(Connect(postgres.Info()).get(), "SELECT count(*) FROM t");
    });
    EXPECT_EQ(total, absl::StrCat(kGoroutines * kRequests, ";"));
    Shows(absl::StrCat(2 * kGoroutines * kRequests, " requests"));
  });
}

// libpq keeps the address of errno across recv and writes through it. If
// another goroutine of the home, or another thread, saw that write, it would
// read an error that is not its own.
TEST_F(LibpqTest, ErrnoOfOtherGoroutinesStaysTheirs) {
  Run([this] {
    Postgres postgres;
    std::atomic<bool> over = false;
    std::atomic<int> wrong = 0;
    sync::WaitGroup canary;
    std::thread plain = KnownThread([&] {
      errno = ENOLINK;
      while (!over) wrong += errno == ENOLINK ? 0 : 1;
    });
    canary.Go([&] {
      while (!over) {
        errno = ENOLINK;
        for (int i = 0; i < 1000; i++) wrong += errno == ENOLINK ? 0 : 1;
        runtime::Gosched();
      }
    });
    InHooked(10, [&](int) {
      const Connection c = Connect(postgres.Info());
      for (int k = 0; k < 10; k++) EXPECT_EQ(Ask(c.get(), "SELECT 1"), "1;");
    });
    over = true;
    canary.Wait();
    blocking([&] { plain.join(); });
    EXPECT_EQ(wrong, 0);
    Shows("errno of other threads and goroutines");
  });
}

TEST_F(LibpqTest, Differential) {
  Run([this] {
    Postgres postgres;
    const size_t calls = ExpectSame([&]() -> Transcript {
      const Connection c = Connect(postgres.Info());
      Transcript t;
      for (const char* sql : {
               "DROP TABLE IF EXISTS d",
               "CREATE TABLE d (a int PRIMARY KEY, b text)",
               "INSERT INTO d SELECT i, 'text ' || i FROM "
               "generate_series(1, 100) i",
               "SELECT * FROM d ORDER BY a",
               "INSERT INTO d VALUES (1, 'twice')",
               "SELECT nonsense",
               "SELECT 1/0",
               "SELECT sum(length(repeat('x', 1000000))) FROM d WHERE a < 9",
               "SELECT length(string_agg(repeat(b, 10000), '')) FROM d",
               "SELECT pg_sleep(0.01)",
           }) {
        t.push_back(Ask(c.get(), sql));
      }
      // COPY in both directions.
      PGresult* r = PQexec(c.get(), "COPY d FROM STDIN");
      t.push_back(PQresStatus(PQresultStatus(r)));
      PQclear(r);
      const std::string much(1 << 20, 'y');
      for (int i = 1000; i < 1010; i++) {
        const std::string line = absl::StrCat(i, "\t", much, "\n");
        EXPECT_EQ(
            PQputCopyData(c.get(), line.data(), static_cast<int>(line.size())),
            1);
      }
      EXPECT_EQ(PQputCopyEnd(c.get(), nullptr), 1);
      r = PQgetResult(c.get());
      t.push_back(absl::StrCat("COPY ", PQcmdTuples(r)));
      PQclear(r);
      EXPECT_EQ(PQgetResult(c.get()), nullptr);
      r = PQexec(c.get(), "COPY d TO STDOUT");
      t.push_back(PQresStatus(PQresultStatus(r)));
      PQclear(r);
      size_t bytes = 0;
      char* row = nullptr;
      for (int n; (n = PQgetCopyData(c.get(), &row, 0)) > 0;) {
        bytes += static_cast<size_t>(n);
        PQfreemem(row);
      }
      t.push_back(absl::StrCat(bytes, " bytes"));
      r = PQgetResult(c.get());
      t.push_back(PQresStatus(PQresultStatus(r)));
      PQclear(r);
      EXPECT_EQ(PQgetResult(c.get()), nullptr);
      // A message from another connection.
      t.push_back(Ask(c.get(), "LISTEN news"));
      t.push_back(Ask(Connect(postgres.Info()).get(), "NOTIFY news, 'hello'"));
      t.push_back(Ask(c.get(), "SELECT 1"));
      PGnotify* news = PQnotifies(c.get());
      t.push_back(news == nullptr ? "none" : news->extra);
      PQfreemem(news);
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
