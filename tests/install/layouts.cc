// check_layouts.py compiles this file and reads the layouts of classes from its
// debug information. All public headers are here but gump/asio.h, which has
// templates only. A template has a layout only with arguments: a member of
// Templates.
#include <string>

#include "gump/gump.h"
#include "gump/hooks.h"

struct Templates {
  gump::chan<int> chan;
  gump::send_chan<int> send_chan;
  gump::recv_chan<int> recv_chan;
  gump::chan<std::string> chan_of_strings;
  gump::RecvResult<int> recv_result;
  gump::gls<int> gls;
  gump::context::Key<int> key;
  gump::co::task<int> task;
  gump::sync::Barrier<> barrier;
  gump::sync::List<int> list;
  gump::sync::Map<int, int> map;
  gump::sync::Pool<int> pool;
  gump::sync::Queue<int> queue;
  gump::sync::SingleFlight<int, int> single_flight;
  gump::sync::SingleFlightResult<int> single_flight_result;
  gump::sync::SingleFlightOutcome<int> single_flight_outcome;
  gump::sync::Stack<int> stack;
};

// Their nested classes are there if their functions are.
template class gump::sync::List<int>;
template class gump::sync::Map<int, int>;
template class gump::sync::Queue<int>;
template class gump::sync::SingleFlight<int, int>;
template class gump::sync::Stack<int>;

// A compiler describes the class if its size is used.
extern const unsigned long size_of_templates;
const unsigned long size_of_templates = sizeof(Templates);
