#!/bin/sh
# How long the command takes as a whole process to plan each model of the catalogue: it starts, runs two training steps on meta,
# searches for what would fit, prints, and ends. Median of ROUNDS (5) runs each; the bar is 100 ms.
set -u
TALLY=${TALLY:-build/tally}
ROUNDS=${ROUNDS:-5}
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
awk '{ t[NR] = $1 / 100; m[NR] = $2 } END {
    if (!NR) exit 1
    for (i = 1; i <= NR; i++) over += t[i] > 100
    printf "plan, whole process: %d models, median %.0f ms, %d above 100 ms, slowest:\n", NR, t[int((NR + 1) / 2)], over
    for (i = NR; i > NR - 5 && i > 0; i--) printf "  %-28s %6.1f ms%s\n", m[i], t[i], (t[i] > 100 ? "   above the bar of 100 ms" : "")
}' "$work/times"
