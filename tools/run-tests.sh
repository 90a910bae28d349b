#!/bin/sh
# run-tests.sh FILE...: run cmocka programs and test scripts (*.sh), show what failed or was skipped, and end with the one
# line `N passed, N failed, N skipped`. A program counts by its tests. A crash, a time-out, a test that was announced and
# never ran, or a program that ran nothing is a failure: silence must not look like success.
set -u
BUILD=${BUILD:-build}
TEST_TIMEOUT=${TEST_TIMEOUT:-300}
logs=$BUILD/test-logs
mkdir -p "$logs"
export BUILD
export TALLY="${TALLY:-$BUILD/tally}"
export TALLY_SHARED="${TALLY_SHARED:-../shared}"
export CMOCKA_MESSAGE_OUTPUT=TAP
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1}"

# ThreadSanitizer needs its addresses free, which a kernel that spreads them widely does not promise.
fixed=
case ${SANITIZE:-} in
*thread*) ! setarch "$(uname -m)" -R true 2>/dev/null || fixed="setarch $(uname -m) -R" ;;
esac

total_passed=0
total_failed=0
total_skipped=0
for file in "$@"; do
    name=$(basename "$file" .sh)
    case " ${TESTS_ONLY:-} " in "  " | *" $name "*) ;; *) continue ;; esac
    log=$logs/$name.log
    # shellcheck disable=SC2086 # a command and its options, or nothing
    case $file in
    *.sh) timeout -k 5 "$TEST_TIMEOUT" sh "$file" >"$log" 2>&1 </dev/null ;;
    *) timeout -k 5 "$TEST_TIMEOUT" $fixed "$file" >"$log" 2>&1 </dev/null ;;
    esac
    code=$?
    # Lines `ok …`, `not ok …`, `skip …`; cmocka says `ok 3 # SKIP name` or `not ok 3 # SKIP name` for a skipped test, and
    # first `1..N`. It indents by a tab where groups follow one another.
    counts=$(awk '
        { line = $0; sub(/^[ \t]+/, "", line) }
        line ~ /^1\.\.[0-9]+$/ { planned += substr(line, 4); next }
        line ~ /^(not )?ok .*# SKIP/ { skipped++; next }
        line ~ /^ok / { passed++; next }
        line ~ /^not ok / { failed++; next }
        line ~ /^skip / { skipped++; next }
        END { print passed + 0, failed + 0, skipped + 0, planned + 0 }' "$log")
    read -r passed failed skipped planned <<COUNTS
$counts
COUNTS
    reported=$((passed + failed + skipped))
    note=
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        note="stopped after $TEST_TIMEOUT seconds"
    elif [ "$code" -ge 128 ]; then
        note="ended by signal $((code - 128))"
    elif [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then
        note="exit status $code with no failed test"
    elif [ "$planned" -gt "$reported" ]; then
        note="$((planned - reported)) of $planned tests never ran"
    elif [ "$reported" -eq 0 ]; then
        note='ran no test'
    fi
    [ -z "$note" ] || failed=$((failed + 1))
    if [ "$failed" -gt 0 ]; then
        echo "---- $name: output"
        cat "$log"
        echo '----'
    elif [ "$skipped" -gt 0 ]; then
        # Why something was skipped is said by the test itself, in any line that is not a result.
        grep -v -E "^[[:space:]]*(ok [^#]*$|(# ok|1\.\.[0-9]).*)" "$log" | sed "s/^/  $name: /" | head -40
    fi
    echo "$name: $passed passed, $failed failed, $skipped skipped${note:+ ($note)}"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
done
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" -eq 0 ]
