#!/usr/bin/env python3
"""recipes.py WORK [COMPILER]: the steps of the recipes for Conan and vcpkg build a library that a project finds.

Neither of the two tools is needed. The recipe for Conan runs with classes that stand for those of Conan, and the port of
vcpkg with functions that stand for those of vcpkg (vcpkg_functions.cmake). Abseil and liburing are this machine's. So this
shows that a recipe names the right files and options, and that the result is complete. It does not show that the tools
accept the recipe, and that the versions of the dependencies that they bring fit.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools/package"

FASTER = ["-DCMAKE_UNITY_BUILD=ON"]  # it halves the time


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run(list(map(str, command)), check=True, **options)


def check_project(work, prefix):
    """A project finds the library below prefix, and works."""
    build = work / "project"
    run("cmake", "-G", "Ninja", "-S", ROOT / "docs/examples/projects/find_package", "-B", build,
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DHELLO_KIND=static")
    cache = (build / "CMakeCache.txt").read_text()
    assert f"gump_DIR:PATH={prefix}" in cache, "the project has found another library"
    run("cmake", "--build", build)
    out = subprocess.run([build / "hello"], capture_output=True, text=True, check=True).stdout
    assert out == "hello\n" * 2, out
    run(build / "hello_hooks")


# ---- vcpkg

def check_vcpkg(work):
    port = PACKAGE / "vcpkg/gumption"
    manifest = json.loads((port / "vcpkg.json").read_text())
    assert manifest["name"] == port.name, "vcpkg looks for a port in a folder of its name"
    names = {d if isinstance(d, str) else d["name"] for d in manifest["dependencies"]}
    assert names == {"abseil", "liburing", "vcpkg-cmake", "vcpkg-cmake-config"}, names
    packages = work / "packages"
    run("cmake", f"-DCURRENT_PORT_DIR={port}", f"-DCURRENT_PACKAGES_DIR={packages}", f"-DCURRENT_BUILDTREES_DIR={work}/trees",
        f"-DPORT={manifest['name']}", "-P", pathlib.Path(__file__).with_name("vcpkg_functions.cmake"))
    assert {p.name for p in (packages / "share/gumption").iterdir()} == {"copyright", "usage"}
    assert not (packages / "lib/cmake").exists() or not any((packages / "lib/cmake").rglob("*.cmake"))
    check_project(work, packages)


# ---- Conan

# The command in packages.md. Its settings are in place of those of a default profile.
COMMAND = re.search(r"`(conan create tools/package/conan[^`]*)`", (ROOT / "docs/packages.md").read_text())[1]


class Settings:
    os, arch, build_type = "Linux", "x86_64", "Release"

    def __init__(self, command=COMMAND):
        self.cppstd = dict(re.findall(r"-s (\S+)=(\S+)", command)).get("compiler.cppstd", "gnu17")


class Options:
    shared = False


class ConanFile:
    """What the recipe gets from its base class."""

    def __init__(self):
        self.settings, self.options = Settings(), Options()
        self.cpp_info = types.SimpleNamespace(set_property=lambda *_: None, components={})
        self.required = []

    def requires(self, reference, **_):
        self.required.append(reference)


class InvalidConfiguration(Exception):
    pass


def check_min_cppstd(recipe, minimum):
    current = recipe.settings.cppstd
    if int(current.removeprefix("gnu")) < int(minimum):
        raise InvalidConfiguration(f"Current cppstd ({current}) is lower than the required C++ standard ({minimum}).")


def refuses(recipe, what):
    """The recipe does not accept its settings."""
    try:
        recipe.validate()
    except InvalidConfiguration:
        return
    raise AssertionError(f"the recipe accepts {what}")


class CMakeToolchain:
    def __init__(self, recipe):
        self.recipe, self.cache_variables = recipe, {}

    def generate(self):
        self.recipe.variables = {
            "CMAKE_BUILD_TYPE": self.recipe.settings.build_type, "CMAKE_INSTALL_LIBDIR": "lib",
            "CMAKE_CXX_STANDARD": self.recipe.settings.cppstd, "BUILD_SHARED_LIBS": self.recipe.options.shared, **self.cache_variables}


class CMakeDeps:
    def __init__(self, recipe):
        pass

    def generate(self):
        pass


class CMake:
    def __init__(self, recipe):
        self.recipe = recipe

    def configure(self):
        variables = [f"-D{name}={value}" for name, value in self.recipe.variables.items()]
        run("cmake", "-G", "Ninja", "-S", self.recipe.source_folder, "-B", self.recipe.build_folder, *FASTER, *variables)

    def build(self):
        run("cmake", "--build", self.recipe.build_folder)

    def install(self):
        run("cmake", "--install", self.recipe.build_folder, "--prefix", self.recipe.package_folder)


def copy(_, pattern, src, dst):
    for path in pathlib.Path(src).glob(pattern.replace("/*", "/**/*")):
        if path.is_file():
            target = pathlib.Path(dst) / path.relative_to(src)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def standing_for_conan():
    """Registers modules under the names that the recipe imports."""
    contents = {
        "conan": {"ConanFile": ConanFile},
        "conan.errors": {"ConanInvalidConfiguration": InvalidConfiguration},
        "conan.tools": {},
        "conan.tools.build": {"check_min_cppstd": check_min_cppstd},
        "conan.tools.cmake": {"CMake": CMake, "CMakeDeps": CMakeDeps, "CMakeToolchain": CMakeToolchain,
                              "cmake_layout": lambda *_: None},
        "conan.tools.files": {"copy": copy},
    }
    for name, members in contents.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module


def check_conan(work):
    standing_for_conan()
    spec = importlib.util.spec_from_file_location("recipe", PACKAGE / "conan/conanfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    recipe = module.Gumption()
    recipe.recipe_folder = str(PACKAGE / "conan")
    for folder in ("export_sources", "build", "package"):
        (work / folder).mkdir(parents=True)
        setattr(recipe, f"{folder}_folder", str(work / folder))
    recipe.source_folder = recipe.export_sources_folder
    recipe.set_version()
    for step in ("export_sources", "requirements", "validate", "layout", "generate", "build", "package", "package_info"):
        getattr(recipe, step)()
    assert {r.split("/")[0] for r in recipe.required} == {"abseil", "liburing"}
    assert all((work / "package" / folder).is_dir() for folder in recipe.cpp_info.builddirs)
    header = (work / "package/include/gump/version.h").read_text()
    assert all(f" {part}\n" in header for part in recipe.version.split(".")), recipe.version
    recipe.settings.os = "Windows"
    refuses(recipe, "Windows")
    recipe.settings = Settings("conan create tools/package/conan")
    refuses(recipe, "C++17")
    assert COMMAND in module.__doc__, "the recipe and packages.md give two commands"
    check_project(work, work / "package")


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        os.environ["CXX"] = sys.argv[2]
    if shutil.which("ccache"):
        os.environ["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    shutil.rmtree(work, ignore_errors=True)
    sys.dont_write_bytecode = True
    check_vcpkg(work / "vcpkg")
    check_conan(work / "conan")


main()
