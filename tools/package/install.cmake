# The install rules. The archive and the shared library may be installed into one prefix, one after the other: each has a
# file of targets of its own, and gumpConfig.cmake chooses.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gump)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(kind static)
if(BUILD_SHARED_LIBS)
  set(kind shared)
endif()

install(TARGETS gump EXPORT gump-${kind}-targets FILE_SET HEADERS FILE_SET compiled_alone)
install(EXPORT gump-${kind}-targets NAMESPACE gump:: DESTINATION ${package_dir})
install(TARGETS gump_interpose gump_hooks EXPORT gump-hooks-targets)
install(EXPORT gump-hooks-targets NAMESPACE gump:: DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gumpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/gumpConfig.cmake ${PROJECT_BINARY_DIR}/gumpConfigVersion.cmake
  DESTINATION ${package_dir})

# For pkg-config. A program calls Abseil's functions itself, by way of our headers, so the modules of Abseil are no private
# matter of the shared library. gump.pc stands for the library that was installed last, and gump-static.pc for the archive.
# The prefix is relative to the file, because `cmake --install --prefix` comes later than this.
file(RELATIVE_PATH pc_prefix /prefix/${pkgconfig_dir} /prefix)
set(pc_modules ${gump_dependencies})
list(FILTER pc_modules INCLUDE REGEX "^absl::")
list(TRANSFORM pc_modules REPLACE "^absl::" "absl_")
list(JOIN pc_modules ", " pc_modules)
set(pc_name gump)
set(pc_libs -lgump)
list(JOIN gump_sanitize_programs " " pc_sanitize)  # empty without GUMP_SANITIZE
if(pc_sanitize)
  string(PREPEND pc_sanitize " ")
endif()
if(NOT BUILD_SHARED_LIBS)
  list(JOIN gump_archives " " pc_libs)
  string(PREPEND pc_libs "-l:libgump.a ")
  string(APPEND pc_libs " -luring -pthread")
  set(pc_name gump-static)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/gump.pc.in ${PROJECT_BINARY_DIR}/gump-static.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/gump-static.pc DESTINATION ${pkgconfig_dir})
  set(pc_name gump)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/gump.pc.in ${PROJECT_BINARY_DIR}/gump.pc @ONLY)
configure_file(${CMAKE_CURRENT_LIST_DIR}/gump-hooks.pc.in ${PROJECT_BINARY_DIR}/gump-hooks.pc @ONLY)
# CMake leaves a file that is there alone if the times are the same second, so that of the other library goes first.
install(CODE "
  set(dir \"${pkgconfig_dir}\")
  cmake_path(ABSOLUTE_PATH dir BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\")
  file(REMOVE \"\$ENV{DESTDIR}\${dir}/gump.pc\")")
install(FILES ${PROJECT_BINARY_DIR}/gump.pc ${PROJECT_BINARY_DIR}/gump-hooks.pc DESTINATION ${pkgconfig_dir})

# gdb loads the second copy by itself, if its own data are below the same prefix.
install(FILES tools/gdb/gump_gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/gump)
if(BUILD_SHARED_LIBS)
  install(FILES tools/gdb/gump_gdb.py RENAME libgump.so.${PROJECT_VERSION}-gdb.py
    DESTINATION ${CMAKE_INSTALL_DATADIR}/gdb/auto-load/${CMAKE_INSTALL_FULL_LIBDIR})
endif()

if(GUMP_INSTALL_TOOLS)
  # The command finds its other files from the place where it lies.
  set_target_properties(gump_trace PROPERTIES EXCLUDE_FROM_ALL OFF)
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH trace_rpath /prefix/${CMAKE_INSTALL_LIBEXECDIR}/gump /prefix/${CMAKE_INSTALL_LIBDIR})
    set_target_properties(gump_trace PROPERTIES INSTALL_RPATH $ORIGIN/${trace_rpath})
  endif()
  file(RELATIVE_PATH command_libexec /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBEXECDIR}/gump)
  file(RELATIVE_PATH command_pkgconfig /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${pkgconfig_dir})
  file(RELATIVE_PATH command_data /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_DATADIR}/gump)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/gump.in ${PROJECT_BINARY_DIR}/gump @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/gump TYPE BIN)
  install(TARGETS gump_trace RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/gump)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/gump.1.in ${PROJECT_BINARY_DIR}/gump.1 @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/gump.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  # The completion of shells asks the command that is typed, so the files also serve tools/gump of a clone. These folders are
  # those in which the three shells of Debian look.
  install(FILES tools/completion/gump.bash RENAME gump DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES tools/completion/_gump DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES tools/completion/gump.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
