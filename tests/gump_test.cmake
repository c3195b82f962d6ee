# How a test is built and run.
find_package(GTest REQUIRED)

# Only the library is fully optimised. Fully optimised tests would take two to three times as long to compile.
set(gump_test_optimise $<$<CONFIG:Release>:-Og>)
if(GUMP_SANITIZE)
  set(gump_test_optimise -O0)
endif()

# The deadline of a test in seconds, for hangs. A machine that is slow for a while takes ten times as long as usual.
set(gump_test_timeout 300)
set(gump_no_test "] 0 tests from 0 test suites ran")  # printed if a filter leaves nothing, which is a failure
# The timeout of tests that only compute. tools/gump test gives them the time that other tests leave, which may be none for
# ten minutes.
set(gump_test_idle_timeout 3600)
set(gump_test_first 100)  # the COST of long tests, so that they do not run alone at the end
set(gump_test_env GTEST_DEATH_TEST_STYLE=threadsafe GTEST_BRIEF=1)
if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)  # cross builds run under qemu-user
  math(EXPR gump_test_timeout "2 * ${gump_test_timeout}")
endif()
if(GUMP_SANITIZE)
  list(APPEND gump_test_env
    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1:abort_on_error=0
    UBSAN_OPTIONS=print_stacktrace=1
    # A process that ends waits 20 ms, not a second, for races of threads that go on. Tests run hundreds of processes.
    TSAN_OPTIONS=second_deadlock_stack=1:die_after_fork=0:exitcode=66:atexit_sleep_ms=20)
endif()
list(APPEND gump_test_env GUMP_TEST_TIMEOUT=${gump_test_timeout})  # testing/deadline.cc

# Headers that tests precompile: all that are costly. In dev these are only the headers that every test includes anyhow. So
# a forgotten include fails there, and a change of ours does not compile every test again.
set(gump_test_headers <gtest/gtest.h>)
if(GUMP_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  list(APPEND gump_test_headers <gump/gump.h> <absl/container/flat_hash_map.h> <absl/functional/any_invocable.h>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/time/time.h> <absl/types/span.h> <algorithm> <atomic> <chrono>
    <functional> <memory> <mutex> <optional> <random> <string> <thread> <tuple> <vector>)
endif()

# lld links a sanitizer's build in half the time.
find_program(GUMP_LLD ld.lld)

# gump_executable(target source...): a program that sees the public headers, the internals, and our warnings.
function(gump_executable target)
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE gump::gump gump_private)
  if(GUMP_SANITIZE AND GUMP_LLD)
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# gump_test_kit(source...): the objects that every test is linked with.
function(gump_test_kit)
  add_library(gump_test_kit OBJECT ${ARGN})
  target_link_libraries(gump_test_kit PUBLIC gump::gump gump_private GTest::gtest_main)
  target_compile_options(gump_test_kit PRIVATE ${gump_test_optimise})
  target_precompile_headers(gump_test_kit PRIVATE ${gump_test_headers})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Without it ccache sees a new file in every build.
    target_compile_options(gump_test_kit PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# gump_test_executable(target source...): an executable with GoogleTest's main.
function(gump_test_executable target)
  gump_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE gump_test_kit)
  target_compile_options(${target} PRIVATE ${gump_test_optimise})
  target_precompile_headers(${target} REUSE_FROM gump_test_kit)
endfunction()

# gump_test(path [SOURCES file...] [LIBS library...] [LABELS label...] [ENV name=value...]): builds <path>.cc and SOURCES
# with GoogleTest and runs it as the test <path>.
function(gump_test path)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS;LABELS;ENV" ${ARGN})
  string(REPLACE "/" "_" target test_${path})
  gump_test_executable(${target} ${path}.cc ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LIBS})
  add_test(NAME ${path} COMMAND ${target})
  set_tests_properties(${path} PROPERTIES
    TIMEOUT ${gump_test_timeout}
    LABELS "${arg_LABELS}"
    ENVIRONMENT "${gump_test_env};${arg_ENV}")
endfunction()

# gump_netpoll_test(path): a gump_test, and <path>_uring: the same with io_uring for everything.
function(gump_netpoll_test path)
  gump_test(${path} ${ARGN})
  gump_netpoll_again(${path})
endfunction()

# gump_netpoll_again(path): the test <path> as <path>_uring again.
function(gump_netpoll_again path)
  string(REPLACE "/" "_" target test_${path})
  add_test(NAME ${path}_uring COMMAND ${target})
  set_tests_properties(${path}_uring PROPERTIES
    TIMEOUT ${gump_test_timeout}
    ENVIRONMENT "${gump_test_env};GODEBUG=netpoll=uring")
endfunction()

# gump_numa_again(path...): each test <path> as <path>_numa again, on a simulated machine with two nodes.
function(gump_numa_again)
  foreach(path IN LISTS ARGN)
    string(REPLACE "/" "_" target test_${path})
    add_test(NAME ${path}_numa COMMAND ${target})
    set_tests_properties(${path}_numa PROPERTIES
      TIMEOUT ${gump_test_timeout}
      LABELS numa
      ENVIRONMENT "${gump_test_env};GUMP_TOPOLOGY=2x4")
  endforeach()
endfunction()

# gump_old_linux_again(path [argument...]): the test <path> as <path>_linux5_4 and <path>_linux5_15 again, on kernels that
# seem to be so old (testing/old_linux.cc).
function(gump_old_linux_again path)
  gump_linux_again(5.4 ${path} ${ARGN})
  gump_linux_again(5.15 ${path} ${ARGN})
endfunction()

# gump_linux_again(version path [argument...]): the test <path> again on one such kernel, as <path>_linux<version>, with _
# for the dot. Not under sanitizers, because these tests are about decisions, not about races.
function(gump_linux_again version path)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  string(REPLACE "/" "_" target test_${path})
  string(REPLACE "." "_" name ${path}_linux${version})
  add_test(NAME ${name} COMMAND old_linux ${version} $<TARGET_FILE:${target}> ${ARGN})
  set_tests_properties(${name} PROPERTIES
    FAIL_REGULAR_EXPRESSION "${gump_no_test}"
    TIMEOUT ${gump_test_timeout}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${gump_test_env}")
endfunction()

# gump_stress_test(path [SOURCES file...]): a gump_test with the label stress, and as <path>_dump again, shorter, while a
# thread dumps everything every 10 ms (testing/stress_dump.cc).
function(gump_stress_test path)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  gump_test(${path} SOURCES ${arg_SOURCES} LIBS test_stress_dump LABELS stress)
  string(REPLACE "/" "_" target test_${path})
  add_test(NAME ${path}_dump COMMAND ${target})
  set_tests_properties(${path}_dump PROPERTIES
    TIMEOUT ${gump_test_timeout}
    LABELS dump
    ENVIRONMENT "${gump_test_env};GUMP_STRESS_DUMP=1;GUMP_STRESS_SECONDS=0.15")
endfunction()

# gump_watched_tests(label path...): each test <path> as watched/<path> again, shorter, while a thread takes a profile, a
# trace or a dump every 10 ms (testing/watch.cc). Death tests are left out: gtest ignores SIGPROF while it starts their
# processes, and then restores the action that it found. If a CPU profile has begun in between, that removes the handler
# of the profile, and the next SIGPROF ends the process. StopTurnTest is left out as well: it holds threads until its own
# stop of the world has begun, and the watcher's stop waits for these threads. Tests that take all descriptors, or close
# the standard ones, or weigh the process, are left out because the watcher needs descriptors and memory itself.
function(gump_watched_tests label)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  foreach(path IN LISTS ARGN)
    string(REPLACE "/" "_" target test_${path})
    target_link_libraries(${target} PRIVATE test_watch)
    add_test(NAME watched/${path} COMMAND ${target})
    set_tests_properties(watched/${path} PROPERTIES
      FAIL_REGULAR_EXPRESSION "${gump_no_test}"
      TIMEOUT ${gump_test_timeout}
      LABELS ${label}
      ENVIRONMENT "${gump_test_env};GUMP_TEST_WATCH=10ms;GUMP_STRESS_SECONDS=0.15;GTEST_FILTER=-*Death*:StopTurnTest.*:*WithoutDescriptors*:*WithoutStandardDescriptors*:*TimersThatWereWaitedForLeave*")
  endforeach()
endfunction()

# gump_traced_test(path): the stress test <path> as <path>_trace again, shorter, with schedtrace every 10 ms.
function(gump_traced_test path)
  string(REPLACE "/" "_" target test_${path})
  add_test(NAME ${path}_trace COMMAND ${CMAKE_CURRENT_LIST_DIR}/stress/traced.sh $<TARGET_FILE:${target}>)
  set_tests_properties(${path}_trace PROPERTIES
    TIMEOUT ${gump_test_timeout}
    LABELS dump
    ENVIRONMENT "${gump_test_env};GODEBUG=schedtrace=10,scheddetail=1;GUMP_STRESS_SECONDS=0.15")
endfunction()

# gump_long(name...): these tests also have the label long. They take much time, and few changes break them. tools/gump test
# leaves them out, unless it has --full.
function(gump_long)
  foreach(name IN LISTS ARGN)
    set_property(TEST ${name} APPEND PROPERTY LABELS long)
  endforeach()
endfunction()

# The poller's back ends.
set(gump_backends epoll uring)
# The examples that these tests run.
set(gump_peers_examples chat_server echo_server gump_client_examples http_server redis_client socks5_proxy)

# gump_peers_test(path [LIBS library...]): a gump_test with the label peers, once for each back end, as <path>/<back end>.
# It meets other programs, which are native, the examples among them (peers/peers.h).
function(gump_peers_test path)
  if(NOT GUMP_BUILD_EXAMPLES OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  string(REPLACE "/" "_" target test_${path})
  # Servers end with goroutines alive, and LeakSanitizer does not see the memory that these hold in fake frames.
  string(REPLACE "use_after_return=1" "use_after_return=0" env "${gump_test_env}")
  gump_test_executable(${target} ${path}.cc)
  target_link_libraries(${target} PRIVATE ${arg_LIBS})
  add_dependencies(${target} ${gump_peers_examples})
  foreach(backend IN LISTS gump_backends)
    add_test(NAME ${path}/${backend} COMMAND ${target})
    set_tests_properties(${path}/${backend} PROPERTIES
      TIMEOUT ${gump_test_timeout}
      LABELS peers
      SKIP_RETURN_CODE 77
      ENVIRONMENT "${env};GODEBUG=netpoll=${backend};GUMP_EXAMPLES=${PROJECT_BINARY_DIR}/docs/examples")
  endforeach()
endfunction()

# gump_client_test(path [PACKAGE package HEADER header LIBS library... FOLDER folder OPTIONS option...]): a gump_test with the
# label clients, once for each back end, as <path>/<back end>. It meets a client and its server (clients/harness.h). If the
# header or a library of the client is missing, the tests say so and are skipped. FOLDER is below /usr/include. Only release
# has these tests. The daily tests run them with epoll, and tools/gump clients with both.
function(gump_client_test path)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  cmake_parse_arguments(arg "" "PACKAGE;HEADER;FOLDER" "LIBS;OPTIONS" ${ARGN})
  string(REPLACE "/" "_" target test_${path})
  cmake_path(GET path FILENAME name)
  string(REPLACE "_test" "" name ${name})
  set(libraries)
  set(missing)
  set(folder)
  if(arg_HEADER)
    find_path(folder ${arg_HEADER} PATH_SUFFIXES ${arg_FOLDER} NO_CACHE)
    if(NOT folder)
      set(missing ${arg_HEADER})
    endif()
  endif()
  foreach(library IN LISTS arg_LIBS)
    find_library(found ${library} NO_CACHE)
    if(NOT found)
      set(missing lib${library})
    endif()
    list(APPEND libraries ${found})
    unset(found)
  endforeach()
  if(missing)
    set(command ${CMAKE_CURRENT_LIST_DIR}/clients/skipped.sh
      "no ${missing}, because ${arg_PACKAGE} was not installed when the tests were configured")
  else()
    gump_test_executable(${target} ${path}.cc)
    target_link_libraries(${target} PRIVATE test_clients ${libraries} gump::hooks)
    if(arg_FOLDER)
      target_include_directories(${target} SYSTEM PRIVATE ${folder})
    endif()
    target_compile_options(${target} PRIVATE ${arg_OPTIONS})
    add_dependencies(gump_clients ${target})
    set(command ${target})
  endif()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/clients)
  foreach(backend IN LISTS gump_backends)
    add_test(NAME ${path}/${backend} COMMAND ${command})
    set_tests_properties(${path}/${backend} PROPERTIES
      FAIL_REGULAR_EXPRESSION "${gump_no_test}"
      TIMEOUT ${gump_test_timeout}
      LABELS clients
      SKIP_RETURN_CODE 77
      ENVIRONMENT "${gump_test_env};GODEBUG=netpoll=${backend};GUMP_CLIENT_RESULTS=${PROJECT_BINARY_DIR}/clients/${name}.${backend};GUMP_CLIENT_TESTS=${CMAKE_CURRENT_LIST_DIR}/clients")
  endforeach()
  gump_long(${path}/uring)
endfunction()

# gump_programs(variable path...): sets it to the programs of the tests <path>.
function(gump_programs variable)
  set(programs)
  foreach(path IN LISTS ARGN)
    string(REPLACE "/" "_" target test_${path})
    list(APPEND programs $<TARGET_FILE:${target}>)
  endforeach()
  set(${variable} ${programs} PARENT_SCOPE)
endfunction()

# gump_fuzz_test(name SEED path...): the tests <path> as fuzz/<name> again, briefly, while the scheduler shuffles.
function(gump_fuzz_test name seed)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  gump_programs(programs ${ARGN})
  add_test(NAME fuzz/${name} COMMAND ${CMAKE_CURRENT_LIST_DIR}/fuzz/run.sh ${seed} ${programs})
  set_tests_properties(fuzz/${name} PROPERTIES
    TIMEOUT ${gump_test_timeout}
    LABELS fuzz
    ENVIRONMENT "${gump_test_env};GUMP_STRESS_SECONDS=0.02")
endfunction()

# gump_refusal_test(path): a test in which the kernel refuses calls, over a hundred times. It runs in parts, as <path>_1 to
# <path>_4. Not under sanitizers, which need some of these calls or replace them, nor under qemu, which makes others.
function(gump_refusal_test path)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  string(REPLACE "/" "_" target test_${path})
  gump_test_executable(${target} ${path}.cc)
  foreach(part RANGE 1 4)
    math(EXPR index "${part} - 1")
    add_test(NAME ${path}_${part} COMMAND ${target})
    set_tests_properties(${path}_${part} PROPERTIES
      TIMEOUT ${gump_test_timeout}
      LABELS fault
      ENVIRONMENT "${gump_test_env};GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${index}")
  endforeach()
  gump_long(${path}_2 ${path}_3 ${path}_4)  # every fourth test is a sample
endfunction()

# gump_fault_test(path): a gump_refusal_test that interposes libc's functions (fault/interpose.h).
function(gump_fault_test path)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  gump_refusal_test(${path})
  string(REPLACE "/" "_" target test_${path})
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4gump2rt10futexsleepEPNS0_6AtomicIjEEjl)
endfunction()

# gump_diff_programs(target main first last): the programs that diff/generate.py makes of these seeds, in one executable, and
# their expected outcomes beside it in expected.json.
function(gump_diff_programs target main first last)
  set(diff ${CMAKE_CURRENT_LIST_DIR}/diff)
  set(folder ${PROJECT_BINARY_DIR}/${target})
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${diff}/generate.py)
  file(REMOVE_RECURSE ${folder})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${diff}/generate.py ${first} ${last} ${folder} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB programs ${folder}/cc/*.cc)
  gump_executable(${target} ${main} ${programs})
  # Their speed does not matter, their number does.
  target_compile_options(${target} PRIVATE -O0)
endfunction()

# gump_diff_tests(main): a few programs in the daily test; tools/gump diff asks for more of them. Under qemu-user there are
# no deadlock reports.
function(gump_diff_tests main)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  gump_diff_programs(test_diff_programs ${main} 1 50)
  add_test(NAME diff/programs COMMAND ${CMAKE_CURRENT_LIST_DIR}/diff/compare.py --jobs 2
    ${PROJECT_BINARY_DIR}/test_diff_programs/expected.json $<TARGET_FILE:test_diff_programs>)
  # Programs that end in the middle leave much memory behind.
  set_tests_properties(diff/programs PROPERTIES TIMEOUT ${gump_test_timeout} LABELS diff
    ENVIRONMENT "${gump_test_env};ASAN_OPTIONS=detect_leaks=0")
  if(GUMP_DIFF_FIRST)
    gump_diff_programs(gump_diff ${main} ${GUMP_DIFF_FIRST} ${GUMP_DIFF_LAST})
    set_target_properties(gump_diff PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# gump_lint_tests(): checks that need not run anything of ours. Once is enough, so not under the sanitizers, and not for
# another architecture.
function(gump_lint_tests)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(lint ${PROJECT_SOURCE_DIR}/tools/lint)
  add_test(NAME lint/includes COMMAND ${lint}/check_includes.py)
  add_test(NAME lint/sources COMMAND ${lint}/check_sources.py)
  add_test(NAME lint/examples COMMAND ${lint}/check_examples.py)
  add_test(NAME lint/prose COMMAND ${lint}/check_prose.py)
  add_test(NAME lint/cited COMMAND ${lint}/check_cited.py)
  add_test(NAME lint/coverage COMMAND ${PROJECT_SOURCE_DIR}/tools/coverage/report.py --check ${PROJECT_SOURCE_DIR})
  add_test(NAME lint/coverage_report COMMAND ${PROJECT_SOURCE_DIR}/tools/coverage/report_test.py)
  set_tests_properties(lint/coverage lint/coverage_report PROPERTIES LABELS lint)
  foreach(page IN ITEMS "pictures draw.py --check" "files check_files.py" "links check_links.py"
      "api api_index.py --check" "metrics metrics_page.py --check" "clients clients_page.py --check")
    separate_arguments(page)
    list(POP_FRONT page name script)
    add_test(NAME lint/${name} COMMAND ${PROJECT_SOURCE_DIR}/tools/docs/${script} ${page})
    set_tests_properties(lint/${name} PROPERTIES LABELS lint)
  endforeach()
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64"
      AND NOT GUMP_LOCKRANK AND NOT GUMP_DEBUG)
    add_test(NAME lint/switch_code COMMAND ${CMAKE_CURRENT_LIST_DIR}/runtime/sched/check_switch_code.py $<TARGET_FILE:gump>)
    set_tests_properties(lint/switch_code PROPERTIES LABELS lint)
  endif()
  add_test(NAME lint/format COMMAND ${lint}/check_format.sh)
  add_test(NAME lint/tidy COMMAND ${lint}/tidy.py ${PROJECT_BINARY_DIR})
  # Each public header must compile when it is the only one included. This checks some of them, and lint/includes checks that
  # the sources of all others include them first.
  add_test(NAME lint/headers COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target all_verify_interface_header_sets)
  set_tests_properties(lint/includes lint/sources lint/examples lint/prose lint/cited lint/format lint/tidy lint/headers PROPERTIES LABELS lint TIMEOUT ${gump_test_idle_timeout})
  set_tests_properties(lint/tidy lint/headers PROPERTIES COST ${gump_test_first})
endfunction()

# gump_install_tests(): another project finds the installed package, as an archive and as a shared library. The archive is
# this build's. The other project may have a sanitizer, and may be compiled by another compiler or with other flags than ours.
function(gump_install_tests)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR BUILD_SHARED_LIBS OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  foreach(kind IN ITEMS static shared)
    add_test(NAME install/${kind} COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/run.sh
      ${kind} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/install_test/${kind} ${CMAKE_CXX_COMPILER})
    set_tests_properties(install/${kind} PROPERTIES LABELS install TIMEOUT ${gump_test_idle_timeout} COST ${gump_test_first})
  endforeach()
  set_tests_properties(install/shared PROPERTIES DEPENDS install/static)  # ccache then has the objects of its programs
  add_test(NAME install/refusals COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/refusals.py
    ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER} ${PROJECT_BINARY_DIR}/install_test/refusals)
  set_tests_properties(install/refusals PROPERTIES LABELS install TIMEOUT ${gump_test_idle_timeout})
  add_test(NAME install/find_package COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/find_package.py
    ${PROJECT_BINARY_DIR}/install_test/static/prefix ${PROJECT_BINARY_DIR}/install_test/shared/prefix
    ${PROJECT_BINARY_DIR}/install_test/find_package)
  set_tests_properties(install/find_package PROPERTIES
    LABELS install TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77 DEPENDS "install/static;install/shared")
  add_test(NAME install/layouts COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/check_layouts.py
    ${PROJECT_BINARY_DIR}/install_test/layouts ${CMAKE_CXX_COMPILER} clang++)
  set_tests_properties(install/layouts PROPERTIES LABELS install TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77)
  add_test(NAME install/compilers COMMAND ${CMAKE_CURRENT_LIST_DIR}/install/compilers_test.sh
    ${PROJECT_BINARY_DIR}/install_test/compilers)
  set_tests_properties(install/compilers PROPERTIES LABELS install)
  add_test(NAME install/flags COMMAND ${CMAKE_CURRENT_LIST_DIR}/flags/check_flags.py)
  add_test(NAME install/flags_refused COMMAND ${CMAKE_CURRENT_LIST_DIR}/flags/check_flags.py --refused)
  set_tests_properties(install/flags install/flags_refused PROPERTIES
    LABELS install TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77)
  set_tests_properties(install/flags PROPERTIES COST ${gump_test_first})
  gump_long(install/flags)
endfunction()

# gump_bench_peers_tests(): the programs with other libraries for docs/comparison.md give right results, and the page has the
# stored figures. The test of a library that is not there is skipped.
function(gump_bench_peers_tests)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(program_test ${CMAKE_CURRENT_LIST_DIR}/tools/bench/peer_test.py)
  foreach(peer IN ITEMS boost_fiber asio marl tmc libgo photon)
    if(TARGET bench_peer_${peer})
      set_target_properties(bench_peer_${peer} PROPERTIES EXCLUDE_FROM_ALL OFF)
      add_test(NAME tools/bench/peer_${peer} COMMAND python3 -B ${program_test} ${peer} $<TARGET_FILE:bench_peer_${peer}>)
    else()
      add_test(NAME tools/bench/peer_${peer} COMMAND python3 -B ${program_test} ${peer})
    endif()
    set_tests_properties(tools/bench/peer_${peer} PROPERTIES TIMEOUT ${gump_test_timeout} SKIP_RETURN_CODE 77)
  endforeach()
  add_test(NAME lint/comparison COMMAND ${PROJECT_SOURCE_DIR}/tools/bench/peers/page.py --check)
  add_test(NAME tools/bench/page COMMAND python3 -B ${CMAKE_CURRENT_LIST_DIR}/tools/bench/page_test.py)
  set_tests_properties(lint/comparison tools/bench/page PROPERTIES LABELS lint)
endfunction()

# gump_fresh_tests(): the commands of README and the guide do what these say. fresh/here runs them in this tree, which
# ccache and the release build make quick. fresh/clean_root runs them as a new user does, and measures how long that takes.
function(gump_fresh_tests)
  if(NOT PROJECT_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build/release" OR GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(fresh ${CMAKE_CURRENT_LIST_DIR}/fresh)
  add_test(NAME fresh/documents COMMAND python3 -B ${fresh}/fresh_test.py)
  set_tests_properties(fresh/documents PROPERTIES LABELS lint)
  add_test(NAME fresh/here COMMAND ${fresh}/fresh.py --here ${PROJECT_BINARY_DIR}/fresh_test)
  add_test(NAME fresh/clean_root COMMAND ${fresh}/fresh.py)
  set_tests_properties(fresh/here PROPERTIES LABELS "fresh;install" DEPENDS install/static)
  set_tests_properties(fresh/clean_root PROPERTIES LABELS fresh RUN_SERIAL ON SKIP_RETURN_CODE 77)
  set_tests_properties(fresh/here fresh/clean_root PROPERTIES TIMEOUT ${gump_test_idle_timeout})
  set_tests_properties(fresh/here lint/headers PROPERTIES RESOURCE_LOCK ninja)  # both build in this directory
  gump_long(fresh/clean_root)
endfunction()

# gump_package_tests(): packages, and projects that build the library themselves. package/contents looks at what the tests
# of gump_install_tests have installed. The others build the library, some more than once.
function(gump_package_tests)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR BUILD_SHARED_LIBS OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(package ${CMAKE_CURRENT_LIST_DIR}/package)
  set(installed ${PROJECT_BINARY_DIR}/install_test)
  set(work ${PROJECT_BINARY_DIR}/package_test)
  add_test(NAME package/contents COMMAND ${package}/check_contents.py ${installed}/static/prefix ${installed}/shared/prefix
    ${work}/contents)
  set_tests_properties(package/contents PROPERTIES LABELS install SKIP_RETURN_CODE 77 DEPENDS "install/static;install/shared")
  add_test(NAME package/subproject COMMAND ${package}/subproject.sh ${PROJECT_SOURCE_DIR} ${work}/subproject ${CMAKE_CXX_COMPILER})
  add_test(NAME package/recipes COMMAND ${package}/recipes.py ${work}/recipes ${CMAKE_CXX_COMPILER})
  add_test(NAME package/clean_root COMMAND ${package}/clean_root.sh ${PROJECT_SOURCE_DIR} ${work}/clean_root)
  set_tests_properties(package/subproject package/recipes PROPERTIES LABELS install TIMEOUT ${gump_test_idle_timeout})
  set_tests_properties(package/clean_root PROPERTIES LABELS fresh TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77)
  gump_long(package/subproject package/recipes package/clean_root)
endfunction()

# gump_lto_tests(): with link-time optimisation, full and thin, programs work and keep no thread-local address across a
# switch. It chooses compilers of its own, so the release build stands for all.
function(gump_lto_tests)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  foreach(kind IN ITEMS full thin)
    add_test(NAME lto/${kind} COMMAND ${CMAKE_CURRENT_LIST_DIR}/lto/run.sh
      ${kind} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/lto_test/${kind})
    set_tests_properties(lto/${kind} PROPERTIES LABELS lto TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77 COST ${gump_test_first})
  endforeach()
  gump_long(lto/full lto/thin)
endfunction()

# gump_gdb_tests(path): a debugger comes and goes, walks stacks, and looks at the program <path>. LeakSanitizer does not work under a debugger.
function(gump_gdb_tests path)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  add_test(NAME gdb/attach COMMAND ${CMAKE_CURRENT_LIST_DIR}/gdb/attach.sh $<TARGET_FILE:test_stress_preempt_stress_test>)
  set_tests_properties(gdb/attach PROPERTIES LABELS gdb TIMEOUT ${gump_test_timeout} SKIP_RETURN_CODE 77)
  add_executable(gdb_debugged ${path})
  target_compile_options(gdb_debugged PRIVATE -g -O1)
  target_link_libraries(gdb_debugged PRIVATE gump::gump gump_private)
  add_test(NAME gdb/goroutines COMMAND ${CMAKE_CURRENT_LIST_DIR}/gdb/goroutines.sh $<TARGET_FILE:gdb_debugged>
    ${PROJECT_SOURCE_DIR}/tools/gdb/gump_gdb.py)
  set_tests_properties(gdb/goroutines PROPERTIES LABELS gdb TIMEOUT ${gump_test_timeout} SKIP_RETURN_CODE 77)
  if(GUMP_BUILD_EXAMPLES)
    add_test(NAME gdb/switch COMMAND ${CMAKE_CURRENT_LIST_DIR}/gdb/switch.sh $<TARGET_FILE:ring> 103 20000)
    set_tests_properties(gdb/switch PROPERTIES LABELS gdb TIMEOUT ${gump_test_timeout} SKIP_RETURN_CODE 77)
  endif()
endfunction()

# gump_trace_tests(path): the trace that the program <path> writes is valid, and its pictures are good. A browser opens them
# in another test, because not all machines have one.
function(gump_trace_tests path)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/trace_test)
  gump_executable(trace_traced ${path})
  add_dependencies(trace_traced gump_trace trace_check)
  set(programs $<TARGET_FILE:trace_traced> $<TARGET_FILE:gump_trace> $<TARGET_FILE:trace_check>)
  add_test(NAME tools/trace/convert COMMAND ${CMAKE_CURRENT_LIST_DIR}/tools/trace/convert.sh ${folder}/convert ${programs})
  add_test(NAME tools/trace/page COMMAND ${CMAKE_CURRENT_LIST_DIR}/tools/trace/page.sh ${folder}/page ${programs})
  set_tests_properties(tools/trace/convert tools/trace/page PROPERTIES TIMEOUT ${gump_test_timeout} SKIP_RETURN_CODE 77)
endfunction()

# gump_valgrind_test(path): the test <path> as <path>_valgrind again, under memcheck.
function(gump_valgrind_test path)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  string(REPLACE "/" "_" target test_${path})
  add_test(NAME ${path}_valgrind COMMAND ${CMAKE_CURRENT_LIST_DIR}/valgrind/run.sh $<TARGET_FILE:${target}>)
  set_tests_properties(${path}_valgrind PROPERTIES
    FAIL_REGULAR_EXPRESSION "${gump_no_test}" TIMEOUT 600 LABELS valgrind SKIP_RETURN_CODE 77 ENVIRONMENT "${gump_test_env};GUMP_TEST_TIMEOUT=600")
endfunction()

# gump_preload_test(name library path...): the tests <path> as preload/<name> again, briefly, with another malloc.
function(gump_preload_test name library)
  if(GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  gump_programs(programs ${ARGN})
  add_test(NAME preload/${name} COMMAND ${CMAKE_CURRENT_LIST_DIR}/preload/run.sh ${library} ${programs})
  set_tests_properties(preload/${name} PROPERTIES
    TIMEOUT ${gump_test_timeout}
    LABELS preload
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${gump_test_env};GUMP_STRESS_SECONDS=0.15")
endfunction()

# gump_control(path sanitizer report): <path>.cc has a known bug. Under that sanitizer the test passes only if the bug is
# reported, with stacks of a credible depth, because a silent sanitizer proves nothing.
function(gump_control path sanitizer report)
  if(NOT GUMP_SANITIZE MATCHES "${sanitizer}")
    return()
  endif()
  string(REPLACE "/" "_" target test_${path})
  gump_executable(${target} ${path}.cc)
  add_test(NAME ${path} COMMAND ${target})
  set_tests_properties(${path} PROPERTIES
    TIMEOUT ${gump_test_timeout} LABELS controls ENVIRONMENT "${gump_test_env}" PASS_REGULAR_EXPRESSION "${report}"
    FAIL_REGULAR_EXPRESSION "#40 gump")
endfunction()

# gump_model_tests(): the model checker, in the release build; it has hooks of g++'s in place of a sanitizer.
function(gump_model_tests)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR GUMP_LOCKRANK OR CMAKE_CROSSCOMPILING
      OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  add_subdirectory(model)
endfunction()
