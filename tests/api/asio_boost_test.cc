// The tests of asio_test.cc with Boost.Asio.
#define GUMP_TEST_BOOST_ASIO
#include "tests/api/asio_test.cc"
