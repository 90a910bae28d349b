#!/bin/sh
# The scripts that everything else is believed through: the test runner's counts, the package check, the list of ops.
set -u
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
check() {
    if [ "$2" = "$3" ]; then
        echo "ok $1"
    else
        echo "# expected: $3"
        echo "# found:    $2"
        echo "not ok $1"
    fi
}

# runner NAME EXPECTED BODY...: run a script of these lines through run-tests.sh; compare its last line and exit status.
runner() {
    name=$1
    expected=$2
    shift 2
    printf '%s\n' "$@" >"$work/case.sh"
    found=$(BUILD=$work TEST_TIMEOUT=1 TESTS_ONLY='' SANITIZE='' sh "$here/tools/run-tests.sh" "$work/case.sh" 2>&1)
    code=$?
    check "runner: $name" "$(echo "$found" | tail -n 1) / $code" "$expected"
}
runner 'counts what passed' '2 passed, 0 failed, 0 skipped / 0' 'echo ok a' 'echo ok b'
runner 'counts what failed' '1 passed, 1 failed, 0 skipped / 1' 'echo ok a' 'echo not ok b' 'exit 1'
runner 'counts a failure that exits with 0' '0 passed, 1 failed, 0 skipped / 1' 'echo not ok b'
runner 'counts what was skipped' '1 passed, 0 failed, 1 skipped / 0' 'echo ok a' 'echo skip b: none here'
runner 'counts a skip as cmocka 1.1.5 writes it' '1 passed, 0 failed, 1 skipped / 0' 'echo 1..2; echo ok 1 - a; echo "not ok 2 # SKIP b"'
runner 'a crash is a failure' '1 passed, 1 failed, 0 skipped / 1' 'echo ok a' 'kill -SEGV $$'
runner 'a failing exit alone is a failure' '1 passed, 1 failed, 0 skipped / 1' 'echo ok a' 'exit 3'
runner 'a test that never ran is a failure' '1 passed, 1 failed, 0 skipped / 1' 'echo 1..2' 'echo ok 1 - a'
runner 'no test at all is a failure' '0 passed, 1 failed, 0 skipped / 1' 'true'
runner 'a hang is a failure' '1 passed, 1 failed, 0 skipped / 1' 'echo ok a' 'sleep 20'
# Side by side, and neither hides the other.
printf '#!/bin/sh\necho not ok a\nexit 1\n' >"$work/case"
printf 'echo ok b\n' >"$work/case.sh"
chmod 755 "$work/case"
found=$(BUILD=$work TEST_TIMEOUT=5 TESTS_ONLY='' SANITIZE='' sh "$here/tools/run-tests.sh" "$work/case" "$work/case.sh" 2>&1)
check 'runner: a program and a script of one name' "$(echo "$found" | tail -n 1)" '1 passed, 1 failed, 0 skipped'

packages() {
    # As another user where this one is root: nothing may be installed here.
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=65534 --clear-groups sh -s -- "$@" <"$here/tools/install-packages.sh"
    else
        sh "$here/tools/install-packages.sh" "$@"
    fi
}
if command -v dpkg >/dev/null && command -v setpriv >/dev/null; then
    printf '[here]\ndpkg # runs this\n[absent]\ndpkg\ntally-no-such-package # none\n[other]\ntally-another-package\n' >"$work/packages.txt"
    chmod 755 "$work" && chmod 644 "$work/packages.txt"
    export PACKAGES_FILE="$work/packages.txt"
    packages here >"$work/log" 2>&1
    check 'packages: nothing missing needs no root and says nothing' "$? $(cat "$work/log")" '0 '
    packages absent >"$work/log" 2>&1
    check 'packages: without root the missing one is named' "$? $(head -n 1 "$work/log")" '1 install-packages: missing: tally-no-such-package'
    packages here nowhere >"$work/log" 2>&1
    check 'packages: an unknown section fails' "$? $(cat "$work/log")" "1 install-packages: $work/packages.txt has no section [nowhere]"
    unset PACKAGES_FILE
else
    echo 'skip packages: no dpkg or no setpriv here'
fi

mkdir -p "$work/tree/tools"
cp tools/gen_ops.sh "$work/tree/tools/"
generate() {
    sh "$work/tree/tools/gen_ops.sh" 2>&1
}
compiles() {
    generate >"$work/ops.c" && ${CC:-gcc} -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$work/ops.c" 2>&1 && echo yes
}
check 'ops: no folder is a list of none' "$(generate | tail -n 1)" 'const int tl_op_list_count = 0;'
check 'ops: a list of none is valid C' "$(compiles)" yes
mkdir -p "$work/tree/src/op"
printf 'TL_OP(mul, "x")\n' >"$work/tree/src/op/mul.c"
printf '// TL_OP(no, 1)\n TL_OP(indented, 1)\nTL_OP(add, "x")\nTL_OP(add_scaled,\n' >"$work/tree/src/op/add.c"
check 'ops: declarations at the start of a line, by name' \
    "$(generate | sed -n 's/^    &tl_op_\(.*\),$/\1/p' | tr '\n' ' ')" 'add add_scaled mul '
check 'ops: counted' "$(generate | tail -n 1)" 'const int tl_op_list_count = 3;'
check 'ops: a list is valid C' "$(compiles)" yes
printf 'TL_OP(mul, "x")\n' >"$work/tree/src/op/again.c"
check 'ops: a name declared twice is refused' "$(generate)" 'gen_ops: declared twice in src/op: mul'
