# gump_run: builds the file that is given to `tools/gump run FILE.cc`. tools/gump writes main.cc, which includes it.
set(run_main ${PROJECT_BINARY_DIR}/run/main.cc)
if(NOT EXISTS ${run_main})
  file(WRITE ${run_main} "int main() {}\n")
endif()
add_executable(gump_run EXCLUDE_FROM_ALL ${run_main})
target_link_libraries(gump_run PRIVATE gump::gump)
target_compile_options(gump_run PRIVATE -g)  # for addr2line
set_target_properties(gump_run PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/run)

# gump_run_hooks: the same with gump::hooks, for `tools/gump run --hooks FILE.cc`.
add_executable(gump_run_hooks EXCLUDE_FROM_ALL ${run_main})
target_link_libraries(gump_run_hooks PRIVATE gump::hooks)
target_compile_options(gump_run_hooks PRIVATE -g)
set_target_properties(gump_run_hooks PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/run)
