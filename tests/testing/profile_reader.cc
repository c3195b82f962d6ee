#include "tests/testing/profile_reader.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>

namespace gump::testing {

namespace {

struct Bad {
  std::string why;
};

void Check(bool ok, const char* why) {
  if (!ok) throw Bad{why};
}

uint64_t LittleEndian(std::string_view s) {
  uint64_t v = 0;
  for (size_t i = s.size(); i > 0; i--) {
    v = v << 8 | static_cast<unsigned char>(s[i - 1]);
  }
  return v;
}

std::string_view Take(std::string_view* s, size_t n) {
  Check(s->size() >= n, "file ends too early");
  const std::string_view head = s->substr(0, n);
  s->remove_prefix(n);
  return head;
}

uint32_t Crc(std::string_view s) {  // bit by bit, as RFC 1952 defines it
  uint32_t c = ~uint32_t{0};
  for (const char b : s) {
    c ^= static_cast<unsigned char>(b);
    for (int k = 0; k < 8; k++) c = c >> 1 ^ ((c & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~c;
}

std::string Gunzip(std::string_view s) {
  const std::string_view head = Take(&s, 10);
  Check(head.substr(0, 4) == std::string_view("\x1f\x8b\x08\0", 4),
        "no plain gzip header");
  std::string out;
  for (bool last = false; !last;) {
    const char block = Take(&s, 1)[0];
    Check((block & ~1) == 0, "the block is not stored");
    last = (block & 1) != 0;
    const uint64_t size = LittleEndian(Take(&s, 2));
    Check(LittleEndian(Take(&s, 2)) == (~size & 0xffff), "bad NLEN");
    out.append(Take(&s, size));
  }
  Check(LittleEndian(Take(&s, 4)) == Crc(out), "bad CRC");
  Check(LittleEndian(Take(&s, 4)) == (out.size() & UINT32_MAX), "bad ISIZE");
  Check(s.empty(), "bytes behind the end");
  return out;
}

uint64_t Varint(std::string_view* s) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto b = static_cast<unsigned char>(Take(s, 1)[0]);
    v |= uint64_t{b & 0x7fu} << shift;
    if ((b & 0x80) == 0) return v;
  }
  throw Bad{"varint too long"};
}

// Message is the fields of a message, by number.
struct Message {
  explicit Message(std::string_view s) {
    while (!s.empty()) {
      const uint64_t tag = Varint(&s);
      const int field = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        ints[field].push_back(Varint(&s));
      } else {
        Check((tag & 7) == 2, "wire type");
        const uint64_t size = Varint(&s);
        bytes[field].push_back(Take(&s, size));
      }
    }
  }
  uint64_t Int(int field) {
    const std::vector<uint64_t>& all = ints[field];
    Check(all.size() <= 1, "field twice");
    return all.empty() ? 0 : all[0];
  }
  std::vector<uint64_t> Packed(int field) {
    std::vector<uint64_t> all = ints[field];
    for (std::string_view s : bytes[field]) {
      while (!s.empty()) all.push_back(Varint(&s));
    }
    return all;
  }
  std::map<int, std::vector<uint64_t>> ints;
  std::map<int, std::vector<std::string_view>> bytes;
};

class Reader {
 public:
  Reader(std::string_view proto, Profile* p) : top_(proto), p_(p) {}

  void Read() {
    Check(!Strings().empty() && Strings()[0].empty(), "string_table[0]");
    for (const std::string_view m : top_.bytes[1]) {
      p_->types.push_back(ValueType(m));
    }
    Check(!p_->types.empty(), "no sample type");
    for (const std::string_view m : top_.bytes[11]) {
      p_->period_type = ValueType(m);
    }
    p_->period = static_cast<int64_t>(top_.Int(12));
    p_->time_nanos = static_cast<int64_t>(top_.Int(9));
    p_->duration_nanos = static_cast<int64_t>(top_.Int(10));
    ReadMappings();
    ReadFunctions();
    ReadLocations();
    for (const std::string_view m : top_.bytes[2]) ReadSample(Message(m));
  }

 private:
  const std::vector<std::string_view>& Strings() { return top_.bytes[6]; }
  std::string Text(uint64_t index) {
    Check(index < Strings().size(), "string index");
    return std::string(Strings()[index]);
  }
  std::string ValueType(std::string_view s) {
    Message m(s);
    return Text(m.Int(1)) + " " + Text(m.Int(2));
  }

  void ReadMappings() {
    for (const std::string_view s : top_.bytes[3]) {
      Message m(s);
      Check(m.Int(1) != 0 && mapping_ids_.insert(m.Int(1)).second,
            "mapping id");
      Check(m.Int(2) < m.Int(3), "mapping range");
      p_->mappings.push_back({m.Int(2), m.Int(3), m.Int(4), Text(m.Int(5)),
                              Text(m.Int(6)), m.Int(7) != 0});
    }
  }

  void ReadFunctions() {
    for (const std::string_view s : top_.bytes[5]) {
      Message m(s);
      Check(m.Int(1) != 0, "function id 0");
      Check(functions_.emplace(m.Int(1), Text(m.Int(2))).second,
            "function id twice");
      Check(m.Int(2) != 0, "function without a name");
      (void)Text(m.Int(3));
      (void)Text(m.Int(4));
    }
  }

  void ReadLocations() {
    for (const std::string_view s : top_.bytes[4]) {
      Message m(s);
      Check(m.Int(1) != 0, "location id 0");
      Check(m.Int(2) == 0 || mapping_ids_.count(m.Int(2)) == 1,
            "mapping of a location");
      Check(m.bytes[4].size() == 1, "location without a line");
      Message line(m.bytes[4][0]);
      const auto f = functions_.find(line.Int(1));
      Check(f != functions_.end(), "function of a line");
      Check(locations_.emplace(m.Int(1), f->second).second,
            "location id twice");
    }
  }

  void ReadSample(Message m) {
    Profile::Sample sample;
    for (const uint64_t id : m.Packed(1)) {
      Check(locations_.count(id) == 1, "location of a sample");
      sample.stack.push_back(locations_[id]);
    }
    for (const uint64_t v : m.Packed(2)) {
      sample.values.push_back(static_cast<int64_t>(v));
    }
    Check(sample.values.size() == p_->types.size(), "number of values");
    for (const std::string_view s : m.bytes[3]) {
      Message l(s);
      Check(sample.labels.emplace(Text(l.Int(1)), Text(l.Int(2))).second,
            "label twice");
    }
    Check(seen_.insert({m.Packed(1), sample.labels}).second,
          "two samples with one stack and one set of labels");
    p_->samples.push_back(std::move(sample));
  }

  Message top_;
  Profile* p_;
  std::set<uint64_t> mapping_ids_;
  std::map<uint64_t, std::string> functions_;
  std::map<uint64_t, std::string> locations_;
  std::set<std::pair<std::vector<uint64_t>, std::map<std::string, std::string>>>
      seen_;
};

}  // namespace

Profile ReadProfile(std::string_view file) {
  Profile p;
  try {
    const std::string proto = Gunzip(file);
    Reader(proto, &p).Read();
  } catch (const Bad& bad) {
    p.error = bad.why;
  }
  return p;
}

TempFile::TempFile() : path_(::testing::TempDir() + "profile-XXXXXX") {
  fd_ = mkstemp(path_.data());
  EXPECT_GE(fd_, 0);
}

TempFile::~TempFile() {
  close(fd_);
  unlink(path_.c_str());
}

std::string TempFile::Read() const {
  std::string all;
  std::array<char, 65536> part;
  ssize_t n;
  for (off_t at = 0; (n = pread(fd_, part.data(), part.size(), at)) > 0;
       at += n) {
    all.append(part.data(), static_cast<size_t>(n));
  }
  return all;
}

const std::string& GoTool() {
  static const std::string tool = [] {
    const char* set = std::getenv("GUMP_TEST_GO");
    const std::string go = set != nullptr ? set : "go";
    const std::string probe = go + " tool pprof -h >/dev/null 2>&1";
    const int r = std::system(probe.c_str());
    return WIFEXITED(r) && WEXITSTATUS(r) <= 2 ? go : std::string();
  }();
  return tool;
}

std::string ByGo(const std::string& option, const std::string& path) {
  const std::string command =
      GoTool() + " tool pprof " + option + " " + path + " 2>&1";
  FILE* f = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> part;
  while (fgets(part.data(), part.size(), f) != nullptr) text += part.data();
  EXPECT_EQ(pclose(f), 0) << command << "\n" << text;
  return text;
}

}  // namespace gump::testing
