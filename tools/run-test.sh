#!/bin/sh
# run-test.sh FILE: one cmocka program or test script for run-tests.sh: its output into a log, its counts into a file beside it
# ("passed failed skipped"), and what there is to say of it on stdout, at once, so that tests side by side do not mix.
set -u
file=$1
name=$(basename "$file" .sh)
key=$(basename "$file") # a program and a script may have one name
log=$TEST_LOGS/$key.log

# ThreadSanitizer needs its addresses free, which a kernel that spreads them widely does not promise.
fixed=
case ${SANITIZE:-} in
*thread*) ! setarch "$(uname -m)" -R true 2>/dev/null || fixed="setarch $(uname -m) -R" ;;
esac
started=$(date +%s)
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
said=$TEST_LOGS/$key.said
{
    if [ "$failed" -gt 0 ]; then
        echo "---- $name: output"
        cat "$log"
        echo '----'
    elif [ "$skipped" -gt 0 ]; then
        # Why something was skipped is said by the test itself, in any line that is not a result.
        grep -v -E "^[[:space:]]*(ok [^#]*$|(# ok|1\.\.[0-9]).*)" "$log" | sed "s/^/  $name: /" | head -40
    fi
    echo "$name: $passed passed, $failed failed, $skipped skipped${note:+ ($note)} ($(($(date +%s) - started)) s)"
} >"$said"
cat "$said"
echo "$passed $failed $skipped" >"$TEST_LOGS/$key.counts"
