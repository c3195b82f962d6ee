// The stacks and the strings of a generation, in the format of the trace.
#include "runtime/diag/trace_tables.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/diag/trace_buf.h"
#include "runtime/diag/trace_state.h"
#include "runtime/diag/traceback.h"
#include "runtime/sched/waitreason.h"
#include "runtime/sys/os_linux.h"

namespace gump::rt {

namespace {

const char* blockReason(WaitReason r) {
  switch (r) {
    case WaitReason::kIOWait:
    case WaitReason::kRingWait:
      return "network";
    case WaitReason::kChanReceiveNilChan:
    case WaitReason::kChanSendNilChan:
    case WaitReason::kSelectNoCases:
      return "forever";
    case WaitReason::kSyncMutexLock:
    case WaitReason::kSyncRWMutexLock:
    case WaitReason::kSyncRWMutexRLock:
    case WaitReason::kSyncWaitGroupWait:
    case WaitReason::kSemacquire:
      return "sync";
    case WaitReason::kSyncCondWait:
      return "sync.(*Cond).Wait";
    case WaitReason::kFinalizerWait:
    case WaitReason::kForceGCIdle:
    case WaitReason::kGCWorkerIdle:
      return "system goroutine wait";
    default:
      return waitReasonString(r);
  }
}

// ---- What a generation consists of ------------------------------------------

void number(std::string* out, uint64_t n) {
  uint8_t bytes[kMostNumber];
  out->append(reinterpret_cast<const char*>(bytes), putNumber(bytes, n));
}

// Batches makes batches that belong to no thread.
class Batches {
 public:
  Batches(uint64_t gen, TraceEv kind) : gen_(gen), kind_(kind) {}
  // item adds an item, which is never split.
  void item(const std::string& bytes) {
    if (data_.size() + bytes.size() > TraceBuf::kSize) close();
    if (data_.empty()) data_.push_back(static_cast<char>(kind_));
    data_ += bytes;
  }
  std::string take() {
    close();
    return std::move(out_);
  }

 private:
  void close() {
    if (data_.empty()) return;
    out_.push_back(static_cast<char>(TraceEv::kEventBatch));
    number(&out_, gen_);
    number(&out_, kNoTraceThread);
    number(&out_, static_cast<uint64_t>(nanotime()));
    number(&out_, data_.size());
    out_ += data_;
    data_.clear();
  }

  const uint64_t gen_;
  const TraceEv kind_;
  std::string data_;
  std::string out_;
};

// Names are the strings of a generation that are made when it ends.
class Names {
 public:
  explicit Names(uint64_t gen)
      : strings_(gen, TraceEv::kStrings),
        next_(kTraceStringFirst + traceState.strings[gen % 2].count() + 1) {
    add(kTraceGosched, "runtime.Gosched");
    add(kTracePreempted, "preempted");
    for (size_t i = 0; i < static_cast<size_t>(WaitReason::kNumWaitReasons);
         i++) {
      add(kTraceBlockFirst + i, blockReason(static_cast<WaitReason>(i)));
    }
    traceState.strings[gen % 2].forEach([this](const TraceNode& n) {
      add(kTraceStringFirst + n.id,
          std::string(static_cast<const char*>(n.bytes()), n.size));
    });
  }
  uint64_t id(const std::string& text) {
    if (text.empty()) return 0;
    auto [it, fresh] = ids_.try_emplace(text, next_);
    if (fresh) add(next_++, text);
    return it->second;
  }
  std::string take() { return strings_.take(); }

 private:
  void add(uint64_t id, const std::string& text) {
    const size_t n = std::min(text.size(), size_t{1024});
    std::string item(1, static_cast<char>(TraceEv::kString));
    number(&item, id);
    number(&item, n);
    item.append(text, 0, n);
    strings_.item(item);
  }

  Batches strings_;
  uint64_t next_;
  std::unordered_map<std::string, uint64_t> ids_;
};

struct Function {
  std::string name;
  bool ours = false;
};

// CPU samples may have many addresses. When more than this number have a name,
// dumpStacks drops all names.
constexpr size_t kMostFunctions = size_t{1} << 16;

// functionAt returns the function around pc. The names stay for the generations
// that follow, because finding one is slow. Only the thread that ends a
// generation calls this, and there is one at a time.
std::unordered_map<uintptr_t, Function>* functions = nullptr;
const Function& functionAt(uintptr_t pc) {
  if (functions == nullptr) {
    functions = new std::unordered_map<uintptr_t, Function>();
  }
  auto [it, fresh] = functions->try_emplace(pc);
  if (fresh) {
    char name[FrameText::kMaxName];
    it->second.ours = !frameName(pc, name);
    it->second.name = name;
  }
  return it->second;
}

// shownPart returns the frames of a stack that readers get. It leaves out the
// outermost frames that are the runtime's. For an event it also leaves out the
// innermost ones. A CPU sample keeps those, because it shows where the time
// goes. If all frames are the runtime's, an event keeps one, and a sample keeps
// all.
std::span<const uintptr_t> shownPart(std::span<const uintptr_t> pcs) {
  const auto ours = [](uintptr_t pc) { return functionAt(pc).ours; };
  if (pcs.front() == kTraceWholeStack) {
    pcs = pcs.subspan(1);
    if (std::all_of(pcs.begin(), pcs.end(), ours)) return pcs;
  } else {
    while (pcs.size() > 1 && ours(pcs.front())) pcs = pcs.subspan(1);
  }
  while (pcs.size() > 1 && ours(pcs.back())) pcs = pcs.first(pcs.size() - 1);
  return pcs;
}

std::string dumpStacks(uint64_t gen, Names* names) {
  if (functions != nullptr && functions->size() > kMostFunctions) {
    functions->clear();
  }
  Batches stacks(gen, TraceEv::kStacks);
  traceState.stacks[gen % 2].forEach([&](const TraceNode& n) {
    const auto* words = static_cast<const uintptr_t*>(n.bytes());
    const auto pcs = shownPart({words, n.size / sizeof(words[0])});
    std::string item(1, static_cast<char>(TraceEv::kStack));
    number(&item, n.id);
    number(&item, pcs.size());
    for (const uintptr_t pc : pcs) {
      number(&item, pc);
      number(&item, names->id(functionAt(pc).name));
      number(&item, 0);  // file
      number(&item, 0);  // line
    }
    stacks.item(item);
  });
  return stacks.take();
}

}  // namespace

std::string traceTables(uint64_t gen) {
  Names names(gen);
  const std::string stacks = dumpStacks(gen, &names);
  return stacks + names.take();
}

}  // namespace gump::rt
