#!/bin/sh
# Which lever lets most fit: every largest batch and context is held against `tally plan' itself: it fits, and one more does not.
set -u
. tests/verb.inc

XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

# The rows as csv, split into words of options and numbers: change|value|arena|peak|extra|effect
rows() { # ARGUMENT...
    run fit "$@" --levers --format csv && tail -n +2 "$work/out" | tr -d '"' |
        awk -F, '{ print $1 "|" $2 "|" $3 "|" $5 "|" $14 "|" $15 "|" $16 }' >"$work/rows"
    [ -s "$work/rows" ]
}
value() { awk -F'|' -v change="$1" '$1 == change { print $2 }' "$work/rows"; }
plan_bytes() { # ARGUMENT...: arena of a plan; its exit status
    run plan "$@" --json
    status=$?
    tr -d ' \n' <"$work/out" | grep -o '"arena_bytes":[0-9]*' | head -1 | cut -d: -f2 >"$work/arena"
    return $status
}

# GPT-2 XL on one A100-80G, T = 1024, AdamW in fp32.
xl="gpt2-xl -g A100-80G --seq 1024"
# shellcheck disable=SC2086
rows batch $xl --precision fp32
said "batch: rows as csv" $?
while IFS='|' read -r change most arena _ _ _ _; do
    what=$change
    case $change in *--precision*) ;; *) what="$change --precision fp32" ;; esac
    # shellcheck disable=SC2086
    plan_bytes $xl $what --micro-batch "$most"
    fits=$?
    read -r planned <"$work/arena"
    # shellcheck disable=SC2086
    plan_bytes $xl $what --micro-batch "$((most + 1))"
    over=$?
    [ $fits -eq 0 ] && [ $over -eq 3 ] && [ "$planned" -eq "$arena" ]
    said "batch: $most fits, $((most + 1)) does not: ${change:-as asked}" $?
done <"$work/rows"
eager=$(value "") flash=$(value "--attention flash") full=$(value "--recompute full")
both=$(value "--recompute full --attention flash") loss=$(value "--recompute full --attention flash --loss fused:8")
[ "$eager" -lt "$flash" ] && [ "$flash" -lt "$both" ] && [ "$full" -lt "$both" ] && [ "$both" -lt "$loss" ]
said "batch: more levers, more fits ($eager, flash $flash, full $full, both $both, with the loss in parts $loss)" $?
# State: 1,557,611,200 parameters (models.csv) in 4+4+4+4 bytes, 24.9 GB of 85.2. Eager keeps softmax, mask and what is dropped of
# 25 heads and 48 layers (Korthikanti et al. 2022, section 4.1): 9 bytes a score in fp32, 11.3 GB a sequence, so at most 5. Full
# recompute keeps each block's input, 4·T·D bytes, 48 times, and logits and their gradient, 8·T·V: 0.73 GB, so at most 83.
[ "$eager" -ge 2 ] && [ "$eager" -le 5 ] && [ "$full" -gt 60 ] && [ "$full" -le 83 ]
said "batch: as many as the paper's terms let expect" $?
# shellcheck disable=SC2086
gives "batch: the largest lever is named" 0 "largest lever --recompute full: micro-batch $full instead of $eager" \
    fit batch $xl --precision fp32 --levers
has "farthest --recompute full --attention flash --loss fused:8: micro-batch $loss instead of $eager"
said "batch: and the farthest" $?
awk '{ if (length($0) > 80) exit 1 }' "$work/out"
said "batch: within 80 columns" $?
# Full recompute runs each block's forward again: a third more of all but the head, 3·(12·N·D² + 2·N·T·D) against that and 3·V·D.
extra=$(awk -F'|' '$1 == "--recompute full" { print $5 }' "$work/rows")
awk -v x="$extra" 'BEGIN { n = 48; d = 1600; t = 1024; v = 50257; b = 12*n*d*d + 2*n*t*d; e = 100*b/(3*(b + v*d)); exit !(x > e - 0.01 && x < e + 0.01) }'
said "batch: extra FLOPs of full recompute ($extra %)" $?
# shellcheck disable=SC2086
run fit batch $xl --precision fp32 --levers --json
tr -d ' \n' <"$work/out" >"$work/flat"
grep -q '"what":"batch","model":"gpt2-xl","device":"A100-SXM4-80GB"' "$work/flat" &&
    grep -q "\"largest_lever\":{\"change\":\"--recomputefull\",\"value\":$full,\"as_asked\":$eager}" "$work/flat" &&
    grep -q '"levers":\[{"change":"","value":'"$eager"',"arena_bytes":[0-9]*,"state_bytes":[0-9]*,"peak_bytes":[0-9]*,"peak_phase":"[a-z]*","param":6230444800,' "$work/flat"
said "batch: JSON" $?
if command -v python3 >/dev/null 2>&1; then
    python3 - "$work/out" <<'P' >"$work/err" 2>&1
import json, sys
a = json.load(open(sys.argv[1]))
for r in a["levers"]:
    assert r["arena_bytes"] <= a["usable_bytes"] < r["next_bytes"], r
    assert r["state_bytes"] == r["param"] + r["grad"] + r["master"] + r["optim"]
    assert r["state_bytes"] + r["saved"] + r["work"] <= r["peak_bytes"] <= r["arena_bytes"]
kept = [r for r in a["levers"] if r["effect"] in ("as asked", "same run", "same mathematics")]
assert max(r["value"] for r in kept) == a["farthest"]["value"]
assert max(r["value"] for r in kept if r["alone"]) == a["largest_lever"]["value"]
P
    said "batch: JSON adds up" $?
fi

# A context: of a model with rotary positions.
rows context llama-3.2-1b -g A100-40G
said "context: rows as csv" $?
grep -e '^|' -e '^--attention flash|' -e '^--recompute full --attention flash --loss fused:8|' "$work/rows" >"$work/some"
while IFS='|' read -r change most arena _ _ _ _; do
    # shellcheck disable=SC2086
    plan_bytes llama-3.2-1b -g A100-40G $change --seq "$most"
    fits=$?
    read -r planned <"$work/arena"
    # shellcheck disable=SC2086
    plan_bytes llama-3.2-1b -g A100-40G $change --seq "$((most + 1))"
    over=$?
    [ $fits -eq 0 ] && [ $over -eq 3 ] && [ "$planned" -eq "$arena" ]
    said "context: $most fits, one more does not: ${change:-as asked}" $?
done <"$work/some"
gives "context: the model's own limit" 0 "as much, in" fit context gpt2 -g H100 --levers

# The options alone.
gives "batch: with adapters" 0 "--lora 16" fit batch llama-3.2-1b -g A100-40G --seq 1024 --lora 16
gives "batch: what was asked is no lever" 0 "largest lever" fit batch gpt2 -g A100-40G --attention flash --loss fused --levers
has "--attention flash"
[ $? -ne 0 ]
said "batch: it is not listed again" $?
# Norms and feed-forwards in one op leave the mathematics as it is, gradients in bf16 do not: each is a lever of its own.
gives "batch: gradients in 32 bits" 0 "--grads parameters" fit batch llama-3.2-1b -g A100-40G --seq 1024 --grads f32 --levers
! grep -q -- '^ *--glu fused --grads parameters  ' "$work/out" && grep -q -- '^ *--grads parameters  ' "$work/out" &&
    grep -q -- '^ *--glu fused  ' "$work/out"
said "batch: fused forms and the format of gradients are two levers" $?
gives "nothing fits" 3 "nothing fits as asked, nor with all that helps" fit batch llama-3.1-405b -g T4 --levers --seq 64
gives "model: has no levers" 2 "fit batch MODEL" fit model -g H100 --levers
gives "devices: nor have they" 2 "what makes it fit" fit devices gpt2 -g H100 --levers
gives "model: adapters change nothing" 2 "changes nothing for \`fit model'" fit model -g H100 --lora 16
