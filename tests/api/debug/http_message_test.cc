#include "api/debug/http_message.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <string_view>
#include <vector>

namespace gump::internal {
namespace {

// Parse is the status with which a head is refused, or 0.
int Parse(std::string_view head, HttpRequest* r) {
  r->head = head;
  EXPECT_EQ(EndOfHead(head, 0), head.size());
  return ParseHead(r).status;
}

TEST(HttpMessageTest, ParseHeadFillsTheRequest) {
  HttpRequest r;
  EXPECT_EQ(Parse("GET /a%20b?x=1&y=%41+B&x=2 HTTP/1.1\r\nhOST: h\r\n"
                  "Accept: text/html, Application/JSON\r\n\r\n",
                  &r),
            0);
  EXPECT_EQ(r.method, "GET");
  EXPECT_EQ(r.path, "/a b");
  EXPECT_EQ(r.query, "x=1&y=%41+B&x=2");
  EXPECT_EQ(r.FormValue("x"), "1");
  EXPECT_EQ(r.FormValue("y"), "A B");
  EXPECT_EQ(r.FormValue("z"), "");
  EXPECT_TRUE(r.keep_alive);
  EXPECT_TRUE(r.accepts_json);
  EXPECT_FALSE(r.has_body);
}

TEST(HttpMessageTest, ParametersThatCannotBeDecodedAreLeftOut) {
  HttpRequest r;
  EXPECT_EQ(Parse("GET /?a=%zz&a=2&b;c=1&d&=e HTTP/1.0\r\n\r\n", &r), 0);
  EXPECT_EQ(r.FormValue("a"), "2");
  EXPECT_EQ(r.FormValue("c"), "");
  EXPECT_EQ(r.FormValue("d"), "");
  EXPECT_EQ(r.FormValue(""), "e");
  EXPECT_FALSE(r.keep_alive);
}

TEST(HttpMessageTest, ConnectionFieldDecidesWhetherTheConnectionStays) {
  HttpRequest close;
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nHost: x\r\nConnection: x, CLOSE\r\n\r\n",
                  &close),
            0);
  EXPECT_FALSE(close.keep_alive);
  HttpRequest keep;
  EXPECT_EQ(Parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", &keep),
            0);
  EXPECT_TRUE(keep.keep_alive);
}

TEST(HttpMessageTest, RequestSaysWhetherABodyFollows) {
  HttpRequest none, some, chunked;
  EXPECT_EQ(
      Parse("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", &none),
      0);
  EXPECT_FALSE(none.has_body);
  EXPECT_EQ(
      Parse("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", &some),
      0);
  EXPECT_TRUE(some.has_body);
  EXPECT_EQ(
      Parse("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
            &chunked),
      0);
  EXPECT_TRUE(chunked.has_body);
}

TEST(HttpMessageTest, ProxyFormAndOneEmptyLineAreAccepted) {
  HttpRequest proxy, empty;
  EXPECT_EQ(
      Parse("GET http://h:1/metrics?a HTTP/1.1\r\nHost: h\r\n\r\n", &proxy), 0);
  EXPECT_EQ(proxy.path, "/metrics");
  EXPECT_EQ(proxy.query, "a");
  EXPECT_EQ(Parse("\r\nGET /m HTTP/1.0\r\n\r\n", &empty), 0);
  EXPECT_EQ(empty.path, "/m");
}

TEST(HttpMessageTest, BadHeadsAreRefused) {
  struct Case {
    std::string_view head;
    int status;
  };
  const std::string nul =
      std::string("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", 28);
  for (const Case& c : std::vector<Case>{
           {"\r\n\r\n", 400},
           {"GET\r\n\r\n", 400},
           {"GET / \r\n\r\n", 400},
           {"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
           {"G@T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET /%4g HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET /\xc3 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
           {nul, 400},
           {"GET / HTTX/1.1\r\nHost: x\r\n\r\n", 400},
           {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
           {"GET / HTTP/1.1\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\n y\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\x01\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: "
            "18446744073709551616\r\n\r\n",
            400},
           {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
            "Content-Length: 1\r\n\r\n",
            400},
           {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
            "Transfer-Encoding: chunked\r\n\r\n",
            400},
           {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
           {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
            501},
           {"GET / HTTP/1.1\r\nHost: x\r\nExpect: money\r\n\r\n", 417}}) {
    HttpRequest r;
    EXPECT_EQ(Parse(c.head, &r), c.status) << c.head;
  }
}

TEST(HttpMessageTest, EndOfHeadNeedsCrLf) {
  EXPECT_EQ(EndOfHead("GET / HTTP/1.1\r\nHost: x\r\n", 0), 0U);
  EXPECT_EQ(EndOfHead("GET / HTTP/1.1\n\n", 0), std::string_view::npos);
  EXPECT_EQ(EndOfHead("\n", 0), std::string_view::npos);
  EXPECT_EQ(EndOfHead("a\r\n\r\nb", 0), 5U);
  EXPECT_EQ(EndOfHead("a\r\n\r\n", 4), 5U);
}

TEST(HttpMessageTest, NumbersAreParsedAsGoDoes) {
  EXPECT_EQ(ParseInt("12"), 12);
  EXPECT_EQ(ParseInt("+12"), 12);
  EXPECT_EQ(ParseInt("-12"), -12);
  EXPECT_EQ(ParseInt("9223372036854775807"), LLONG_MAX);
  for (const char* bad :
       {"", "+", "-", "+-1", " 1", "1 ", "1s", "0x1", "9223372036854775808"}) {
    EXPECT_EQ(ParseInt(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace gump::internal
