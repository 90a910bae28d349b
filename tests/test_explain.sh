#!/bin/sh
# tally explain: the answers, their forms at 80 and 120 columns, JSON, and what is refused.
# Expected values: shared/UX.md (gpt2-xl's formula), shared/DESIGN.md (GPT-2's forward FLOPs), shared/data/cs336.md (CS336's
# accounting), shared/FAULTS.md (Llama-2-7B at 4×8192: 1721.22 and 1510.14 TFLOP).
set -u
TALLY=${TALLY:-build/tally}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C.UTF-8
export LC_ALL
unset COLUMNS NO_COLOR

result() { # NAME, status of the test before
    if [ "$2" -eq 0 ]; then echo "ok $1"; else
        sed 's/^/# out: /' "$work/out" | head -30
        sed 's/^/# err: /' "$work/err" | head -10
        echo "not ok $1"
    fi
}
run() {
    timeout 60 "$TALLY" "$@" >"$work/out" 2>"$work/err" </dev/null
    ran=$?
    tr -s '\n ' '  ' <"$work/out" >"$work/flat"
    return $ran
}
gives() { # NAME TEXT ARGUMENT...: exits 0 and says TEXT, lines joined
    name=$1 text=$2
    shift 2
    run explain "$@" && grep -qF -- "$text" "$work/flat"
    result "$name" $?
}
refuses() { # NAME STATUS TEXT ARGUMENT...: exits so, says TEXT on stderr and nothing on stdout
    name=$1 status=$2 text=$3
    shift 3
    run explain "$@"
    [ $? -eq "$status" ] && grep -qF -- "$text" "$work/err" && [ ! -s "$work/out" ]
    result "$name" $?
}

gives "params: gpt2-xl" "1,557,611,200 = N·(4·D² + 2·D·F + 9·D + F) + D·V + D·C + 2·D" gpt2-xl params
gives "params: where each symbol came from" "N 48 n_layer" gpt2-xl params
gives "params: what the family assumes" "F 6400 4·D assumed by gpt2" gpt2-xl params
gives "params: without the tables" "non-embedding 1,475,561,600" gpt2-xl params
gives "params: 124M, 163M or 85M" "163,037,184; non-embedding 85,056,000; in the 12 blocks 85,054,464" gpt2 params
gives "params: steps put the numbers in" "h.*.attn.c_attn.weight = 3·N·D² = 3·12·768² = 21,233,664" gpt2 params --steps
gives "flops: GPT-2's forward" "forward 3,506,703,564,800 = 2·B·T·(N·(4·D² + 2·D·F + 2·D·T) + D·V)" gpt2-xl flops
gives "flops: CS336's shares" "qkv 16.73 % | scores+AV 7.14 % | out 5.58 % | ffn 66.91 % head 3.65 %" cs336-gpt2-xl flops
gives "flops: CS336's XL" "forward 4,513,336,524,800" cs336-gpt2-xl flops
gives "flops: at T = 16384" "forward 149,522,795,724,800" cs336-gpt2-xl flops --seq 16384
gives "flops: full" "1,721,2" llama-2-7b flops --seq 8192 --micro-batch 4
gives "flops: causal beside it" "1,510,1" llama-2-7b flops --seq 8192 --micro-batch 4
gives "flops: 6·P·tokens and the difference" "= 12·B·T²·N·D" gpt2-xl flops
gives "flops: steps" "qkv h.*.attn.c_attn linear = 6·B·T·N·D²" gpt2-xl flops --steps
gives "flops: accumulation is a symbol" "A 3 micro-batches of a step" gpt2 flops --global-batch 3
gives "memory: the phase and its runner-up" "the runner-up" gpt2 memory
gives "memory: whether another phase takes over" "no other phase takes the peak over for T from 1 to 1,024" gpt2 memory
gives "memory: unequal layers stay apart" "+ last N [" llama-3-8b memory --seq 2048 --steps
gives "memory: AdamW in fp32 is 8 bytes a parameter" "= 8·(N·(4·D² + 2·D·F + 9·D + F) + D·V + D·C + 2·D)" \
    gpt2 memory --precision fp32
gives "set: other sizes" "N 3 --set" gpt2 params --set N=3,D=24,H=4
gives "set: what follows, follows" "F 96 4·D" gpt2 params --set N=3,D=24,H=4
gives "adamw: the batch" "15,517,753,344·batch + 34,032,921,600 B, parameters gated: 2 in 80 GB (80e9), 3 in 80 GiB" \
    cs336-gpt2-xl adamw
gives "adamw: ungated" "26,168,601,600 B, parameters ungated: 3 in 80 GB, 3 in 80 GiB" cs336-gpt2-xl adamw
gives "adamw: the expression" "B·T·(N·(2·H·T + 8·D + 2·F) + D + 2·V)" cs336-gpt2-xl adamw
gives "adamw: days" "6354.4 by 6·B·T·P 6583.6 by counted products, gated 5115.2 by counted products, ungated" \
    cs336-gpt2-xl adamw
gives "adamw: devices" "1: 17.4 years, 64: 99 days, 256: 25 days, 1024: 6.2 days" cs336-gpt2-xl adamw
gives "adamw: a step, its terms the sum" "14·P = 29,778,806,400 (+ - × ÷ √, one each) each m 3, v 4, √v, + ε, times the step, ÷ and - 5, decay 2;" \
    cs336-gpt2-xl adamw # 3 + 4 + 5 + 2 = 14 of 2,127,057,600

gives "flops: selective computes attention's core again" "again 38,654,705,664 for backward (4.42 % of the above) = 4·B·T²·N·D" \
    gpt2 flops --recompute selective
gives "flops: and what is executed" "hardware 913,599,627,264 executed" gpt2 flops --recompute selective
# In the first block's attention: x and its norm 2 + 2, q, k, v 6, the embedding's mask 1; the norm's statistics 8; softmax 2,
# mask 1 and their product 2 of each score. Of the other blocks nothing is left.
gives "memory: one block's inside at the peak" "saved 71.6 MB 3.4 % = B·T·(5·H·T + 11·D + 8)" gpt2 memory --recompute full
# Flash keeps the output and one fp32 statistic a row and head in place of softmax, mask and what is dropped, 5·B·H·T² bytes
# (Dao et al. 2022, section 3; Korthikanti et al. 2022, section 4.1).
gives "memory: flash keeps no T²" "saved 428.5 MB 18.8 % = N·(18·B·D·T + 4·B·F·T + 4·B·H·T + 16·B·T) + 5·B·D·T + 2·B·V·T + 12·B·T + 4" \
    gpt2 memory --attention flash
gives "memory: eager's do" "saved 1.18 GB 39.1 % = N·(5·B·H·T² + 18·B·D·T + 4·B·F·T + 16·B·T) + 5·B·D·T + 2·B·V·T + 12·B·T + 4" gpt2 memory
gives "memory: the choices are said" "attention=flash,loss=chunked:16" gpt2 memory --attention flash --loss chunked:16
gives "memory: adapters" "adapters of rank 16 over nf4-dq frozen weights" llama-3.2-1b memory --seq 1024 --qlora 16
gives "memory: what changes nothing, and why" "gelu composed changes nothing for llama-3.2-1b: its activation is not GELU" \
    llama-3.2-1b memory --seq 1024 --gelu composed
gives "flops: flash computes scores again" "again 19,327,352,832 for backward" gpt2 flops --attention flash
refuses "flops are products alone" 2 "memory takes it" gpt2 flops --norm composed
refuses "params has no attention" 2 "flops and memory take it" gpt2 params --attention flash
refuses "adamw fixes attention" 2 "--attention: the handout's problem fixes it" cs336-gpt2-xl adamw --attention flash
refuses "recompute changes no parameters" 2 "changes nothing" gpt2 params --recompute full
refuses "no topic" 2 "needs MODEL and a topic" gpt2
refuses "another topic" 2 "did you mean params?" gpt2 parms
refuses "another model" 2 "gpt2" gpt2x params
refuses "set: no size" 2 "B is --micro-batch" gpt2 params --set B=3
refuses "set: no number" 2 "--set N" gpt2 params --set N=x
refuses "set: twice" 2 "N is given twice" gpt2 params --set N=3,N=4
refuses "set: a comma too many" 2 "ends with a comma" gpt2 params --set N=3,
refuses "set: what cannot be" 2 "D" gpt2 params --set D=25
refuses "a batch that is no multiple" 2 "multiple" gpt2 flops --micro-batch 2 --global-batch 3
refuses "a sequence beyond the positions" 1 "1024" gpt2 flops --seq 2048
refuses "flops knows no optimizer" 2 "memory takes it" gpt2 flops --optim sgd
refuses "memory counts no causal half" 2 "flops takes it" gpt2 memory --flops causal
refuses "params has no batch" 2 "flops and memory take it" gpt2 params --seq 8
refuses "adamw fixes its precision" 2 "--precision" cs336-gpt2-xl adamw --precision fp32
refuses "adamw of the Cruncher" 2 "transformer" cruncher adamw

for columns in 80 120; do
    for topic in params flops memory adamw; do
        COLUMNS=$columns run explain cs336-gpt2-xl $topic --steps
        [ $? -eq 0 ] && awk -v most="$columns" '{ gsub(/[\200-\277]/, ""); if (length($0) > most) bad = 1 } END { exit bad }' \
            "$work/out"
        result "$topic: $columns columns are enough" $?
    done
done
LC_ALL=C run explain gpt2-xl params
LC_ALL=C grep -q '[^ -~]' "$work/out"
[ $? -eq 1 ] && grep -qF 'N*(4*D^2 + 2*D*F + 9*D + F)' "$work/flat"
result "ASCII where the terminal has nothing else" $?

for topic in params flops memory adamw; do
    run explain cs336-gpt2-xl $topic --json && tr -d '\n ' <"$work/out" >"$work/flat" &&
        grep -q '^{"schema":"tally/1","verb":"explain","name":".*"value":[0-9]*,"unit":".*"formula":".*"terms":\[{.*"symbols":{.*"D":{"value":1600,"source":"' "$work/flat"
    result "$topic: JSON holds what the contract names" $?
    if command -v python3 >/dev/null 2>&1; then
        python3 - "$work/out" >"$work/err" 2>&1 <<'P'
import json, sys
from fractions import Fraction
a = json.load(open(sys.argv[1]))
s = {k: v["value"] for k, v in a["symbols"].items()}
def value(text):  # python evaluates the printed formula, with exact fractions
    text = text.replace("·", "*").replace("²", "**2").replace("³", "**3")
    return eval(text, {"__builtins__": {}}, {k: Fraction(v) for k, v in s.items()})
assert value(a["formula"]) == a["value"], a["formula"]
assert sum(t["value"] for t in a["terms"]) == a["value"]
assert abs(sum(t["share"] for t in a["terms"]) - 1) < 1e-9
for t in a["terms"]:
    assert value(t["formula"]) == t["value"], t
P
        result "$topic: python evaluates every printed formula to its value" $?
    else
        echo "skip $topic: python evaluates every printed formula to its value (no python3 here)"
    fi
    run explain cs336-gpt2-xl $topic --format csv && head -1 "$work/out" | grep -q '^group,name,what,formula,value,share'
    result "$topic: csv" $?
done
