// Adds up the sizes of the files below a directory. It uses a goroutine for
// each directory, up to a limit, and the first error stops them all. Then it
// walks the directories again, one after the other, and compares the sums.
//
//   parallel_walk [DIRECTORY]        default: the current directory
#include <gump/gump.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

using namespace gump;
namespace fs = std::filesystem;

namespace {

using Bytes = std::atomic<uint64_t>;

// List adds the sizes of the files in dir to sum, and appends the directories
// in dir to below.
absl::Status List(const fs::path& dir, std::vector<fs::path>& below,
                  Bytes& sum) {
  std::error_code error, vanished;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::end(entry); entry.increment(error)) {
    const fs::file_type type = entry->symlink_status(vanished).type();
    if (type == fs::file_type::directory) below.push_back(entry->path());
    if (type == fs::file_type::regular) sum += entry->file_size(vanished);
  }
  if (!error) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(dir.native(), ": ", error.message()));
}

// Walk walks through dir. It gives the directories below it to other goroutines
// if the limit allows. If not, it walks through them itself: if all goroutines
// waited until one ends, none would end.
absl::Status Walk(sync::ErrGroup& group, const context::Context& ctx,
                  const fs::path& dir, Bytes& sum) {
  std::vector<fs::path> below;
  absl::Status s = ctx.Err();
  if (s.ok()) s = blocking([&] { return List(dir, below, sum); });
  for (size_t i = 0; s.ok() && i < below.size(); i++) {
    auto walk = [&, sub = below[i]] { return Walk(group, ctx, sub, sum); };
    if (!group.TryGo(walk)) s = walk();
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  return Run([root = fs::path(argc > 1 ? argv[1] : ".")] {
    Bytes parallel = 0, serial = 0;
    auto [group, ctx] = sync::ErrGroup::WithContext(context::Background());
    group.SetLimit(4 * runtime::GOMAXPROCS(0));
    group.Go([&, &g = group, &c = ctx] { return Walk(g, c, root, parallel); });
    absl::Status s = group.Wait();
    for (std::vector<fs::path> todo = {root}; s.ok() && !todo.empty();) {
      const fs::path dir = todo.back();
      todo.pop_back();
      s = List(dir, todo, serial);
    }
    if (!s.ok()) {
      std::fprintf(stderr, "parallel_walk: %s\n", s.ToString().c_str());
      return 2;
    }
    std::printf("%llu bytes; one after the other: %s\n",
                static_cast<unsigned long long>(parallel),
                parallel == serial ? "the same" : "DIFFERENT");
    return parallel == serial ? 0 : 1;
  });
}
