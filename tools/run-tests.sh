#!/bin/sh
# run-tests.sh FILE...: run cmocka programs and test scripts (*.sh), as many at once as the machine has cores (TEST_JOBS), show
# what failed or was skipped, and end with the one line `N passed, N failed, N skipped`. A program counts by its tests. A crash, a
# time-out, a test that was announced and never ran, or a program that ran nothing is a failure: silence must not look like success.
set -u
BUILD=${BUILD:-build}
TEST_TIMEOUT=${TEST_TIMEOUT:-300}
TEST_JOBS=${TEST_JOBS:-$(nproc 2>/dev/null || echo 1)}
TEST_LOGS=$BUILD/test-logs
export BUILD TEST_TIMEOUT TEST_LOGS
export TALLY="${TALLY:-$BUILD/tally}"
export TALLY_SHARED="${TALLY_SHARED:-../shared}"
export CMOCKA_MESSAGE_OUTPUT=TAP
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1}"
rm -rf "$TEST_LOGS"
mkdir -p "$TEST_LOGS" || exit 1

list=$TEST_LOGS/list
for file in "$@"; do
    name=$(basename "$file" .sh)
    case " ${TESTS_ONLY:-} " in "  " | *" $name "*) echo "$file" ;; esac
done >"$list"
xargs -P "$TEST_JOBS" -n 1 sh "$(dirname "$0")/run-test.sh" <"$list"

total_passed=0
total_failed=0
total_skipped=0
while read -r file; do
    counts=$TEST_LOGS/$(basename "$file").counts
    if [ ! -s "$counts" ]; then
        echo "$file: was not run"
        total_failed=$((total_failed + 1))
        continue
    fi
    read -r passed failed skipped <"$counts"
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
done <"$list"
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" -eq 0 ]
