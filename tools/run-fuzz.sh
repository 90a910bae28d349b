#!/bin/sh
# run-fuzz.sh FUZZER...: run each for FUZZ_SECONDS, from the seeds in fuzz/corpus/NAME where there are some. What is newly
# found stays in build/; an input that fails is kept there and named.
set -u
BUILD=${BUILD:-build/fuzz}
FUZZ_SECONDS=${FUZZ_SECONDS:-20}
if [ $# -eq 0 ]; then
    echo 'no fuzz/fuzz_*.c'
fi
failed=0
for fuzzer in "$@"; do
    program=$(basename "$fuzzer")
    name=${program#fuzz_}
    found=$BUILD/corpus/$name
    mkdir -p "$found" "$BUILD/failed"
    seeds=
    for folder in "fuzz/corpus/$name" "fuzz/corpus/$program"; do
        [ ! -d "$folder" ] || seeds="$seeds $folder"
    done
    # shellcheck disable=SC2086 # a list of folders
    if "$fuzzer" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$BUILD/failed/$name-" "$found" $seeds >"$BUILD/$program.log" 2>&1 </dev/null; then
        echo "ok $program: $(sed -n 's/^stat::number_of_executed_units: *//p' "$BUILD/$program.log") inputs"
    else
        tail -n 60 "$BUILD/$program.log"
        echo "not ok $program"
        failed=$((failed + 1))
    fi
done
[ "$failed" -eq 0 ]
