// Sets of labels. runtime/sched/labels.cc has the labels of goroutines.
#include <algorithm>
#include <new>
#include <vector>

#include "gump/pprof.h"

namespace gump::internal {

const rt::LabelSet* LabelsAccess::set(const pprof::Labels& labels) noexcept {
  return labels.set_;
}

pprof::Labels LabelsAccess::Adopt(const rt::LabelSet* set) noexcept {
  pprof::Labels labels;
  labels.set_ = set;
  return labels;
}

}  // namespace gump::internal

namespace gump::pprof {

namespace {

using internal::LabelsAccess;

const context::Key<Labels>& LabelsKey() {
  static const auto* const key = new context::Key<Labels>;
  return *key;
}

const rt::LabelSet* SetIn(const context::Context& ctx) {
  const Labels* labels = ctx.Value(LabelsKey());
  return labels == nullptr ? nullptr : LabelsAccess::set(*labels);
}

absl::Span<const rt::Label> ListOf(const rt::LabelSet* set) {
  size_t n;
  const rt::Label* labels = rt::labelsIn(set, &n);
  return {labels, n};
}

std::string_view KeyOf(const rt::Label& l) { return {l.key, l.key_size}; }
std::string_view ValueOf(const rt::Label& l) { return {l.value, l.value_size}; }

bool ByKey(const rt::Label& a, const rt::Label& b) {
  return KeyOf(a) < KeyOf(b);
}

// NewSet makes a set of a list. Of several labels with one key, the last
// counts.
const rt::LabelSet* NewSet(std::vector<rt::Label> list) {
  if (list.empty()) return nullptr;
  std::stable_sort(list.begin(), list.end(), ByKey);
  size_t n = 0;
  for (const rt::Label& l : list) {
    if (n > 0 && KeyOf(list[n - 1]) == KeyOf(l)) n--;
    list[n++] = l;
  }
  const rt::LabelSet* set = rt::newLabelSet(list.data(), n);
  if (set == nullptr) throw std::bad_alloc();
  return set;
}

}  // namespace

Labels::Labels(absl::Span<const Pair> labels) {
  std::vector<rt::Label> list;
  list.reserve(labels.size());
  for (const auto& [key, value] : labels) {
    list.push_back({key.data(), value.data(), key.size(), value.size()});
  }
  set_ = NewSet(std::move(list));
}

context::Context WithLabels(const context::Context& ctx, const Labels& labels) {
  const absl::Span<const rt::Label> outer = ListOf(SetIn(ctx));
  if (outer.empty()) return context::WithValue(ctx, LabelsKey(), labels);
  const absl::Span<const rt::Label> inner = ListOf(LabelsAccess::set(labels));
  if (inner.empty()) return ctx;
  std::vector<rt::Label> all(outer.begin(), outer.end());
  all.insert(all.end(), inner.begin(), inner.end());
  return context::WithValue(ctx, LabelsKey(),
                            LabelsAccess::Adopt(NewSet(std::move(all))));
}

std::optional<std::string_view> Label(const context::Context& ctx,
                                      std::string_view key) {
  for (const rt::Label& l : ListOf(SetIn(ctx))) {
    if (KeyOf(l) == key) return ValueOf(l);
  }
  return std::nullopt;
}

}  // namespace gump::pprof

namespace gump::internal {

LabelScope::LabelScope(const context::Context& ctx)
    : labels_([&] {
        const rt::LabelSet* set = pprof::SetIn(ctx);
        rt::retainLabels(set);
        return LabelsAccess::Adopt(set);
      }()) {
  rt::enterLabels(&frame_, LabelsAccess::set(labels_));
}

}  // namespace gump::internal
