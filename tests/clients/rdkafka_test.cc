// librdkafka, whose callers wait in cnd_timedwait for its own threads. The
// brokers are the mock brokers of librdkafka.
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <atomic>
#include <set>
#include <string>
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

class RdkafkaTest : public Clients {};

// A client makes a main thread, one for each broker, and one for the mock
// cluster. There are two or three clients.
constexpr int kOwnThreads = 24;

using Settings = std::vector<std::pair<std::string, std::string>>;

class Client {
 public:
  Client(rd_kafka_type_t type, const Settings& settings) {
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    char error[512];
    for (const auto& [name, value] : settings) {
      EXPECT_EQ(rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error,
                                  sizeof(error)),
                RD_KAFKA_CONF_OK)
          << error;
    }
    rk_ = rd_kafka_new(type, conf, error, sizeof(error));
    EXPECT_NE(rk_, nullptr) << error;
  }
  ~Client() { rd_kafka_destroy(rk_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  rd_kafka_t* get() const { return rk_; }

 private:
  rd_kafka_t* rk_ = nullptr;
};

// Cluster is three brokers on loopback, in the process.
class Cluster {
 public:
  Cluster()
      : owner_(RD_KAFKA_PRODUCER, {{"test.mock.num.brokers", "3"}}),
        cluster_(rd_kafka_handle_mock_cluster(owner_.get())) {}
  std::string Brokers() const {
    return rd_kafka_mock_cluster_bootstraps(cluster_);
  }

 private:
  const Client owner_;
  rd_kafka_mock_cluster_t* const cluster_;
};

class Producer : public Client {
 public:
  explicit Producer(const std::string& brokers)
      : Client(RD_KAFKA_PRODUCER,
               {{"bootstrap.servers", brokers}, {"linger.ms", "1"}}) {}
  std::string Produce(const std::string& topic, const std::string& text) const {
    return rd_kafka_err2str(rd_kafka_producev(
        get(), RD_KAFKA_V_TOPIC(topic.c_str()),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_VALUE(const_cast<char*>(text.data()), text.size()),
        RD_KAFKA_V_END));
  }
  std::string Flush(int ms) const {
    return rd_kafka_err2str(rd_kafka_flush(get(), ms));
  }
};

class Consumer : public Client {
 public:
  Consumer(const std::string& brokers, const std::string& topic)
      : Client(RD_KAFKA_CONSUMER, {{"bootstrap.servers", brokers},
                                   {"group.id", "g"},
                                   {"auto.offset.reset", "earliest"}}) {
    rd_kafka_poll_set_consumer(get());
    rd_kafka_topic_partition_list_t* topics =
        rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic.c_str(),
                                      RD_KAFKA_PARTITION_UA);
    EXPECT_EQ(rd_kafka_subscribe(get(), topics), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_topic_partition_list_destroy(topics);
  }
  ~Consumer() { rd_kafka_consumer_close(get()); }
  // Poll returns a message, an error, or "" if there is none.
  std::string Poll(int ms) const {
    rd_kafka_message_t* m = rd_kafka_consumer_poll(get(), ms);
    if (m == nullptr) return "";
    std::string text =
        m->err != RD_KAFKA_RESP_ERR_NO_ERROR
            ? absl::StrCat("error ", rd_kafka_err2name(m->err))
            : std::string(static_cast<char*>(m->payload), m->len);
    rd_kafka_message_destroy(m);
    return text;
  }
};

TEST_F(RdkafkaTest, Crowd) {
  Run([this] {
    About(absl::StrCat("librdkafka ", rd_kafka_version_str()),
          "its mock brokers", "parks in `cnd_timedwait`");
    const Cluster cluster;
    const Producer p(cluster.Brokers());
    EXPECT_EQ(p.Produce("t", "first"), "Success");
    EXPECT_EQ(p.Flush(60'000), "Success");
    const Consumer consumer(cluster.Brokers(), "t");
    EXPECT_TRUE(Eventually([&] { return consumer.Poll(100) == "first"; }));
    constexpr int kGoroutines = 1000;
    const CrowdFigures f = gump::testing::Crowd(kGoroutines, [&](int) {
      return [&](int seconds) { EXPECT_EQ(consumer.Poll(1000 * seconds), ""); };
    });
    ExpectFewThreads(f, kOwnThreads);
    Shows(f.Text());
  });
}

TEST_F(RdkafkaTest, Faults) {
  Run([this] {
    const HeldPort none;
    ExpectSame([&]() -> Transcript {
      Transcript t;
      const Producer p(absl::StrCat("127.0.0.1:", none.Port()));
      t.push_back(p.Produce("t", "never"));
      const absl::Time begin = absl::Now();
      t.push_back(p.Flush(50));
      EXPECT_GE(absl::Now() - begin, absl::Milliseconds(49));
      EXPECT_EQ(rd_kafka_purge(p.get(), RD_KAFKA_PURGE_F_QUEUE |
                                            RD_KAFKA_PURGE_F_INFLIGHT),
                RD_KAFKA_RESP_ERR_NO_ERROR);
      t.push_back(p.Flush(60'000));
      return t;
    });
    Shows("no broker, time limit, purge");
  });
}

TEST_F(RdkafkaTest, Mixed) {
  Run([this] {
    const Cluster cluster;
    const Producer p(cluster.Brokers());
    constexpr int kGoroutines = 20;
    constexpr int kMessages = 20;
    std::atomic<int> got = 0;
    std::atomic<long> sum = 0;
    {
      const Unrest unrest;
      InHooked(kGoroutines, [&](int i) {
        for (int k = 0; k < kMessages; k++) {
          EXPECT_EQ(p.Produce("m", absl::StrCat(kMessages * i + k)), "Success");
        }
        EXPECT_EQ(p.Flush(60'000), "Success");
      });
      const Consumer consumer(cluster.Brokers(), "m");
      InHooked(kGoroutines, [&](int) {
        while (got < kGoroutines * kMessages) {
          const std::string text = consumer.Poll(100);
          if (text.empty() || text.starts_with("error")) continue;
          sum += std::stoi(text);
          got++;
        }
      });
    }
    constexpr long kAll = kGoroutines * kMessages;
    EXPECT_EQ(got, kAll);
    EXPECT_EQ(sum, kAll * (kAll - 1) / 2);
    Shows(absl::StrCat(kAll, " messages, produced and consumed"));
  });
}

TEST_F(RdkafkaTest, Differential) {
  Run([this] {
    const size_t calls = ExpectSame([]() -> Transcript {
      Transcript t;
      const Cluster cluster;
      const Producer p(cluster.Brokers());
      for (int i = 0; i < 20; i++) {
        t.push_back(p.Produce("d", absl::StrCat("message ", i)));
      }
      t.push_back(p.Flush(60'000));
      t.push_back(p.Produce("d", std::string(2'000'000, 'x')));
      const Consumer consumer(cluster.Brokers(), "d");
      std::multiset<std::string> got;  // partitions have no common order
      while (got.size() < 20) {
        const std::string text = consumer.Poll(1000);
        if (!text.empty()) got.insert(text);
      }
      t.insert(t.end(), got.begin(), got.end());
      t.push_back(consumer.Poll(10));
      return t;
    });
    Shows(absl::StrCat(calls, " calls"));
  });
}

}  // namespace
}  // namespace gump::testing
