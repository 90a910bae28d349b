#!/bin/sh
# tally sweep, diff and check: every point of a sweep is what plan itself says, claims hold and fail as arithmetic has it, and
# what is not there is named. Expected figures: GPT-2's published 124,439,808 parameters; plan's own JSON, taken apart here with sed.
set -u
. tests/verb.inc

peak() { # ARGUMENT...: of a plan
    run --json plan "$@"
    sed -n 's/^ *"peak_bytes": \([0-9]*\),*$/\1/p' "$work/out" | head -1
}

# ---- sweep ----
one=$(peak gpt2 --seq 128 --micro-batch 2 -g A100-80G) two=$(peak gpt2 --seq 256 --micro-batch 2 -g A100-80G)
run --format csv sweep gpt2 seq=128..256*2 --micro-batch 2 -g A100-80G
[ $? -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 3 ] && grep -q "^128,$one," "$work/out" && grep -q "^256,$two," "$work/out"
said 'a point is a plan' $?
run --format csv sweep gpt2 seq=128,256 optim=adamw,sgd,adamw8bit -g A100-80G
[ $? -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 7 ] && grep -q "^128,adamw8bit," "$work/out"
said 'two inputs, a row a point' $?
run sweep gpt2 seq=128,256 recompute=none,full -g A100-80G --show flops.hardware_per_step
[ $? -eq 0 ] && has 'seq \ recompute none full' && [ "$(wc -l <"$work/out")" -eq 5 ]
said 'two inputs as a square' $?
run sweep gpt2 micro-batch=1..8*2 -g A100-80G --seq 128
[ $? -eq 0 ] && grep -q '^ *8 .*████████████████████████ *$' "$work/out" && [ "$(wc -m <"$work/out")" -le 480 ]
said 'drawn' $?
run sweep gpt2 model=gpt2,gpt2-medium --seq 64 -g A100-80G
[ $? -eq 0 ] && grep -q '^gpt2-medium ' "$work/out"
said 'models as an input' $?
run sweep gpt2 seq=512,2048 -g A100-80G
[ $? -eq 0 ] && err '1 of 2 points are no plan' && err '1024 positions' && grep -q '^ *2048 .*(no plan)' "$work/out"
said 'a point that cannot be is named, the others stand' $?
run --json sweep gpt2 seq=512,2048 -g A100-80G
[ $? -eq 0 ] && grep -q '"error": "tokens are' "$work/out" && grep -q '"verb": "sweep"' "$work/out"
said 'also in JSON' $?
gives 'every point impossible' 2 '2 of 2 points are no plan' sweep gpt2 seq=2048,4096 -g A100-80G
gives 'nothing varies' 2 'nothing varies' sweep gpt2 seq=5
gives 'three vary' 2 'two at once' sweep gpt2 seq=1,2 micro-batch=1,2 optim=sgd,adam
gives 'no name' 2 'an input is NAME=VALUES' sweep gpt2 512,1024
gives 'a range that goes down' 2 'upwards' sweep gpt2 seq=8..4
gives 'a range that never ends' 2 'upwards' sweep gpt2 'seq=8..16*1'
gives 'too many' 2 'more than 256 values' sweep gpt2 seq=1..1000
gives 'twice' 2 'given twice' sweep gpt2 seq=1,2 seq=3
gives 'a value that is not there' 2 'did you mean memory.peak_bytes' sweep gpt2 seq=64,128 --show peek_bytes
gives 'an option that is not there' 2 'points are no plan; the first: there is no option --sequel' sweep gpt2 sequel=1,2

# ---- diff ----
run diff 'gpt2 --seq 128 -g A100-80G' 'tally plan gpt2 --seq 128 -g A100-80G --recompute full'
[ $? -eq 0 ] && has 'recompute: none' && has 'by_phase.forward' && has ' hardware_per_step' && ! has ' per_step ' &&
    sed -n 1p "$work/out" | grep -q '^B holds as much at the peak, takes .* more a step (+'
said 'a change and what came of it; model FLOPs are the same' $?
run diff 'gpt2 --seq 128 -g A100-80G' 'gpt2 --seq 128 -g A100-80G'
[ $? -eq 0 ] && has 'no difference'
said 'the same plan twice' $?
run --json plan gpt2 --seq 128 -g A100-80G
cp "$work/out" "$work/plan.json"
run --format csv diff "$work/plan.json" 'gpt2 --seq 128 -g A100-80G --optim sgd'
[ $? -eq 0 ] && grep -q '^setting,layout.optim,adamw,sgd,' "$work/out" && grep -q '^memory,memory.by_category.optim,995518464' "$work/out"
said 'a file beside a command line; AdamW holds 8 bytes a parameter' $? # 8 × 124,439,808
awk -F, '$1 == "memory" { d = $5 < 0 ? -$5 : $5; if (seen && d > last) bad = 1; last = d; seen = 1 } END { exit bad || !seen }' "$work/out"
said 'the largest difference first' $?
gives 'no such thing' 2 'nosuch' diff nosuch gpt2
gives 'an open quote' 2 'a quote is open' diff "gpt2 '" gpt2
printf '{"a": 39812345678901234567890, "schema": "tally/1", "verb": "plan"}' >"$work/large.json"
printf '{"a": 49812345678901234567890, "schema": "tally/1", "verb": "plan"}' >"$work/larger.json"
run diff "$work/large.json" "$work/larger.json"
[ $? -eq 0 ] && has 'a 4.0e22 5.0e22' && has '+25.1 %'
said 'counts beyond 64 bits' $? # 49812…/39812… = 1.2512

# ---- check ----
run check 'gpt2 --seq 128 -g A100-80G' fits parameters==124439808 'peak_bytes<=80GB' "peak_bytes>=$one" 'parameters<0.2B' 'layout.optim==adamw' 'peak_phase!=init'
code=$?
[ $code -eq 3 ] && grep -q '^VIOLATED  memory.peak_bytes >=' "$work/out" && [ "$(grep -c '^ok ' "$work/out")" -eq 6 ] && has '6 of 7 hold'
said 'claims: one of seven fails, since that peak was of a larger batch' $?
run check "$work/plan.json" 'memory.by_category.optim==995518464'
said 'a file' $?
run --json check "$work/plan.json" 'peak_bytes<1'
[ $? -eq 3 ] && grep -q '"result": "violated"' "$work/out"
said 'JSON, exit 3' $?
run check 'llama-3.1-405b -g A100-80G' fits
[ $? -eq 3 ] && has 'VIOLATED memory.fits false'
said 'a plan that does not fit is a claim that does not hold' $?
gives 'a name that is not there' 2 'did you mean memory.peak_bytes' check gpt2 'peek_bytes<3'
gives 'a number alone' 2 'compare it' check gpt2 peak_bytes
gives 'a bare unit' 2 '80G' check gpt2 'peak_bytes<80G'
gives 'no claim' 2 'a claim is' check gpt2 '<=3'
run train sums --out "$work/run" --model gpt2:N=1,D=16,H=2 --micro-batch 4 --threads 1 --steps 3
run check "$work/run" unaccounted_bytes==0 'peak_bytes>0' steps_that_differ==0
said 'a run' $?
run diff "$work/run" "$work/run"
[ $? -eq 0 ] && has 'no difference'
said 'a run beside itself' $?
run diff "$work/run" 'gpt2 --seq 128 -g A100-80G'
# 12·16² + 13·16 of its block, (13 + 12)·16 of its tables, 2·16 of the last norm, 4 bytes each; 2 bytes × 124,439,808
[ $? -eq 0 ] && has 'by_category.param 14.8 kB 248.9 MB' && has 'hardware_per_step' && has 'only B' && sed -n 1p "$work/out" | grep -q 'more at the peak'
said "a run beside a plan: what was measured beside what is planned, by the plan's names" $?
