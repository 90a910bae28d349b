#!/bin/sh
# docs/lecture.md: every command of the page is run, and prints what the page says. `sh tests/test_lecture_doc.sh update`
# writes the page anew; read the difference then. Figures of the lecture: CS336 lecture 2, spring 2025 (named on the page);
# tests/test_lecture.c and tests/test_examples.sh hold them against their sources.
set -u
here=$(pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$here/$build ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/run"
# The page speaks of build/… as seen from the repository, and of texts it brings.
ln -s "$build" "$work/run/build"
ln -s "$here/docs" "$work/run/docs"
ln -s "$here/examples" "$work/run/examples"
PATH=$build:$PATH COLUMNS=80 LC_ALL=C.UTF-8 XDG_CACHE_HOME=$work/cache
export PATH COLUMNS LC_ALL XDG_CACHE_HOME
unset NO_COLOR CLICOLOR_FORCE
cd "$work/run" || exit 1
if [ "${1-}" = update ]; then
    awk -v mode=update -v work="$work" -f "$here/tests/doc_console.awk" "$here/docs/lecture.md" >"$work/page" &&
        cp "$work/page" "$here/docs/lecture.md"
    exit
fi
awk -v mode=check -v work="$work" -f "$here/tests/doc_console.awk" "$here/docs/lecture.md"
