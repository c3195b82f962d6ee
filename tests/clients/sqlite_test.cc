// SQLite, which has no server: it waits for locks of its file, by sleeping and
// trying again. A connection of the serialized kind holds a mutex of its own
// meanwhile, so its goroutine keeps the thread. With SQLITE_OPEN_NOMUTEX the
// goroutine parks.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gump/chan.h"
#include "gump/exec.h"
#include "gump/go.h"
#include "tests/clients/harness.h"

namespace gump::testing {
namespace {

class SqliteTest : public Clients {};

struct Close {
  void operator()(sqlite3* db) const {
    EXPECT_EQ(sqlite3_close(db), SQLITE_OK);
  }
};
using Database = std::unique_ptr<sqlite3, Close>;

Database Open(const std::string& path, int kind) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | kind,
                            nullptr),
            SQLITE_OK);
  sqlite3_busy_timeout(db, 60'000);
  return Database(db);
}

int AppendRow(void* to, int n, char** values, char**) {
  auto* text = static_cast<std::string*>(to);
  for (int i = 0; i < n; i++) {
    absl::StrAppend(text, values[i] == nullptr ? "NULL" : values[i], ";");
  }
  return 0;
}

// Ask returns the rows of statements, or their error.
std::string Ask(sqlite3* db, const std::string& sql) {
  std::string text;
  const int e = sqlite3_exec(db, sql.c_str(), &AppendRow, &text, nullptr);
  if (e == SQLITE_OK) return text;
  return absl::StrCat("error ", e, " ", sqlite3_errmsg(db));
}

TEST_F(SqliteTest, Crowd) {
  Run([this] {
    About(absl::StrCat("SQLite ", sqlite3_libversion()), "none",
          "parks in `usleep` with `SQLITE_OPEN_NOMUTEX`; otherwise keeps the "
          "thread");
    TempDir dir;
    const std::string path = dir / "db";
    const Database writer = Open(path, SQLITE_OPEN_NOMUTEX);
    EXPECT_EQ(Ask(writer.get(), "PRAGMA journal_mode = WAL"), "wal;");
    EXPECT_EQ(Ask(writer.get(), "CREATE TABLE t (i)"), "");
    EXPECT_EQ(Ask(writer.get(), "BEGIN IMMEDIATE"), "");
    // Each waiter tries again all the time, so a thousand would be too many.
    constexpr int kGoroutines = 100;
    CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int) {
      std::shared_ptr<sqlite3> db = Open(path, SQLITE_OPEN_NOMUTEX);
      return [db](int seconds) {
        sqlite3_busy_timeout(db.get(), 1000 * seconds);
        EXPECT_EQ(Ask(db.get(), "BEGIN IMMEDIATE"),
                  "error 5 database is locked");
      };
    });
    EXPECT_EQ(Ask(writer.get(), "COMMIT"), "");
    Shows(absl::StrCat(f.Text(), " of ", kGoroutines, " goroutines"));
    f.cpu = 0;  // each of them tries again ten times a second
    ExpectFewThreads(f);
  });
}

// A child writes and is killed. The rows that it has committed are there.
TEST_F(SqliteTest, Faults) {
  Run([this] {
    TempDir dir;
    const std::string path = dir / "db";
    int begun[2];
    ASSERT_EQ(pipe(begun), 0);
    EXPECT_EQ(Ask(Open(path, SQLITE_OPEN_FULLMUTEX).get(),
                  "PRAGMA journal_mode = WAL; CREATE TABLE t (i)"),
              "wal;");
    const pid_t child = fork();
    if (child == 0) {
      const Database db = Open(path, SQLITE_OPEN_NOMUTEX);
      for (int i = 0;; i++) {
        const std::string said =
            Ask(db.get(), absl::StrCat("INSERT INTO t VALUES (", i, ")"));
        if (write(begun[1], said.empty() ? "+" : "-", 1) != 1) _exit(1);
      }
    }
    constexpr int kRows = 20;
    char rows[kRows];
    size_t n = 0;
    while (n < kRows) {
      n += static_cast<size_t>(read(begun[0], rows + n, kRows - n));
    }
    EXPECT_EQ(kill(child, SIGKILL), 0);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    close(begun[0]);
    close(begun[1]);
    EXPECT_EQ(std::string(rows, kRows), std::string(kRows, '+'));
    InHooked(1, [&](int) {
      const Database db = Open(path, SQLITE_OPEN_NOMUTEX);
      EXPECT_EQ(Ask(db.get(), "PRAGMA integrity_check"), "ok;");
      EXPECT_EQ(Ask(db.get(), "SELECT count(*) >= 20 FROM t"), "1;");
    });
    // A statement that another goroutine interrupts.
    ExpectSame([&]() -> Transcript {
      const Database db = Open(path, SQLITE_OPEN_FULLMUTEX);
      std::atomic<bool> over = false;
      std::thread other([&] {
        while (!over) sqlite3_interrupt(db.get());
      });
      std::string said =
          Ask(db.get(),
              "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + "
              "1 FROM n) SELECT max(i) FROM n");
      over = true;
      other.join();
      return {std::move(said)};
    });
    Shows("writer killed, interrupt, busy");
  });
}

TEST_F(SqliteTest, Mixed) {
  Run([this] {
    for (const int kind : {SQLITE_OPEN_FULLMUTEX, SQLITE_OPEN_NOMUTEX}) {
      TempDir dir;
      const std::string path = dir / "db";
      EXPECT_EQ(Ask(Open(path, kind).get(),
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; "
                    "CREATE TABLE t (i)"),
                "wal;");
      constexpr int kGoroutines = 20;
      constexpr int kRequests = 5;
      {
        const Unrest unrest;
        InHooked(kGoroutines, [&](int i) {
          const Database db = Open(path, kind);
          EXPECT_EQ(Ask(db.get(), "PRAGMA synchronous = OFF"), "");
          for (int k = 0; k < kRequests; k++) {
            EXPECT_EQ(
                Ask(db.get(), absl::StrCat("INSERT INTO t VALUES (", i, ")")),
                "");
          }
        });
      }
      EXPECT_EQ(Ask(Open(path, kind).get(), "SELECT count(*), sum(i) FROM t"),
                "100;950;");
    }
    Shows("200 transactions of connections of both kinds");
  });
}

TEST_F(SqliteTest, Differential) {
  Run([this] {
    const size_t calls = ExpectSame([]() -> Transcript {
      Transcript t;
      for (const int kind : {SQLITE_OPEN_FULLMUTEX, SQLITE_OPEN_NOMUTEX}) {
        TempDir dir;
        const Database db = Open(dir / "db", kind);
        for (const char* sql : {
                 "CREATE TABLE t (i PRIMARY KEY, b)",
                 "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
                 "INSERT INTO t VALUES (1, 'twice')",
                 "SELECT * FROM t",
                 "SELECT nonsense",
                 "INSERT INTO t SELECT 3, zeroblob(5000000)",
                 "SELECT length(b) FROM t",
                 "VACUUM",
                 "PRAGMA integrity_check",
             }) {
          t.push_back(Ask(db.get(), sql));
        }
      }
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
