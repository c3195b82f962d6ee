// StopLink: the way from a std::stop_source to a context.
//
// The callback of std::stop_callback runs in the thread that requests the stop,
// or inside the constructor if the stop was requested before. The destructor
// waits for a callback that runs in another thread, and not for one that runs
// in its own. The standard library tells the two apart by std::thread::id. A
// goroutine that changes its thread between them would look like another
// thread, and would wait for itself.
//
// Invariants:
//  (S1) The callback locks its goroutine to the thread before anything in it
//       can park, and unlocks it at the end. So if the callback gives up the
//       last reference to the node, and with it destroys the StopLink, that
//       happens in the thread of the request.
//  (S2) The callback gets a reference to the node first, and then uses only
//       local variables. So the StopLink may be destroyed in the meantime.
//  (S3) Only CancelNode::Destroy destroys the StopLink: once no reference is
//       left, and without any lock. A callback that has begun on another thread
//       gets no reference then, or has given it back, and is about to end. So
//       the destructor waits for a moment only. The node's memory is freed
//       after the StopLink, so the callback needs no weak reference.
//
// No request is lost: std::stop_callback either registers the callback before
// the request, or finds the request and calls it.
//
// Rejected: to destroy the StopLink as soon as the node is cancelled. The
// destructor waits for the callback, which waits for the node's lock, which the
// canceller holds (N5). Also rejected: a callback that starts a goroutine,
// which cancels. The context would not be cancelled yet when request_stop
// returns.
#ifndef API_CONTEXT_STOP_LINK_H_
#define API_CONTEXT_STOP_LINK_H_

#include <stop_token>
#include <utility>

namespace gump::internal {

class CancelNode;

// StopLink cancels a node when a stop is requested. It is created by a thread
// that has a reference to the node.
class StopLink {
 public:
  StopLink(CancelNode* n, std::stop_token token)
      : token_(token), callback_(std::move(token), Request{n}) {}

  // CanCome returns whether a stop was requested, or still can be.
  bool CanCome() const { return token_.stop_possible(); }

 private:
  struct Request {
    CancelNode* node;
    void operator()() const noexcept;
  };

  const std::stop_token token_;
  const std::stop_callback<Request> callback_;
};

}  // namespace gump::internal

#endif  // API_CONTEXT_STOP_LINK_H_
