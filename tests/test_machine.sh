#!/bin/sh
# tally machine: measured once and then read, a page of 80 columns, JSON that holds together, and caches that are no use.
set -u
TALLY=${TALLY:-build/tally}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
LC_ALL=C.UTF-8
XDG_CACHE_HOME=$work/cache
export LC_ALL XDG_CACHE_HOME
unset COLUMNS NO_COLOR
file=$XDG_CACHE_HOME/tally/machine.json

result() { # NAME, status of the test before
    if [ "$2" -eq 0 ]; then echo "ok $1"; else
        sed 's/^/# out: /' "$work/out" | head -40
        sed 's/^/# err: /' "$work/err" | head -10
        echo "not ok $1"
    fi
}
run() { timeout 60 "$TALLY" "$@" >"$work/out" 2>"$work/err" </dev/null; }
milliseconds() { date +%s%N | sed 's/......$//'; }

run machine --quick --threads 1 --json && grep -q '"measured_now": true' "$work/out" && [ -s "$file" ] &&
    grep -q 'measuring this machine' "$work/err"
result 'machine: measures and keeps it' $?
[ "$(find "$XDG_CACHE_HOME/tally" -type f | wc -l)" -eq 1 ]
result 'machine: no temporary file is left' $?

# Every number of the figures is one, shares are at most 1 (rounding aside), and the brackets close: python is only a reader.
if command -v python3 >/dev/null 2>&1; then
    python3 - "$work/out" >>"$work/err" 2>&1 <<'TEXT'
import json, sys
m = json.load(open(sys.argv[1]))
assert m["schema"] == "tally/1" and m["verb"] == "machine" and m["threads"] == 1
assert m["peak_flop_per_s"]["fp32"] > 1e8
assert 0 < m["available_bytes"] <= m["memory_bytes"]
assert [l["level"] for l in m["bandwidth"]] == [l for l in ("L1", "L2", "L3", "memory") if l in [x["level"] for x in m["bandwidth"]]]
assert all(l["bytes_per_s"] > 1e6 for l in m["bandwidth"])
assert {p["dtype"] for p in m["products"]} == {"fp32", "bf16"}
for p in m["products"]:
    assert 0 < p["share_of_peak"] <= 1 + 1e-12
    assert abs(p["share_of_peak"] * m["peak_flop_per_s"][p["dtype"]] / p["flop_per_s"] - 1) < 1e-9
TEXT
    result 'machine: the JSON is whole and agrees with itself' $?
else
    echo 'no python3 to read the JSON with'
    echo 'skip machine: the JSON is whole and agrees with itself'
fi

cp "$work/out" "$work/first"
start=$(milliseconds)
run machine --threads 1 --json
code=$?
took=$(($(milliseconds) - start))
[ $code -eq 0 ] && grep -q '"measured_now": false' "$work/out" && [ ! -s "$work/err" ] && [ "$took" -lt 700 ]
result "machine: the second time it is read" $?
grep -v -e measured_now -e available_bytes "$work/first" >"$work/a"
grep -v -e measured_now -e available_bytes "$work/out" >"$work/b"
cmp -s "$work/a" "$work/b"
result 'machine: what is read is what was measured, every digit' $?

run machine --threads 1 && [ "$(awk '{ n = length($0); if (n > most) most = n } END { print most }' "$work/out")" -le 80 ] &&
    grep -q 'FLOP/s fp32 ' "$work/out" && grep -q '^memory  *[0-9]' "$work/out" && grep -q '^128×128×128 ' "$work/out" &&
    grep -q 'measured .* ago' "$work/out"
result 'machine: a page of 80 columns' $?
run --format csv machine --threads 1 && [ "$(head -n 1 "$work/out")" = 'what,name,m,n,k,bytes,value,unit' ] &&
    awk -F, 'NF != 8 { exit 1 }' "$work/out" && grep -q '^product,fp32,128,128,128,,[0-9.e+]*,FLOP/s$' "$work/out"
result 'machine: csv' $?

echo '{"schema":"tally/machine/1"' >"$file"
run machine --threads 1 --quick --json && grep -q '"measured_now": true' "$work/out" && grep -q 'machine.json:' "$work/err"
result 'machine: a broken cache is said to be, and measured again' $?

: >"$work/file"
XDG_CACHE_HOME=$work/file run machine --threads 1 --quick --json
[ $? -eq 0 ] && grep -q '"cache": null' "$work/out" && grep -q 'not kept for the next time' "$work/err"
result 'machine: no place for the cache is no failure' $?

refuses() { # NAME, TEXT, ARGUMENT...
    name=$1 text=$2
    shift 2
    run "$@"
    code=$?
    [ $code -eq 2 ] && grep -qF -- "$text" "$work/err" && [ ! -s "$work/out" ]
    result "machine: refuses $name" $?
}
refuses 'no threads' 'from 1 to 1024' machine --threads 0
refuses 'too many threads' 'from 1 to 1024' machine --threads 1025
refuses 'threads that are no number' 'many' machine --threads many
refuses 'an argument' 'takes no arguments' machine fast
