// The queue of the example jobs, which keeps jobs and results on a server.
// jobs_redis.cc and jobs_nats.cc implement it.
//
// The server delivers each job at least once. It gives a job to a worker for
// the length of a lease. If the worker has not acknowledged the job by then,
// the server gives it to another worker: the first one may have died, or may
// only be slow. So two workers may do the same job, and the coordinator may see
// two results. That does no harm, because the result of a shard has the number
// of the shard as its key, and is the same each time.
#ifndef DOCS_EXAMPLES_JOBS_H_
#define DOCS_EXAMPLES_JOBS_H_

#include <gump/gump.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace jobs {

// Job is a delivery of a shard to a worker.
struct Job {
  int64_t shard = 0;  // 1, 2, 3, ...
  std::string text;
  bool again = false;             // the shard has been delivered before
  absl::Time deadline;            // the lease ends here, or a little later
  std::shared_ptr<void> receipt;  // the queue needs it in Finish
};

struct Result {
  int64_t shard = 0;
  int64_t words = 0;
};

struct QueueOptions {
  std::string address;  // "HOST:PORT"
  std::string worker;   // a name that no other worker has now
  absl::Duration lease;

  // How long Take and Results wait. A deadline counts from before Take, so this
  // is the part of a lease that a worker may lose.
  absl::Duration Patience() const {
    return std::clamp(lease / 4, absl::Milliseconds(1), absl::Seconds(1));
  }
};

// Queue is a connection to the server. All functions park until the server has
// answered. Several goroutines may call them at a time, but Take and Results
// each have one caller. A Queue outlives its jobs.
class Queue {
 public:
  virtual ~Queue() = default;
  // Put adds a shard. Another Put of the same shard changes nothing, so a
  // coordinator that does not know whether a Put has succeeded repeats it.
  virtual absl::Status Put(int64_t shard, const std::string& text) = 0;
  // Take returns up to `most` jobs, or an empty vector if none comes within
  // Patience.
  virtual absl::StatusOr<std::vector<Job>> Take(int most) = 0;
  // Finish stores the result, and then acknowledges the job. The order counts:
  // if the worker dies in between, the job is done again. The other way round,
  // its result would be lost.
  virtual absl::Status Finish(const Job& job, int64_t words) = 0;
  // Results returns the results since the last call, or an empty vector if none
  // comes within Patience. The first call begins with the oldest result on the
  // server.
  virtual absl::StatusOr<std::vector<Result>> Results() = 0;
};

// OpenQueue connects to the server. Parks. Returns an error if it cannot.
absl::StatusOr<std::unique_ptr<Queue>> OpenQueue(const QueueOptions& options);

}  // namespace jobs

#endif  // DOCS_EXAMPLES_JOBS_H_
