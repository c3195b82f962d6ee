# gump_site_tests(): the site is made from the documents, and a browser looks at it. Once is enough, so only in release.
function(gump_site_tests)
  if(NOT GUMP_BUILD_EXAMPLES OR NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR GUMP_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(tools ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(folder ${PROJECT_BINARY_DIR}/site_test)
  add_test(NAME tools/site/links COMMAND ${tools}/site.sh ${PROJECT_BINARY_DIR} ${folder})
  add_test(NAME tools/site/pages COMMAND ${tools}/check_pages.py ${folder}/html ${folder}/pictures)
  set_tests_properties(tools/site/links PROPERTIES FIXTURES_SETUP site)
  set_tests_properties(tools/site/pages PROPERTIES FIXTURES_REQUIRED site)
  set_tests_properties(tools/site/links tools/site/pages PROPERTIES
    LABELS site TIMEOUT ${gump_test_idle_timeout} SKIP_RETURN_CODE 77)
endfunction()
