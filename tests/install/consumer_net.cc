// gump/net.h: a stream, datagrams, a pipe and a lookup.
#include <gump/go.h>
#include <gump/net.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace gump;  // NOLINT: as api.md writes programs

namespace {

absl::Status Talk() {
  auto listener = net::Listen("tcp", "127.0.0.1:0");
  if (!listener.ok()) return listener.status();
  go([l = *listener] {
    auto conn = l.Accept();
    char buf[16];
    auto n = conn->Read(buf);
    conn->Write({buf, *n}).IgnoreError();
    conn->CloseWrite().IgnoreError();
  });
  auto conn = net::DialTimeout("tcp", listener->LocalAddr().String(),
                               absl::Seconds(10));
  if (!conn.ok()) return conn.status();
  conn->SetDeadline(absl::InfiniteFuture()).IgnoreError();
  if (auto n = conn->Write("ping"); !n.ok()) return n.status();
  char buf[16];
  auto n = conn->Read(buf);
  if (!n.ok()) return n.status();
  if (std::string_view(buf, *n) != "ping") return absl::DataLossError("echo");
  return listener->Close();
}

absl::Status TalkInPackets() {
  auto a = net::ListenPacket("udp", "127.0.0.1:0");
  auto b = net::ListenPacket("udp", "127.0.0.1:0");
  if (!a.ok() || !b.ok()) return absl::UnavailableError("udp");
  if (auto n = a->WriteTo("hi", b->LocalAddr()); !n.ok()) return n.status();
  char buf[16];
  auto packet = b->ReadFrom(buf);
  return packet.ok() && packet->n == 2 ? absl::OkStatus() : packet.status();
}

int Main() {
  auto ends = net::Pipe();
  const bool ok =
      ends.ok() && ends->first.Write("x").ok() &&
      net::ResolveAddr(context::Background(), "tcp", "[::1]:80")->Port() == 80;
  const absl::StatusOr<std::vector<std::string>> hosts =
      net::LookupHost(context::Background(), "127.0.0.1");
  return ok && hosts.ok() && Talk().ok() && TalkInPackets().ok() ? 0 : 1;
}

}  // namespace

int main() { return Run(Main); }
