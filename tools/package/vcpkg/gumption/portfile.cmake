# A port for vcpkg. It builds the tree in which it lies:
#     vcpkg install gumption --overlay-ports=tools/package/vcpkg
get_filename_component(SOURCE_PATH ${CURRENT_PORT_DIR}/../../../.. ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH ${SOURCE_PATH}
  OPTIONS -DGUMP_BUILD_TESTS=OFF -DGUMP_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME gump CONFIG_PATH lib/cmake/gump)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/include ${CURRENT_PACKAGES_DIR}/debug/share)
file(INSTALL ${CURRENT_PORT_DIR}/usage DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT})
vcpkg_install_copyright(FILE_LIST ${SOURCE_PATH}/LICENSE)
