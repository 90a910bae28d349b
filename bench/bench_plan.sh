#!/bin/sh
# How long the command takes as a whole process to plan each model of the catalogue: it starts, runs two training steps on meta,
# searches for what would fit, prints, and ends. Median of ROUNDS (5) runs each; the bar is BAR (100) ms.
# A busy machine says little about it: tests/test_search.c bounds the work instead.
set -u
TALLY=${TALLY:-build/tally}
ROUNDS=${ROUNDS:-5}
BAR=${BAR:-100}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$TALLY" --format csv models | sed 1d | cut -d, -f1 >"$work/models"
while read -r model; do
    i=0
    while [ $i -lt "$ROUNDS" ]; do
        started=$(date +%s%N)
        "$TALLY" plan "$model" -g 8xH100 >/dev/null 2>&1 </dev/null
        code=$?
        [ $code -eq 0 ] || [ $code -eq 3 ] || echo "bench_plan: $model: exit $code" >&2
        echo $((($(date +%s%N) - started) / 10000))
        i=$((i + 1))
    done | sort -n | sed -n "$((ROUNDS / 2 + 1))p" | sed "s/\$/ $model/"
done <"$work/models" | sort -n >"$work/times"
awk -v bar="$BAR" '{ t[NR] = $1 / 100; m[NR] = $2 } END {
    if (!NR) exit 1
    for (i = 1; i <= NR; i++) over += t[i] > bar
    printf "plan, whole process: %d models, median %.0f ms, largest %.0f ms; ", NR, t[int((NR + 1) / 2)], t[NR]
    if (over) printf "%d above the bar of %d ms, slowest:\n", over, bar
    else printf "all within the bar of %d ms, slowest:\n", bar
    for (i = NR; i > NR - 5 && i > 0; i--) printf "  %-28s %6.1f ms%s\n", m[i], t[i], (t[i] > bar ? "   above the bar" : "")
}' "$work/times"
