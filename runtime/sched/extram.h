// Foreign threads (extram.cc): threads that we did not make and that use the
// runtime.
#ifndef RUNTIME_SCHED_EXTRAM_H_
#define RUNTIME_SCHED_EXTRAM_H_

namespace gump::rt {

struct G;
struct M;

// needm lends a pseudo-G to a foreign thread. A TLS destructor gives it back
// through dropm.
// On: a foreign thread without a G.  P: none.
// Locks: takes sched.lock, a leaf.  Parks: no.
G* needm();
// dropm takes the pseudo-G of the ending thread back.
// On: the foreign thread.  P: none.  Locks: takes sched.lock, a leaf.
// Parks: no.
void dropm(M* mp);
// forEachForeign calls f for every pseudo-G ever lent. They are never freed.
// On: any.  P: either.  Locks: none.  Parks: no.
void forEachForeign(void (*f)(G*, void*), void* arg);

}  // namespace gump::rt

#endif  // RUNTIME_SCHED_EXTRAM_H_
