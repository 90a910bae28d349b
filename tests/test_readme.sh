#!/bin/sh
# README.md: the commands of its first screens are run, and print what the page says; those that train are in
# tests/test_train.sh and tests/test_flow.sh. Lines of the source move: their numbers are not compared.
set -u
here=$(pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$here/$build ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/run"
ln -s "$build" "$work/run/build"
COLUMNS=80 LC_ALL=C.UTF-8 XDG_CACHE_HOME=$work/cache
export COLUMNS LC_ALL XDG_CACHE_HOME
unset NO_COLOR CLICOLOR_FORCE
awk '/^And a run, beside its plan/ { exit } { print }' README.md >"$work/page"
grep '^\$ build/tally ' "$work/page" | cut -c3- >"$work/commands"
cd "$work/run" || exit 1
failed=0 n=0
plain() { sed 's/\(\.c:\)[0-9][0-9]*/\1N/g'; }
while read -r command; do
    n=$((n + 1))
    sh -c "$command" </dev/null 2>&1 | plain >"$work/said"
    awk -v command="$command" '$0 == "$ " command { on = 1; next } /^```/ { on = 0 } on && !/^ *…$/ && NF' "$work/page" |
        plain >"$work/shown"
    if [ -s "$work/shown" ] && ! grep -vxFf "$work/said" "$work/shown" >"$work/wrong"; then
        echo "ok readme: $command"
    else
        sed 's/^/# not printed: /' "$work/wrong"
        echo "not ok readme: $command"
        failed=1
    fi
done <"$work/commands"
[ "$n" -ge 4 ] || {
    echo "not ok readme: shows 4 commands or more, not $n"
    failed=1
}
exit $failed
