# find_package(gump CONFIG) reads this file in an installation.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/gumpTargets.cmake)
