#!/bin/sh
# What `make install` leaves on a machine is enough to build against, and `make uninstall` takes all of it away.
set -u
BUILD=${BUILD:-build}
CC=${CC:-gcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
result() {
    if [ "$2" -eq 0 ]; then
        echo "ok $1"
    else
        sed 's/^/# /' "$work/log"
        echo "not ok $1"
    fi
}
flags='-std=c11 -Wall -Wextra -Werror'
make_quietly() {
    env -u MAKEFLAGS -u MAKELEVEL make -s "$@" "BUILD=$BUILD" "CC=$CC" "DESTDIR=$work/root" PREFIX=/opt/tally >"$work/log" 2>&1
}

make_quietly install
result 'install: succeeds' $?

bad=0
for header in "$work"/root/opt/tally/include/tally/*.h; do
    echo "#include \"tally/$(basename "$header")\"" >"$work/alone.c"
    # shellcheck disable=SC2086 # a list of options
    $CC $flags -fsyntax-only -I"$work/root/opt/tally/include" "$work/alone.c" >"$work/log" 2>&1 || { bad=1; break; }
done
result 'install: every public header compiles by itself' $bad

cat >"$work/user.c" <<'TEXT'
#include "tally/base.h"
#include <stdio.h>
int main(void) {
    printf("%s %s\n", TL_VERSION, tl_status_name(TL_ERR_SHAPE));
    return 0;
}
TEXT
export PKG_CONFIG_PATH="$work/root/opt/tally/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work/root"
version=$(sed -n 's/^.define TL_VERSION "\(.*\)"/\1/p' include/tally/base.h)
pkg-config --modversion tally >"$work/log" 2>&1 && [ "$(cat "$work/log")" = "$version" ]
result 'install: pkg-config knows the version of the header' $?

# shellcheck disable=SC2046,SC2086
{
    $CC $flags $(pkg-config --cflags tally) "$work/user.c" $(pkg-config --libs tally) -o "$work/user" &&
        LD_LIBRARY_PATH="$work/root/opt/tally/lib" "$work/user"
} >"$work/log" 2>&1 && grep -q "^$version shape\$" "$work/log"
result 'install: a program links against the shared library' $?

# A model of one's own, strictly ISO C but for the header's 128-bit counts: what a program that embeds the library does.
# shellcheck disable=SC2046,SC2086
{
    $CC $flags -pedantic $(pkg-config --cflags tally) examples/own_model.c $(pkg-config --libs tally) -o "$work/own" &&
        LD_LIBRARY_PATH="$work/root/opt/tally/lib" "$work/own"
} >"$work/log" 2>&1 && grep -q 'peak planned and kept: the same' "$work/log"
result 'install: a program of ones own trains by tally/tally.h, without a warning of -pedantic' $?

# The map names every header, or a name that begins those of several (ops_*.h).
bad=0
for header in include/tally/*.h; do
    name=$(basename "$header")
    case $name in tally.h | ops_*) continue ;; esac
    sed '/^#ifndef/q' include/tally/tally.h | grep -qw -- "$name" || { echo "$name"; bad=1; }
    grep -q "#include \"tally/$name\"" include/tally/tally.h || { echo "#include $name"; bad=1; }
done >"$work/log"
result 'install: tally/tally.h names and includes every public header' $bad

# shellcheck disable=SC2046,SC2086
{
    $CC $flags $(pkg-config --cflags tally) "$work/user.c" -o "$work/user-static" \
        $(pkg-config --static --libs tally | sed 's/-ltally/-l:libtally.a/') && env -u LD_LIBRARY_PATH "$work/user-static"
} >"$work/log" 2>&1 && grep -q "^$version shape\$" "$work/log"
result 'install: a program links against the static library' $?

objdump -p "$work/root/opt/tally/lib/libtally.so" >"$work/log" 2>&1 && grep -q 'SONAME *libtally\.so\.0$' "$work/log"
result 'install: the shared library has its soname' $?

nm -D --defined-only "$work/root/opt/tally/lib/libtally.so" | awk '$NF !~ /^tl_/' >"$work/log" 2>&1
[ ! -s "$work/log" ]
result 'install: the shared library shows tl_ names alone' $?

make_quietly uninstall
find "$work/root" ! -type d >"$work/log" 2>&1
[ ! -s "$work/log" ]
result 'uninstall: leaves no file' $?
