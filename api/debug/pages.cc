// The answers are those of Go 1.27: net/http/pprof/pprof.go,
// expvar/expvar.go, and ServeMux and Error of net/http.
#include "api/debug/pages.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/cat.h"
#include "api/debug/goroutines.h"
#include "api/debug/json.h"
#include "api/debug/trace_page.h"
#include "api/os/file.h"
#include "api/pprof/profile.h"
#include "api/pprof/proto.h"
#include "gump/metrics.h"
#include "gump/pprof.h"
#include "gump/runtime.h"

namespace gump::internal {

namespace {

constexpr std::string_view kJsonField =
    "Content-Type: application/json; charset=utf-8\r\n";

// Atoi returns the number that Go's Atoi returns for s, also where that returns
// an error too.
int Atoi(std::string_view s) {
  const std::optional<long long> n = ParseInt(s);
  if (n.has_value()) {
    return static_cast<int>(std::clamp<long long>(*n, INT_MIN, INT_MAX));
  }
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  const bool digits = !s.empty() && s.find_first_not_of("0123456789") == s.npos;
  return !digits ? 0 : negative ? INT_MIN : INT_MAX;
}

// ---- /debug/pprof/

HttpResponse DeltaProfile(std::string_view name, const HttpRequest& r,
                          std::string_view seconds, PageClient& client) {
  const std::optional<long long> n = ParseInt(seconds);
  if (!n.has_value() || *n <= 0) {
    return PprofError(
        400, "invalid value for \"seconds\" - must be a positive integer");
  }
  if (Atoi(r.FormValue("debug")) != 0) {
    return PprofError(400, "seconds and debug params are incompatible");
  }
  if (!client.Reserve()) return TooManyPages();
  const absl::StatusOr<ProfileDelta> delta = ProfileDelta::Begin(name);
  if (!delta.ok()) return PprofError(500, "failed to collect profile");
  if (!client.Wait(absl::Seconds(*n))) {
    return PprofError(500, "context canceled");
  }
  absl::StatusOr<std::string> text = delta->End();
  if (!text.ok()) return PprofError(500, "failed to collect profile");
  return {
      200,
      Cat(kNosniffField, kBinaryField, AttachmentField(Cat(name, "-delta"))),
      *std::move(text)};
}

// GoroutineDump serves the text of runtime::Stack(true).
HttpResponse GoroutineDump() {
  HttpResponse answer{200, Cat(kNosniffField, kPlainTextField)};
  answer.stream = [](PageClient& client) {
    std::string part(32 << 10, '\0');
    const auto send = [](void* to, const char* text, size_t n) {
      return static_cast<PageClient*>(to)->Write({text, n});
    };
    return rt::stackStream(part.data(), part.size(), send, &client);
  };
  return answer;
}

// NamedProfile serves a profile of WriteProfile.
HttpResponse NamedProfile(std::string_view name, const HttpRequest& r,
                          PageClient& client) {
  const std::vector<std::string_view> names = ProfileNames();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return PprofError(404, "Unknown profile");
  }
  const std::string seconds = r.FormValue("seconds");
  if (!seconds.empty()) return DeltaProfile(name, r, seconds, client);
  const int debug = Atoi(r.FormValue("debug"));
  if (name == "goroutine" && debug >= 2) return GoroutineDump();
  absl::StatusOr<std::string> text = ProfileText(name, debug);
  if (!text.ok()) return PprofError(500, Cat(text.status().message()));
  std::string fields =
      debug != 0 ? Cat(kNosniffField, kPlainTextField)
                 : Cat(kNosniffField, kBinaryField, AttachmentField(name));
  return {200, std::move(fields), *std::move(text)};
}

std::string ReadAll(int fd) {
  std::string all;
  char part[64 << 10];
  ssize_t n;
  while ((n = pread(fd, part, sizeof(part), static_cast<off_t>(all.size()))) >
         0) {
    all.append(part, static_cast<size_t>(n));
  }
  return all;
}

// CpuProfile serves the CPU profile. As in Go, a client that leaves gets the
// samples so far: it may have closed only its half of the connection.
HttpResponse CpuProfile(const HttpRequest& r, PageClient& client) {
  if (!client.Reserve()) return TooManyPages();
  const long long seconds = ParseInt(r.FormValue("seconds")).value_or(0);
  const long fd = NewFd([] {
    return static_cast<long>(memfd_create("gump profile", MFD_CLOEXEC));
  });
  if (fd < 0) return PprofError(500, "Could not enable CPU profiling: no file");
  const OwnedFd file(static_cast<int>(fd));
  const absl::Status s = pprof::StartCPUProfile(file.get());
  if (!s.ok()) {
    return PprofError(500,
                      Cat("Could not enable CPU profiling: ", s.message()));
  }
  absl::Cleanup stop = [] { pprof::StopCPUProfile(); };
  (void)client.Wait(absl::Seconds(seconds > 0 ? seconds : 30));
  std::move(stop).Invoke();
  return {200, Cat(kNosniffField, kBinaryField, AttachmentField("profile")),
          ReadAll(file.get())};
}

// Arguments returns the command line, with a NUL between two arguments.
std::string Arguments() {
  std::string text;
  FILE* f = std::fopen("/proc/self/cmdline", "re");
  if (f == nullptr) return text;
  char part[4096];
  size_t n;
  while ((n = std::fread(part, 1, sizeof(part), f)) > 0) text.append(part, n);
  std::fclose(f);
  if (text.ends_with('\0')) text.pop_back();
  return text;
}

HttpResponse Cmdline(const HttpRequest&, PageClient&) {
  return {200, Cat(kNosniffField, kPlainTextField), Arguments()};
}

// ParseAddress reads a number as Go's ParseUint does with base 0, but without
// underscores. Returns 0 if s is not a number.
uint64_t ParseAddress(std::string_view s) {
  int base = 10;
  const std::string_view prefix = s.substr(0, 2);
  if (prefix == "0x" || prefix == "0X") base = 16;
  if (prefix == "0b" || prefix == "0B") base = 2;
  if (prefix == "0o" || prefix == "0O") base = 8;
  if (base != 10) {
    s.remove_prefix(2);
  } else if (s.starts_with('0')) {
    base = 8;
  }
  uint64_t n = 0;
  const char* end = s.data() + s.size();
  const auto [stop, error] = std::from_chars(s.data(), end, n, base);
  return error == std::errc() && stop == end ? n : 0;
}

HttpResponse Symbol(const HttpRequest& r, PageClient&) {
  std::string body = "num_symbols: 1\n";
  for (std::string_view rest = r.query;;) {
    const size_t plus = std::min(rest.find('+'), rest.size());
    const uint64_t pc = ParseAddress(rest.substr(0, plus));
    const std::string name = pc == 0 ? "?" : FunctionName(pc);
    if (name != "?") {
      char hex[2 + 16 + 1];
      std::snprintf(hex, sizeof(hex), "%#" PRIx64, pc);
      Append(&body, hex, " ", name, "\n");
    }
    if (plus == rest.size()) break;
    rest.remove_prefix(plus + 1);
  }
  return {200, Cat(kNosniffField, kPlainTextField), std::move(body)};
}

// OtherPage is a page of /debug/pprof/ that is not a profile of WriteProfile.
struct OtherPage {
  std::string_view name;
  HttpResponse (*serve)(const HttpRequest& r, PageClient& client);
};
constexpr OtherPage kOtherPages[] = {
    {"cmdline", Cmdline},
    {"profile", CpuProfile},
    {"symbol", Symbol},
    {"trace", ExecutionTrace},
};

constexpr std::pair<std::string_view, std::string_view> kDescriptions[] = {
    {"block",
     "Stack traces that led to blocking on synchronization primitives"},
    {"cmdline", "The command line invocation of the current program"},
    {"goroutine",
     "Stack traces of all current goroutines. Use debug=2 as a query parameter "
     "to export in the same format as an unrecovered panic."},
    {"goroutineleak",
     "Stack traces of all leaked goroutines. Use debug=2 as a query parameter "
     "to export in the same format as an unrecovered panic."},
    {"mutex", "Stack traces of holders of contended mutexes"},
    {"profile",
     "CPU profile. You can specify the duration in the seconds GET parameter. "
     "After you get the profile file, use the go tool pprof command to "
     "investigate the profile."},
    {"symbol",
     "Maps given program counters to function names. Counters can be specified "
     "in a GET raw query, multiple counters are separated by '+'."},
    {"threadcreate", "The threads of the library, each at its first function"},
    {"trace",
     "A trace of execution of the current program. You can specify the "
     "duration in the seconds GET parameter. After you get the trace file, use "
     "the go tool trace command to investigate the trace."},
};

std::string_view DescriptionOf(std::string_view name) {
  for (const auto& [of, text] : kDescriptions) {
    if (of == name) return text;
  }
  return "";
}

HttpResponse Index() {
  std::vector<std::pair<std::string_view, int64_t>> pages;
  for (const std::string_view name : ProfileNames()) {
    pages.emplace_back(name, ProfileCount(name));
  }
  for (const OtherPage& page : kOtherPages) pages.emplace_back(page.name, 0);
  std::sort(pages.begin(), pages.end());
  std::string body = R"(<html>
<head>
<title>/debug/pprof/</title>
<style>
.profile-name{
	display:inline-block;
	width:6rem;
}
</style>
</head>
<body>
/debug/pprof/
<br>
<p>Set debug=1 as a query parameter to export in legacy text format</p>
<br>
Types of profiles available:
<table>
<thead><td>Count</td><td>Profile</td></thead>
)";
  for (const auto& [name, count] : pages) {
    Append(&body, "<tr><td>", count, "</td><td><a href='", name, "?debug=1'>",
           name, "</a></td></tr>\n");
  }
  body += R"(</table>
<a href="goroutine?debug=2">full goroutine stack dump</a>
<br>
<p>
Profile Descriptions:
<ul>
)";
  for (const auto& [name, count] : pages) {
    Append(&body, "<li><div class=profile-name>", name, ": </div> ",
           DescriptionOf(name), "</li>\n");
  }
  body += R"(</ul>
</p>
</body>
</html>)";
  return {200, Cat(kNosniffField, "Content-Type: text/html; charset=utf-8\r\n"),
          std::move(body)};
}

HttpResponse Profiles(std::string_view name, const HttpRequest& r,
                      PageClient& client) {
  if (name.empty()) return Index();
  for (const OtherPage& page : kOtherPages) {
    if (page.name == name) return page.serve(r, client);
  }
  return NamedProfile(name, r, client);
}

// ---- /debug/vars

std::string CmdlineJson() {
  std::string out = "[";
  const std::string all = Arguments();
  std::string_view rest = all;
  for (const char* comma = "";; comma = ",") {
    const size_t nul = std::min(rest.find('\0'), rest.size());
    out += comma;
    AppendJsonString(&out, rest.substr(0, nul));
    if (nul == rest.size()) break;
    rest.remove_prefix(nul + 1);
  }
  return out += "]";
}

struct Counter {
  std::string_view name;
  int64_t value;
};

std::string CountersJson(const std::vector<Counter>& counters) {
  std::string out;
  for (const Counter& c : counters) {
    Append(&out, out.empty() ? "{" : ",", "\"", c.name, "\":", c.value);
  }
  return out += "}";
}

// MemstatsJson has the members of Go's runtime.MemStats that mean something
// here: those of malloc, if it is glibc's, and the number of cycles.
std::string MemstatsJson(const debug::SchedStats& s) {
  const struct mallinfo2 m = mallinfo2();
  const auto n = [](auto v) { return static_cast<int64_t>(v); };
  std::vector<Counter> counters;
  if (m.arena != 0 || m.hblkhd != 0) {
    counters = {{"Alloc", n(m.uordblks + m.hblkhd)},
                {"HeapAlloc", n(m.uordblks + m.hblkhd)},
                {"HeapSys", n(m.arena + m.hblkhd)},
                {"HeapIdle", n(m.fordblks)},
                {"HeapInuse", n(m.uordblks + m.hblkhd)}};
  }
  counters.push_back({"NumGC", n(s.reclaim_cycles)});
  counters.push_back({"NumForcedGC", n(s.forced_reclaim_cycles)});
  return CountersJson(counters);
}

std::string SchedStatsJson(const debug::SchedStats& s) {
  const auto n = [](uint64_t v) { return static_cast<int64_t>(v); };
  return CountersJson({{"procs", s.procs},
                       {"idle_procs", s.idle_procs},
                       {"threads", s.threads},
                       {"idle_threads", s.idle_threads},
                       {"spinning_threads", s.spinning_threads},
                       {"goroutines", s.goroutines},
                       {"runnable", s.runnable},
                       {"preempted_in_place", s.preempted_in_place},
                       {"presumed_blocked", s.presumed_blocked},
                       {"preemptions", n(s.preemptions)},
                       {"presumptions", n(s.presumptions)},
                       {"world_stops", n(s.world_stops)},
                       {"world_stop_ns", n(s.world_stop_ns)},
                       {"reclaim_cycles", n(s.reclaim_cycles)},
                       {"forced_reclaim_cycles", n(s.forced_reclaim_cycles)},
                       {"reclaim_worker_slabs", n(s.reclaim_worker_slabs)},
                       {"stack_bytes_reclaimed", n(s.stack_bytes_reclaimed)},
                       {"threads_retired", n(s.threads_retired)},
                       {"stalls", n(s.stalls)},
                       {"stale_events", n(s.stale_events)},
                       {"nodes", s.nodes},
                       {"node_runs", n(s.node_runs)},
                       {"node_moves", n(s.node_moves)},
                       {"node_steals", n(s.node_steals)},
                       {"node_steals_across", n(s.node_steals_across)}});
}

// Setting returns a tuning variable as the runtime reads it.
std::string_view Setting(const char* gump_name, const char* go_name) {
  const char* v = std::getenv(gump_name);
  if (v == nullptr) v = std::getenv(go_name);
  return v == nullptr ? "" : v;
}

HttpResponse Vars() {
  const debug::SchedStats s = debug::ReadSchedStats();
  std::string godebug;
  AppendJsonString(&godebug, Setting("GUMP_DEBUG", "GODEBUG"));
  const std::pair<std::string_view, std::string> vars[] = {
      {"cmdline", CmdlineJson()},
      {"godebug", godebug},
      {"goroutines", Cat(runtime::NumGoroutine())},
      {"memstats", MemstatsJson(s)},
      {"schedstats", SchedStatsJson(s)},
  };
  std::string body = "{\n";
  std::string_view comma;
  for (const auto& [name, value] : vars) {
    Append(&body, std::exchange(comma, ",\n"), "\"", name, "\": ", value);
  }
  body += "\n}\n";
  return {200, std::string(kJsonField), std::move(body)};
}

// ---- The other pages

HttpResponse Metrics() {
  return {200, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
          metrics::Prometheus()};
}

HttpResponse ListGoroutines(const HttpRequest& r) {
  std::string format = r.FormValue("format");
  if (format.empty()) {
    format = r.accepts_json ? "json" : "text";
  }
  const bool json = format == "json";
  if (!json && format != "text") {
    return HttpError(400,
                     "invalid value for \"format\" - must be json or text");
  }
  const GoroutineQuery query{.state = r.FormValue("state"),
                             .group = r.FormValue("group")};
  HttpResponse answer{200,
                      Cat(kNosniffField, json ? kJsonField : kPlainTextField)};
  answer.stream = [all = GoroutineList(query), json](PageClient& client) {
    const auto write = [&](std::string_view part) {
      return client.Write(part);
    };
    return json ? all.WriteJson(write) : all.WriteText(write);
  };
  return answer;
}

// Route returns the answer for a path that exists, and nullopt for others. If
// the method is not allowed, `serve` is false, and Route only tells whether the
// path exists.
std::optional<HttpResponse> Route(const HttpRequest& r, bool serve,
                                  PageClient& client) {
  constexpr std::string_view kProfiles = "/debug/pprof/";
  const std::string_view path = r.path;
  if (path.starts_with(kProfiles)) {
    if (!serve) return HttpResponse{};
    return Profiles(path.substr(kProfiles.size()), r, client);
  }
  if (path == "/debug/vars") return serve ? Vars() : HttpResponse{};
  if (path == "/metrics") return serve ? Metrics() : HttpResponse{};
  if (path == "/debug/goroutines") {
    return serve ? ListGoroutines(r) : HttpResponse{};
  }
  return std::nullopt;
}

HttpResponse Redirect(std::string_view to, const HttpRequest& r) {
  std::string target(to);
  if (!r.query.empty()) Append(&target, "?", r.query);
  std::string quoted;
  for (const char c : target) {
    switch (c) {
      case '&':
        quoted += "&amp;";
        break;
      case '<':
        quoted += "&lt;";
        break;
      case '>':
        quoted += "&gt;";
        break;
      case '"':
        quoted += "&#34;";
        break;
      case '\'':
        quoted += "&#39;";
        break;
      default:
        quoted += c;
    }
  }
  return {307,
          Cat("Location: ", target,
              "\r\nContent-Type: text/html; charset=utf-8\r\n"),
          Cat("<a href=\"", quoted, "\">", ReasonOf(307), "</a>.\n\n")};
}

}  // namespace

HttpResponse AnswerRequest(const HttpRequest& r, PageClient& client) {
  const bool get = r.method == "GET" || r.method == "HEAD";
  if (r.path == "/debug/pprof" && get) return Redirect("/debug/pprof/", r);
  std::optional<HttpResponse> answer = Route(r, get, client);
  if (!answer.has_value()) return HttpError(404, "404 page not found");
  if (get) return *std::move(answer);
  HttpResponse refused = HttpError(405, ReasonOf(405));
  refused.fields += "Allow: GET, HEAD\r\n";
  return refused;
}

HttpResponse AnswerRefusal(const Refusal& refusal) {
  return {refusal.status, std::string(kPlainTextField),
          Cat(refusal.status, " ", ReasonOf(refusal.status),
              refusal.text.empty() ? "" : ": ", refusal.text)};
}

}  // namespace gump::internal
