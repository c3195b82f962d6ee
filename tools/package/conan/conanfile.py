"""A recipe for Conan 2. It builds the tree in which it lies:

    conan create tools/package/conan -s compiler.cppstd=20 --build=missing

The default profile of g++ 12 has the standard gnu17, and the library needs C++20.
"""

import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class Gumption(ConanFile):
    name = "gumption"
    description = "Go's scheduler for C++ programs: goroutines, channels, select, timers, contexts, sockets and files"
    license = "Apache-2.0"
    topics = ("goroutines", "channels", "scheduler", "concurrency")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}

    @property
    def _tree(self):
        return pathlib.Path(self.recipe_folder).resolve().parents[2]

    def set_version(self):
        header = (self._tree / "api/include/gump/version.h").read_text()
        self.version = ".".join(re.findall(r"^#define GUMP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.M))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "api/*", "netpoll/*", "runtime/*", "sysmon/*", "tools/*"):
            copy(self, pattern, src=str(self._tree), dst=self.export_sources_folder)

    def requirements(self):
        # Programs include Abseil by way of our headers, and call it themselves.
        self.requires("abseil/[>=20220623.0]", transitive_headers=True, transitive_libs=True)
        self.requires("liburing/[>=2.3]")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("gumption needs Linux on x86-64 or AArch64")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("GUMP_BUILD_TESTS", "GUMP_BUILD_EXAMPLES"):
            toolchain.cache_variables[option] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=str(pathlib.Path(self.package_folder) / "licenses"))
        CMake(self).install()

    def package_info(self):
        # The library's own CMake package knows what programs need.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/gump"]
        self.cpp_info.libs = ["gump"]
        if not self.options.shared:
            self.cpp_info.system_libs = ["pthread"]
