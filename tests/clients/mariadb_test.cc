// libmariadb, a client that waits in poll, and MariaDB.
#include <gtest/gtest.h>
#include <mysql.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gump/go.h"
#include "tests/clients/harness.h"
#include "tests/testing/held_port.h"

namespace gump::testing {
namespace {

GUMP_NEEDS_PROGRAMS("mariadb-install-db");

class MariadbTest : public Clients {
 protected:
  void SetUp() override {
    if (ProgramIn(kServer).empty()) Skip("mariadb-server is not installed");
    Clients::SetUp();
    EXPECT_EQ(mysql_library_init(0, nullptr, nullptr), 0);
  }

 public:
  static constexpr char kServer[] = "/usr/sbin/mariadbd";
};

// Mariadb is a server on a loopback port, with new tables of its own.
class Mariadb {
 public:
  Mariadb() : server_(Command(), "mysql") {
    server_.Says("ready for connections");
  }
  LocalServer& operator*() { return server_; }
  unsigned Port() const { return port_.Port(); }

 private:
  // Makes the tables, which the server's user must own. Two servers must not
  // share a folder for temporary tables.
  std::vector<std::string> Command() {
    EXPECT_EQ(chmod((dir_ / "").c_str(), 0777), 0);
    const std::string data = dir_ / "data";
    RunToEnd(
        AsUser("mysql",
               {"env", "TMPDIR=" + (dir_ / ""), "mariadb-install-db",
                "--no-defaults", "--datadir=" + data,
                "--auth-root-authentication-method=normal", "--skip-test-db",
                "--innodb-log-file-size=4M", "--innodb-flush-method=nosync"}));
    return {MariadbTest::kServer,
            "--no-defaults",
            "--datadir=" + data,
            "--tmpdir=" + (dir_ / ""),
            "--bind-address=127.0.0.1",
            absl::StrCat("--port=", port_.Port()),
            "--socket=" + (dir_ / "socket"),
            "--max-connections=1100",
            "--back-log=1100",
            "--skip-name-resolve",
            "--innodb-log-file-size=4M",
            "--innodb-flush-method=nosync",
            "--innodb-flush-log-at-trx-commit=0"};
  }

  HeldPort port_;
  TempDir dir_;
  LocalServer server_;
};

struct Close {
  void operator()(MYSQL* c) const { mysql_close(c); }
};
using Connection = std::unique_ptr<MYSQL, Close>;

Connection Made() { return Connection(mysql_init(nullptr)); }

Connection Connect(unsigned port) {
  Connection c = Made();
  EXPECT_NE(mysql_real_connect(c.get(), "127.0.0.1", "root", "", "mysql", port,
                               nullptr, 0),
            nullptr)
      << mysql_error(c.get());
  return c;
}

// Ask returns the rows of a statement, or its error.
std::string Ask(MYSQL* c, const std::string& sql) {
  if (mysql_real_query(c, sql.data(), sql.size()) != 0) {
    return absl::StrCat("error ", mysql_errno(c), " ", mysql_error(c));
  }
  MYSQL_RES* r = mysql_store_result(c);
  if (r == nullptr) return absl::StrCat(mysql_affected_rows(c), " rows");
  std::string text;
  while (MYSQL_ROW row = mysql_fetch_row(r)) {
    for (unsigned i = 0; i < mysql_num_fields(r); i++) {
      absl::StrAppend(&text, i > 0 ? "," : "", row[i] == nullptr ? "" : row[i]);
    }
    absl::StrAppend(&text, ";");
  }
  mysql_free_result(r);
  return text;
}

TEST_F(MariadbTest, Crowd) {
  Run([this] {
    Mariadb mariadb;
    std::string version;
    InHooked(1, [&](int) {
      version = mysql_get_server_info(Connect(mariadb.Port()).get());
    });
    About(absl::StrCat("libmariadb ", mysql_get_client_info()),
          absl::StrCat("MariaDB ", version.substr(0, version.find('-'))),
          "parks in `poll`");
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int i) {
      std::shared_ptr<MYSQL> c = Connect(mariadb.Port());
      return [c, i](int seconds) {
        EXPECT_EQ(
            Ask(c.get(), absl::StrCat("SELECT SLEEP(", seconds, "), ", i)),
            absl::StrCat("0,", i, ";"));
      };
    });
    ExpectFewThreads(f);
    Shows(f.Text());
  });
}

TEST_F(MariadbTest, Faults) {
  Run([this] {
    Mariadb mariadb;
    const RudeServer silent(RudeServer::Manner::kIsSilent);
    const HeldPort none;
    ExpectSame([&]() -> Transcript {
      Transcript t;
      const Connection c = Made();
      unsigned limit = 1;
      mysql_options(c.get(), MYSQL_OPT_CONNECT_TIMEOUT, &limit);
      const absl::Time begin = absl::Now();
      EXPECT_EQ(mysql_real_connect(c.get(), "127.0.0.1", "root", "", "mysql",
                                   silent.Port(), nullptr, 0),
                nullptr);
      EXPECT_GE(absl::Now() - begin, absl::Milliseconds(990));
      t.push_back(absl::StrCat(mysql_errno(c.get())));
      const Connection d = Made();
      EXPECT_EQ(mysql_real_connect(d.get(), "127.0.0.1", "root", "", "mysql",
                                   none.Port(), nullptr, 0),
                nullptr);
      t.push_back(absl::StrCat(mysql_errno(d.get())));
      const Connection e = Made();
      mysql_options(e.get(), MYSQL_OPT_READ_TIMEOUT, &limit);
      EXPECT_NE(mysql_real_connect(e.get(), "127.0.0.1", "root", "", "mysql",
                                   mariadb.Port(), nullptr, 0),
                nullptr);
      t.push_back(Ask(e.get(), "SELECT SLEEP(60)"));
      return t;
    });
    // Another connection ends the wait.
    ExpectSame([&]() -> Transcript {
      const Connection c = Connect(mariadb.Port());
      const unsigned long id = mysql_thread_id(c.get());
      std::atomic<bool> over = false;
      std::thread other([&] {
        const Connection killer = Connect(mariadb.Port());
        while (!over) Ask(killer.get(), absl::StrCat("KILL QUERY ", id));
        mysql_thread_end();
      });
      std::string text = Ask(c.get(), "SELECT SLEEP(60)");
      over = true;
      other.join();
      return {std::move(text)};
    });
    ExpectAllDie(*mariadb, kWaiters, [&](int) {
      std::shared_ptr<MYSQL> c = Connect(mariadb.Port());
      EXPECT_EQ(Ask(c.get(), "SELECT 1"), "1;");
      return [c] {
        return Ask(c.get(), "SELECT SLEEP(600)").starts_with("error");
      };
    });
    Shows("server killed, refused, two time limits, KILL QUERY");
  });
}

TEST_F(MariadbTest, Mixed) {
  Run([this] {
    Mariadb mariadb;
    constexpr int kGoroutines = 10;
    constexpr int kRequests = 10;
    std::string total;
    InHooked(1, [&](int) {
      const Connection c = Connect(mariadb.Port());
      EXPECT_EQ(Ask(c.get(), "CREATE DATABASE d"), "1 rows");
      EXPECT_EQ(Ask(c.get(), "CREATE TABLE d.t (i int, k int)"), "0 rows");
    });
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        const Connection c = Connect(mariadb.Port());
        for (int k = 0; k < kRequests; k++) {
          EXPECT_EQ(Ask(c.get(), absl::StrCat("INSERT INTO d.t VALUES (", i,
                                              ",", k, ")")),
                    "1 rows");
          EXPECT_EQ(
              Ask(c.get(), absl::StrCat("SELECT max(k) FROM d.t WHERE i=", i)),
              absl::StrCat(k, ";"));
        }
      });
    }
    InHooked(1, [&](int) {
      total = Ask(Connect(mariadb.Port()).get(), "SELECT count(*) FROM d.t");
    });
    EXPECT_EQ(total, absl::StrCat(kGoroutines * kRequests, ";"));
    Shows(absl::StrCat(2 * kGoroutines * kRequests, " requests"));
  });
}

TEST_F(MariadbTest, Differential) {
  Run([this] {
    Mariadb mariadb;
    const size_t calls = ExpectSame([&]() -> Transcript {
      const Connection c = Connect(mariadb.Port());
      Transcript t;
      for (const char* sql : {
               "CREATE DATABASE d",
               "CREATE TABLE d.t (a int PRIMARY KEY, b longtext)",
               "INSERT INTO d.t VALUES (1, 'one'), (2, NULL)",
               "SELECT * FROM d.t ORDER BY a",
               "INSERT INTO d.t VALUES (1, 'twice')",
               "SELECT nonsense",
               "INSERT INTO d.t SELECT 3, repeat('x', 3000000)",
               "SELECT length(b) FROM d.t WHERE a = 3",
               "SELECT SLEEP(0.01)",
           }) {
        t.push_back(Ask(c.get(), sql));
      }
      t.push_back(absl::StrCat(Ask(c.get(), "SELECT b FROM d.t").size()));
      t.push_back(Ask(c.get(), "DROP DATABASE d"));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
