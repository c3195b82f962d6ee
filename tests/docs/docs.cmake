# The pages for users: each of their programs is compiled and run, and its output is what the page says (extract.py).

# gump_docs_tests(): one executable for each page, and one test for each program, named after its heading:
# docs/cookbook_worker_pool.
function(gump_docs_tests)
  set(tools ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(folder ${PROJECT_BINARY_DIR}/test_docs)
  set(pages README.md docs/cookbook.md docs/distributed.md docs/guide.md docs/hazards.md docs/hooks.md docs/observability.md)
  set(sources ${pages})
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tools}/extract.py ${sources})
  execute_process(COMMAND ${Python3_EXECUTABLE} ${tools}/extract.py ${folder} ${pages} COMMAND_ERROR_IS_FATAL ANY)
  # Programs that end while goroutines are parked: LeakSanitizer does not see what these hold in fake frames.
  string(REPLACE "use_after_return=1" "use_after_return=0" env "${gump_test_env}")

  foreach(page IN LISTS pages)
    cmake_path(GET page STEM page)
    string(TOLOWER ${page} page)
    gump_docs_page(${page} ${folder}/${page})
  endforeach()

  if(NOT GUMP_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    add_test(NAME lint/pages COMMAND ${tools}/check_pages.py ${pages})
    set_tests_properties(lint/pages PROPERTIES LABELS lint TIMEOUT 600)
    add_test(NAME lint/outputs COMMAND ${tools}/check_outputs.py --check)
    set_tests_properties(lint/outputs PROPERTIES LABELS lint)
    if(GUMP_BUILD_EXAMPLES AND CMAKE_BUILD_TYPE STREQUAL "Release")  # the examples run in their full sizes
      add_test(NAME docs/examples COMMAND ${tools}/check_outputs.py ${PROJECT_BINARY_DIR})
      set(tests docs/examples)
      # An example that needs a package of its own has a test of its own, so the log says if it was skipped.
      file(STRINGS ${PROJECT_SOURCE_DIR}/docs/examples/CMakeLists.txt names REGEX "^ *gump_(bridge|client_example)\\([a-z]")
      list(TRANSFORM names REPLACE "^ *[a-z_]+\\(([a-z_]+) .*" "\\1")
      foreach(name IN LISTS names)
        add_test(NAME docs/examples_${name} COMMAND ${tools}/check_outputs.py ${PROJECT_BINARY_DIR} ${name})
        list(APPEND tests docs/examples_${name})
      endforeach()
      set_tests_properties(${tests} PROPERTIES LABELS docs TIMEOUT ${gump_test_timeout} SKIP_RETURN_CODE 77)
    endif()
  endif()
endfunction()

# gump_docs_precompile(target): precompiles <gump/gump.h>, which every program includes, once for all pages.
function(gump_docs_precompile target)
  get_property(first GLOBAL PROPERTY gump_docs_precompiled)
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE <gump/gump.h>)
    set_property(GLOBAL PROPERTY gump_docs_precompiled ${target})
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Without it ccache sees a new file in every build.
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# gump_docs_page(page folder): the executable and the tests of one page. It reads the variables of gump_docs_tests.
function(gump_docs_page page folder)
  set(target test_docs_${page})
  file(GLOB programs ${folder}/*.cc)
  gump_executable(${target} ${programs})
  if(page STREQUAL "hooks")
    target_link_libraries(${target} PRIVATE gump::hooks)
  endif()
  target_compile_options(${target} PRIVATE ${gump_test_optimise})
  if(GUMP_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    # The programs of a page compile as one source, in a few seconds.
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    # That source includes the programs. In an included file, g++ warns of a coroutine whose frame holds a lambda.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  else()
    # In dev each compiles alone, so a forgotten include fails there.
    gump_docs_precompile(${target})
  endif()
  set(skip)
  if(CMAKE_CROSSCOMPILING)
    set(skip --skip deadlock!)  # under qemu-user there are no deadlock reports
  endif()
  list(REMOVE_ITEM programs ${folder}/main.cc)
  foreach(program IN LISTS programs)
    cmake_path(GET program STEM program)
    add_test(NAME docs/${page}_${program} COMMAND ${Python3_EXECUTABLE} ${tools}/run.py ${skip}
      ${folder}/expected.json ${program} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}>)
    set_tests_properties(docs/${page}_${program} PROPERTIES
      LABELS docs
      TIMEOUT ${gump_test_timeout}
      SKIP_RETURN_CODE 77
      ENVIRONMENT "${env}")
  endforeach()
endfunction()
