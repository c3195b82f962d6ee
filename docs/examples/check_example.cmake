# Runs COMMAND. Fails unless it exits with EXIT and its output matches EXPECT.
#   cmake -DCOMMAND=program;argument -DEXIT=0 -DEXPECT=regex -P check_example.cmake
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE exit OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT exit STREQUAL EXIT)
  message(FATAL_ERROR "exit code ${exit} instead of ${EXIT}\n${output}")
endif()
if(NOT output MATCHES "${EXPECT}")
  message(FATAL_ERROR "the output does not match ${EXPECT}\n${output}")
endif()
