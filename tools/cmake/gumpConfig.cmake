# find_package(gump CONFIG) reads this file in an installation.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/gumpTargets.cmake)

# find_package(gump COMPONENTS hooks): gump::hooks. It is always there.
set(gump_hooks_FOUND TRUE)
foreach(component IN LISTS gump_FIND_COMPONENTS)
  if(gump_FIND_REQUIRED_${component} AND NOT gump_${component}_FOUND)
    set(gump_FOUND FALSE)
    set(gump_NOT_FOUND_MESSAGE "gump has no component ${component}; there is hooks")
  endif()
endforeach()
