# What the library needs. If it is missing, one error says so, and says what to do. gump/internal/compiler.h does the same for
# programs that include the headers.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "gumption runs on Linux, and this build is for ${CMAKE_SYSTEM_NAME}. "
    "Build it in a Linux container or virtual machine.")
endif()
string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
if(NOT processor MATCHES "^(x86_64|amd64|aarch64|arm64)$" OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "8 * ${CMAKE_SIZEOF_VOID_P}")
  message(FATAL_ERROR "gumption runs on x86-64 and AArch64 with 64-bit pointers, "
    "and this build is for ${CMAKE_SYSTEM_PROCESSOR} with ${bits}-bit pointers. "
    "Use a compiler for one of the two, without -m32 and -mx32.")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "gumption needs g++ 12 or later, and this is g++ ${CMAKE_CXX_COMPILER_VERSION}. "
    "Install a later one, such as Debian's package g++-12, and configure again in an empty folder "
    "with -DCMAKE_CXX_COMPILER=g++-12.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "gumption needs clang++ 14 or later, and this is clang++ ${CMAKE_CXX_COMPILER_VERSION}. "
    "Install a later one, such as Debian's package clang-14, and configure again in an empty folder "
    "with -DCMAKE_CXX_COMPILER=clang++-14.")
endif()

set(absl_libraries "")
if(NOT TARGET absl::base)  # a project around this one may have brought Abseil along
  find_package(absl CONFIG QUIET)
  if(NOT absl_FOUND)
    message(FATAL_ERROR "gumption needs Abseil, and CMake does not find it. Install Debian's package libabsl-dev, "
      "or name the folder of an Abseil of your own with -DCMAKE_PREFIX_PATH=FOLDER.")
  endif()
  get_filename_component(absl_libraries "${absl_DIR}/../.." REALPATH)
endif()
find_library(GUMP_URING uring)
find_path(GUMP_URING_HEADER liburing.h)
mark_as_advanced(GUMP_URING GUMP_URING_HEADER)
if(NOT GUMP_URING OR NOT GUMP_URING_HEADER)
  message(FATAL_ERROR "gumption needs liburing, and CMake does not find it. Install Debian's package liburing-dev.")
endif()
