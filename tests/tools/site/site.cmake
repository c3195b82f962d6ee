# gump_site_tests(): the site is made from the documents, and a browser looks at it; the manual page, the completion of
# the shells, and the packages that commands install. Once is enough, so only in release.
function(gump_site_tests)
  if(NOT GUMP_BUILD_EXAMPLES OR NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(tools ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(folder ${PROJECT_BINARY_DIR}/site_test)
  add_test(NAME tools/site/links COMMAND ${tools}/site.sh ${PROJECT_BINARY_DIR} ${folder})
  add_test(NAME tools/site/pages COMMAND ${tools}/check_pages.py ${folder}/html ${folder}/pictures)
  add_test(NAME tools/site/pages_all COMMAND ${tools}/check_pages.py --all ${folder}/html ${folder}/pictures_all)
  set_tests_properties(tools/site/links PROPERTIES FIXTURES_SETUP site)
  set_tests_properties(tools/site/pages tools/site/pages_all PROPERTIES FIXTURES_REQUIRED site
    RESOURCE_LOCK site)  # each puts a page with mistakes into the site for a while
  set_tests_properties(tools/site/links tools/site/pages tools/site/pages_all PROPERTIES
    LABELS site TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77)
  gump_long(tools/site/pages_all)
  set(commands ${tools}/../commands)
  add_test(NAME tools/commands/man COMMAND ${commands}/man_test.sh ${PROJECT_BINARY_DIR}/man_test)
  foreach(shell IN ITEMS bash zsh fish)
    add_test(NAME tools/commands/complete_${shell} COMMAND ${commands}/complete_test.py ${shell})
    list(APPEND completions tools/commands/complete_${shell})
  endforeach()
  add_test(NAME tools/commands/needs COMMAND ${commands}/needs_test.py)
  set_tests_properties(tools/commands/man tools/commands/needs ${completions} PROPERTIES
    LABELS site TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77)
endfunction()
