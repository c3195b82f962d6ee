#!/usr/bin/env bash
# clean_root.sh SOURCE WORK [DEBS]: the packages for Debian are installed in a clean root of Debian 12, used, and removed.
# They are built first, unless DEBS is the directory where they are.
# Exit code 77: this machine cannot make such a root; the last line says why.
set -euo pipefail
source=$1 work=$2 debs=${3:-}
root=$work/root

skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip 'a root of Debian can be made by root only'
command -v mmdebstrap >/dev/null || skip 'mmdebstrap is not installed'
command -v dpkg-buildpackage >/dev/null || skip 'dpkg-dev is not installed'
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || skip 'the packages of this machine are not those of Debian 12'

mkdir -p "$work"
rm -rf "$root"
if [ -z "$debs" ]; then
  "$source/tools/gump" package
  debs=$source/build/package
fi

# The archive is that of this machine. A project needs a compiler, make, cmake and pkg-config; the packages bring the rest.
sources=$(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' --format \
  'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' | sort -u)
mmdebstrap --mode=root --variant=minbase --include=g++,make,cmake,pkg-config --skip=cleanup/apt/lists \
  bookworm "$root" - <<<"$sources" || skip 'mmdebstrap has failed: is the archive of Debian within reach?'
in_root() { env -i PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy=$http_proxy} chroot "$root" "$@"; }
mount --bind /proc "$root/proc"
trap 'umount "$root/proc"' EXIT
dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package}\n' | sort >"$work/packages_before"
files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./debs -o -path ./project -o -path ./root -o -path ./tmp -o -path ./var/lib/apt -o -path ./var/cache \
  -o -path ./var/log -o -path ./var/lib/dpkg \) -prune -o -print | grep -i gump || true); }
[ -z "$(files)" ]

mkdir "$root/debs"
cp "$debs"/*.deb "$root/debs/"
rm -f "$root"/debs/*-dbgsym_*
names=$(for deb in "$root"/debs/*.deb; do dpkg-deb -f "$deb" Package; done)

# Without the hooks, a project that needs them is told so.
in_root sh -c 'apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends /debs/libgump[0-9]*.deb /debs/libgump-dev_*.deb'
cp -r "$source/docs/examples/projects" "$root/project"
if in_root sh -c 'printf "cmake_minimum_required(VERSION 3.24)\nproject(p CXX)\nfind_package(gump REQUIRED COMPONENTS hooks)\n" >/tmp/CMakeLists.txt && cmake -S /tmp -B /tmp/b' \
  >"$work/refused" 2>&1; then
  echo 'find_package found hooks that are not installed'
  exit 1
fi
grep -q 'the component hooks is not installed' "$work/refused"
in_root sh -c 'apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends /debs/*.deb'

# The links of the documents lead to files of their package.
"$source/tools/docs/check_links.py" "$root/usr/share/doc/gump-doc"

# hello PROGRAM LIBRARIES: the program greets, and is linked with that many of our shared libraries.
hello() {
  local said libraries status=0
  said=$(in_root "$1" 2>&1) || status=$?
  libraries=$(in_root ldd "$1" | grep -c libgump || true)
  if [ $status -ne 0 ] || [ "$(sort -u <<<"$said")" != hello ] || [ "$libraries" != "$2" ]; then
    echo "$1: status $status, $libraries of our libraries, and not $2; it said: $said"
    return 1
  fi
}
for kind in static shared; do
  in_root cmake -S /project/find_package -B /project/$kind -DHELLO_KIND=$kind
  in_root cmake --build /project/$kind -j "$(nproc)"
  hello /project/$kind/hello $([ $kind = shared ] && echo 1 || echo 0)
  hello /project/$kind/hello_hooks $([ $kind = shared ] && echo 2 || echo 1)
  in_root make -B -C /project/pkg_config MODULE=$([ $kind = shared ] && echo gump || echo gump-static)
  hello /project/pkg_config/hello $([ $kind = shared ] && echo 1 || echo 0)
done
in_root cmake -S /project/find_package -B /project/default  # shared, if nothing is said
grep -q 'libgump.so' "$root/project/default/CMakeFiles/hello.dir/link.txt"

# The command, as a user has it.
[ "$(in_root gump run /project/hello.cc | sort -u)" = hello ]
[ "$(in_root gump run --hooks /project/hello_hooks.cc)" = hello ]
[ "$(in_root gump version)" = "$(in_root pkg-config --modversion gump)" ]
in_root env GUMP_TRACE=/tmp/hello.trace /project/shared/hello
in_root gump trace /tmp/hello.trace
grep -q '</html>' "$root/tmp/hello.html"
in_root bash -c '. /usr/share/bash-completion/completions/gump; COMP_WORDS=(gump ver); COMP_CWORD=1; _gump; [ "${COMPREPLY[*]}" = version ]'

# Nothing is left.
# shellcheck disable=SC2086  # the names are words
in_root apt-get -qq -o Dpkg::Use-Pty=0 purge -y $names
in_root apt-get -qq -o Dpkg::Use-Pty=0 autoremove --purge -y
left=$(files)
if [ -n "$left" ]; then
  echo "left behind: $left"
  exit 1
fi
dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package}\n' | sort >"$work/packages_after"
diff "$work/packages_before" "$work/packages_after"
umount "$root/proc"
trap - EXIT
rm -rf "$root"
