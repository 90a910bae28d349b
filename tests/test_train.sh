#!/bin/sh
# tally train and tally ledger as people meet them: a run's files, planned = measured, interrupts, resuming bit for bit,
# refusals. What the last line of metrics.jsonl holds is CLI.md's list; exit statuses are CLI.md's.
set -u
. tests/verb.inc

small='--model gpt2:N=1,D=16,H=2,dropout=0.1 --micro-batch 4 --global-batch 8 --threads 1'
field() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1" | tail -1; }

# ---- a run ----
# shellcheck disable=SC2086 # options in a variable
run train sums --out "$work/a" $small --steps 20 --log-every 5
said 'a run of 20 steps ends with 0' $?
for file in config.json run.json plan.json metrics.jsonl ledger.json evaluation.json checkpoints/latest; do
    [ -s "$work/a/$file" ]
    said "the folder holds $file" $?
done
[ "$(ls "$work/a" | wc -l)" -eq 7 ]
said 'and nothing else' $?
[ "$(wc -l <"$work/a/metrics.jsonl")" -eq 4 ]
said 'one line each five steps' $?
keys=$(tail -1 "$work/a/metrics.jsonl" | tr ',{}' '\n' | sed -n 's/^"\([a-z_]*\)":.*/\1/p' | tr '\n' ' ')
[ "$keys" = 'step loss tokens_per_second mfu planned_peak_bytes measured_peak_bytes planned_flops measured_flops planned_step_seconds measured_step_seconds unplanned_bytes data_wait_seconds ' ]
said 'the last line has the fields of the contract' $?
last=$work/a/metrics.jsonl
[ "$(field "$last" step)" = 20 ] && [ "$(field "$last" planned_peak_bytes)" -gt 0 ] &&
    [ "$(field "$last" planned_peak_bytes)" = "$(field "$last" measured_peak_bytes)" ]
said 'planned peak = measured peak' $?
[ "$(field "$last" planned_flops)" -gt 0 ] && [ "$(field "$last" planned_flops)" = "$(field "$last" measured_flops)" ]
said 'planned FLOPs = measured FLOPs' $?
[ "$(field "$last" unplanned_bytes)" = 0 ]
said 'nothing outside the arena' $?
grep -q 'planned = measured in each of 19 steps' "$work/out"
said 'the report says so of every step after the first' $?
! grep -q "$(printf '\r')" "$work/err" && grep -q ' 20/20 ' "$work/err"
said 'plain lines in a pipe' $?
run inspect "$work/a/config.json"
said 'other verbs read the config.json' $?

# ---- the ledger ----
run ledger "$work/a"
said 'the ledger of the run: equal, exit 0' $?
[ "$(grep -c ' equal$' "$work/out")" -ge 7 ] && ! grep -q DIFFERENT "$work/out"
said 'peak, categories, FLOPs and allocations are equal' $?
for by in category module op line phase; do
    run ledger "$work/a" --by $by
    said "--by $by" $?
done
run --json ledger "$work/a"
code=$?
[ $code -eq 0 ] && grep -q '"equal": *true' "$work/out"
said 'and as JSON' $?
sed 's/"measured": *[0-9]*/"measured": 7/' "$work/a/ledger.json" >"$work/ledger.json"
mkdir "$work/wrong" && mv "$work/ledger.json" "$work/wrong/"
run ledger "$work/wrong"
[ $? -eq 3 ] && grep -q DIFFERENT "$work/out"
said 'where they differ: exit 3' $?
for text in '' '{' '[]' '{"peak_bytes": 3}' '{"peak_bytes": {"planned": "x", "measured": 1}}' '<html>'; do
    printf '%s' "$text" >"$work/wrong/ledger.json"
    run ledger "$work/wrong"
    [ $? -eq 1 ] && [ -s "$work/err" ]
    said "a ledger.json of \"$text\" is refused" $?
done
run ledger "$work/nowhere"
[ $? -eq 2 ]
said 'no such run: exit 2' $?
run ledger "$work/a" --by colour
[ $? -eq 2 ]
said 'no such table: exit 2' $?

# ---- what is wrong with a value is said of whoever gave it ----
cp -r "$work/a" "$work/edited"
for wrong in steps=zero micro-batch=0 lr=fast schedule=steps precision=fp7 recompute=some choice=norm sampler=x groups=x; do
    name=${wrong%%=*}
    sed "s|\"$name\": \"[^\"]*\"|\"$name\": \"${wrong#*=}\"|" "$work/a/run.json" >"$work/edited/run.json"
    run train --out "$work/edited" --resume
    code=$?
    tr -s '\n ' '  ' <"$work/err" >"$work/flat"
    if [ "$name" = sampler ]; then # of token files: sums have none, and what they do not use is not looked at
        [ $code -eq 0 ]
        said 'what a task does not use is not looked at' $?
        continue
    fi
    [ $code -eq 1 ] && grep -q 'run.json' "$work/flat" && ! grep -q -- "--$name" "$work/flat"
    said "a run.json with $wrong is named, and no option" $?
    printf '{"task": "sums", "%s": "%s"}' "$name" "${wrong#*=}" >"$work/wrong.json"
    run train "$work/wrong.json" --dry-run
    code=$?
    tr -s '\n ' '  ' <"$work/err" >"$work/flat"
    [ $code -eq 1 ] && grep -q 'wrong.json' "$work/flat" && ! grep -q -- "--$name" "$work/flat"
    said "so is a task's file with $wrong" $?
    run train sums --dry-run "--$name" "${wrong#*=}"
    [ $? -eq 2 ] && grep -q -- "--$name" "$work/err"
    said "an option --$name ${wrong#*=} is an option" $?
done

# ---- five and five are ten, bit for bit ----
# shellcheck disable=SC2086
run train sums --out "$work/ten" $small --steps 10
# shellcheck disable=SC2086
run train sums --out "$work/five" $small --steps 10 --stop-at 5
run train sums --out "$work/five" --resume
said 'resumes' $?
cmp -s "$work/ten/checkpoints/latest" "$work/five/checkpoints/latest"
said 'five steps, resumed for five: the bits of ten' $?
run ledger "$work/five"
said 'the ledger of the resumed run is equal' $?
for moment in init load save; do
    grep -Eq "^ $moment +([0-9,]+) +\\1 B +equal" "$work/out"
    said "what $moment held: planned = measured" $?
done
sed '/"load": {/,/}/ s/"measured": *[0-9]*/"measured": 7/' "$work/five/ledger.json" >"$work/ledger.json"
mkdir "$work/moved" && mv "$work/ledger.json" "$work/moved/"
run ledger "$work/moved"
[ $? -eq 3 ] && grep -Eq '^ load .* 7 B +DIFFERENT' "$work/out"
said 'loading that held something else: exit 3' $?
run train sums --out "$work/threads" --model gpt2:N=1,D=16,H=2,dropout=0.1 --micro-batch 4 --global-batch 8 --steps 10 --threads 2
cmp -s "$work/ten/checkpoints/latest" "$work/threads/checkpoints/latest"
said 'the same bits on two threads' $?
# FAULTS, "Reproducibility": 1, 2, 3 and 8 threads, and variables by which a BLAS pool would take another number.
for threads in 3 8; do
    OMP_NUM_THREADS=5 OPENBLAS_NUM_THREADS=7 MKL_NUM_THREADS=3 BLIS_NUM_THREADS=4 OMP_DYNAMIC=true "$TALLY" train sums \
        --out "$work/threads$threads" --model gpt2:N=1,D=16,H=2,dropout=0.1 --micro-batch 4 --global-batch 8 --steps 10 \
        --threads $threads >"$work/out" 2>"$work/err"
    cmp -s "$work/ten/checkpoints/latest" "$work/threads$threads/checkpoints/latest"
    said "and on $threads, whatever OMP_NUM_THREADS says" $?
done
run train sums --out "$work/five" --resume --lr 1
[ $? -eq 2 ] && grep -q 'goes on with it' "$work/err"
said 'a resumed run keeps its settings' $?
# shellcheck disable=SC2012 # names of our own making
[ "$(ls "$work/five/checkpoints" | tr '\n' ' ')" = 'latest step-00000005.safetensors step-00000010.safetensors ' ]
said 'two checkpoints are kept' $?
head -c 30000 "$work/ten/checkpoints/step-00000010.safetensors" >"$work/five/checkpoints/step-00000010.safetensors"
run train sums --out "$work/five" --resume
code=$?
tr -s '\n ' '  ' <"$work/err" >"$work/flat"
[ $code -eq 0 ] && grep -q 'step-00000010.safetensors: .* its end is missing .* step-00000005.safetensors is whole' "$work/flat"
said 'a checkpoint cut short: says so and goes on from the one before' $?
cmp -s "$work/ten/checkpoints/latest" "$work/five/checkpoints/latest"
said 'to the same bits' $?
for step in 5 10; do
    head -c 3000 "$work/ten/checkpoints/step-00000010.safetensors" >"$work/five/checkpoints/step-000000$(printf %02d $step).safetensors"
done
run train sums --out "$work/five" --resume
[ $? -eq 1 ] && grep -q 'no checkpoint in the folder is whole' "$work/err"
said 'with none that is whole it refuses' $?
# shellcheck disable=SC2086
run train sums --out "$work/keep" $small --steps 12 --save-every 2 --keep 3
# shellcheck disable=SC2012
[ "$(ls "$work/keep/checkpoints" | tr '\n' ' ')" = 'latest step-00000008.safetensors step-00000010.safetensors step-00000012.safetensors ' ]
said '--keep 3 keeps three' $?

# ---- interrupts ----
# shellcheck disable=SC2086
"$TALLY" train sums --out "$work/int" $small --steps 100000000 --log-every 10 >"$work/out" 2>"$work/err" </dev/null &
pid=$!
tries=0
while [ ! -s "$work/int/metrics.jsonl" ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $pid # a background job of a script has SIGINT ignored, so TERM stands for both
wait $pid
code=$?
[ $code -eq 130 ]
said 'SIGTERM: exit 130' $?
[ -s "$work/int/checkpoints/latest" ] && ! ls "$work/int/checkpoints" | grep -q tmp
said 'the checkpoint is saved' $?
stopped=$(field "$work/int/metrics.jsonl" step)
run train sums --out "$work/int" --resume --stop-at $((stopped + 3))
said 'and goes on' $?
[ "$(field "$work/int/metrics.jsonl" step)" -eq $((stopped + 3)) ]
said 'from where it stopped' $?

# ---- other models and optimizers ----
tiny='--model gpt2:N=1,D=16,H=2'
for case in "$tiny --optim sgd" "$tiny --optim momentum" "$tiny --optim adagrad" "$tiny --optim adam" "$tiny --optim rmsprop" \
    '--model gpt2:N=1,D=48,H=2 --optim adamw8bit' "$tiny --precision bf16" \
    "$tiny --precision bf16-mixed" "$tiny --precision fp16-mixed" "$tiny --precision fp8-mixed" \
    "$tiny --precision bf16-mixed --autocast on" "$tiny --precision fp16-mixed --autocast on --optim momentum" \
    "$tiny --precision fp8-mixed --autocast on --optim sgd" '--model llama:N=2,D=16,H=4,G=2' "$tiny --global-batch 12" "$tiny --seq 16" \
    "$tiny --clip 0"; do
    rm -rf "$work/x"
    # shellcheck disable=SC2086
    run train sums --out "$work/x" --micro-batch 4 --threads 1 --steps 4 $case
    run ledger "$work/x"
    said "planned = measured with $case" $?
done
run train sums --out "$work/fp8" --micro-batch 4 --threads 1 --steps 2 --model gpt2:N=1,D=16,H=2 --precision fp8-mixed
grep -q 'fp8 is emulated' "$work/err"
said 'emulated fp8 says so' $?
run train sums --out "$work/fp16" --micro-batch 4 --threads 1 --steps 2 --model gpt2:N=1,D=16,H=2 --precision fp16-mixed
[ "$(field "$work/fp16/metrics.jsonl" loss_scale)" = 65536.0 ] && [ "$(field "$work/fp16/metrics.jsonl" skipped_steps)" = 0 ]
said 'the loss scale is in the metrics' $?
for how in selective full every:2; do
    # shellcheck disable=SC2086
    run train sums --out "$work/$how" $small --steps 10 --recompute $how
    cmp -s "$work/ten/checkpoints/latest" "$work/$how/checkpoints/latest"
    said "the same bits with --recompute $how" $?
    run ledger "$work/$how"
    said "planned = measured with --recompute $how" $?
done
[ "$(field "$work/full/metrics.jsonl" measured_flops)" -gt "$(field "$work/ten/metrics.jsonl" measured_flops)" ]
said 'what is computed again is executed' $?
run train sums --out "$work/full" --resume --recompute none
[ $? -eq 2 ] && grep -q 'goes on with it' "$work/err"
said 'a resumed run keeps its recompute' $?
# Five steps, resumed for five, are ten, bit for bit, across 1 and 2 threads: the scales too.
for precision in fp16-mixed fp8-mixed; do
    # shellcheck disable=SC2086
    run train sums --out "$work/$precision.10" --micro-batch 4 --threads 1 --steps 10 $tiny --precision $precision
    # shellcheck disable=SC2086
    run train sums --out "$work/$precision.5" --micro-batch 4 --threads 2 --steps 10 $tiny --precision $precision --stop-at 5
    run train sums --out "$work/$precision.5" --threads 1 --resume
    cmp -s "$work/$precision.10/checkpoints/step-00000010.safetensors" "$work/$precision.5/checkpoints/step-00000010.safetensors"
    said "five steps, resumed for five, in $precision: the bits of ten" $?
done
printf '{"task": "sums", "steps": 3, "micro-batch": 2, "threads": 1, "model": "gpt2:N=1,D=8,H=2"}' >"$work/task.json"
run train "$work/task.json" --out "$work/task"
[ $? -eq 0 ] && [ "$(field "$work/task/metrics.jsonl" step)" = 3 ]
said 'a task from a file' $?

# ---- refusals ----
refuses() { # NAME STATUS TEXT ARGUMENT...
    name=$1 status=$2 text=$3
    shift 3
    rm -rf "$work/r"
    run train "$@"
    code=$?
    cat "$work/out" "$work/err" | tr -s '\n ' '  ' >"$work/flat"
    [ $code -eq "$status" ] && grep -qF -- "$text" "$work/flat" && [ ! -e "$work/r/metrics.jsonl" ]
    said "$name" $?
}
refuses 'does not fit: exit 3' 3 'does not fit' sums --out "$work/r" --memory 1MB
refuses 'and what would fit' 3 '--micro-batch' sums --out "$work/r" --memory 50MB
refuses 'or what takes too much by itself' 3 'the evaluation alone' sums --out "$work/r" --memory 20MB
# Each suggestion, typed as it stands, is let in and fits: the folder then holds a run that its ledger confirms.
again='--model gpt2:N=3,D=32,H=2,dropout=0.1 --micro-batch 16 --threads 1 --steps 2 --memory 3750kB'
# shellcheck disable=SC2086
run train sums --out "$work/r" $again
[ $? -eq 3 ]
said 'a run that does not fit in 3750 kB' $?
awk '/^[0-9]+ +--/ { change = $0 } /  (fits|tight) +[0-9]+ %/ { sub(/^[0-9]+ +/, "", change); print change }' \
    "$work/out" >"$work/fitting"
grep -q -- '--micro-batch' "$work/fitting" && grep -q -- '--recompute full' "$work/fitting" &&
    grep -q -- '--precision' "$work/fitting"
said 'is told of smaller batches, recompute and number formats that fit' $?
while read -r change; do
    rm -rf "$work/s"
    plain=${again}
    case $change in *--micro-batch*) plain=$(echo "$again" | sed 's/--micro-batch 16//') ;; esac
    # shellcheck disable=SC2086
    run train sums --out "$work/s" $plain $change </dev/null && run ledger "$work/s" </dev/null
    said "typed as it stands it fits, planned = measured: $change" $?
done <"$work/fitting"
refuses 'no folder named' 2 '--out' sums
refuses 'no task' 2 'needs TASK' --out "$work/r"
refuses 'an unknown task' 2 'there is no task' summs --out "$work/r"
refuses 'a folder that holds a run' 1 'already holds a run' sums --out "$work/a"
refuses 'nothing to resume' 1 'no run to resume' sums --out "$work/r" --resume
refuses 'zero steps' 2 '--steps' sums --out "$work/r" --steps 0
refuses 'no checkpoint to keep' 2 '--keep' sums --out "$work/r" --keep 0
refuses 'negative steps' 2 '--steps' sums --out "$work/r" --steps -5
refuses 'steps that are no number' 2 '--steps' sums --out "$work/r" --steps many
refuses 'steps beyond counting' 2 '--steps' sums --out "$work/r" --steps 99999999999999999999
refuses 'a learning rate that is none' 2 '--lr' sums --out "$work/r" --lr nan
refuses 'a short sequence' 2 '--seq' sums --out "$work/r" --seq 5
refuses 'batches that do not divide' 2 'global batch' sums --out "$work/r" --micro-batch 4 --global-batch 6
refuses 'a bare 2G' 2 '--memory' sums --out "$work/r" --memory 2G
refuses 'no threads' 2 '--threads' sums --out "$work/r" --threads 0
refuses 'a spec with an unknown letter' 2 'there is no "X"' sums --out "$work/r" --model gpt2:X=3
refuses 'a spec without a number' 2 'NAME=NUMBER' sums --out "$work/r" --model gpt2:N
refuses 'a spec of zero layers' 2 'at least 1' sums --out "$work/r" --model gpt2:N=0
refuses 'heads that do not divide' 2 'no multiple' sums --out "$work/r" --model gpt2:D=100,H=3
refuses 'a model without a vocabulary' 2 'no vocabulary' sums --out "$work/r" --model cruncher
refuses 'no optimizer trains nothing' 2 'none' sums --out "$work/r" --optim none
printf '{"task": "sums", "stepps": 3}' >"$work/task.json"
refuses 'a misspelt key in a task' 1 'stepps' "$work/task.json" --out "$work/r"
printf '{"task": "poems"}' >"$work/task.json"
refuses 'an unknown task in a file' 1 'poems' "$work/task.json" --out "$work/r"
: >"$work/tokens.bin"
refuses 'an empty token file' 2 'no tokens; a window of 128 needs 129' "$work/tokens.bin" --out "$work/r"
refuses 'a loss that is not finite' 1 'stopped before the update' sums --out "$work/n" --model gpt2:N=1,D=16,H=2 \
    --micro-batch 4 --threads 1 --optim sgd --lr 1e6 --warmup 0 --clip 0 --steps 200

# ---- the best by validation loss ----
# Trained on ascending ids and examined on random ones: what is learned makes the loss on those larger, so the first one examined is
# the best; --keep 1 must not take it away.
# shellcheck disable=SC2059 # escapes made by awk
printf "$(awk 'BEGIN { for (i = 0; i < 4000; i++) printf "\\%03o\\000", 1 + i % 50 }')" >"$work/train.bin"
# shellcheck disable=SC2059
printf "$(awk 'BEGIN { srand(1); for (i = 0; i < 1000; i++) printf "\\%03o\\000", 1 + int(rand() * 50) }')" >"$work/val.bin"
run train "$work/train.bin" --val "$work/val.bin" --out "$work/best" --model gpt2:N=1,D=32,H=2,C=16 --seq 16 --micro-batch 8 \
    --threads 1 --steps 120 --save-every 20 --eval-every 20 --eval-batches 4 --lr 3e-3 --keep 1 --data-dtype uint16
said 'a run from tokens with a validation loss' $?
[ "$(readlink "$work/best/checkpoints/latest")" = step-00000120.safetensors ] && [ -s "$work/best/checkpoints/best" ] &&
    [ "$(readlink "$work/best/checkpoints/best")" != step-00000120.safetensors ]
said 'latest is the last, best an earlier one that --keep 1 left' $?
# shellcheck disable=SC2012
[ "$(ls "$work/best/checkpoints" | wc -l)" -eq 4 ]
said 'two files and two links' $?
run inspect "$work/best/checkpoints/latest"
later=$(sed -n 's/.*validation \([0-9.]*\).*/\1/p' "$work/out")
run inspect "$work/best/checkpoints/best"
least=$(sed -n 's/.*validation \([0-9.]*\).*/\1/p' "$work/out")
awk -v a="$least" -v b="$later" 'BEGIN { exit !(a > 0 && a < b) }'
said 'whose loss is the lower one' $?

# ---- resumed in the second epoch ----
# 24 windows of 16, 8 a step: an epoch is three steps. Fourteen steps stopped in the third epoch, against as many at once.
# shellcheck disable=SC2059
printf "$(awk 'BEGIN { for (i = 0; i < 385; i++) printf "\\%03o\\000", 1 + i * i % 50 }')" >"$work/short.bin"
epochs="$work/short.bin --model gpt2:N=1,D=16,H=2,C=16,dropout=0.1 --seq 16 --micro-batch 4 --global-batch 8 --sampler epochs --data-dtype uint16 --steps 14"
# shellcheck disable=SC2086
run train $epochs --out "$work/e14" --threads 1
# shellcheck disable=SC2086
run train $epochs --out "$work/e7" --threads 2 --stop-at 7
run train --out "$work/e7" --resume --threads 1
said 'a run over epochs resumes' $?
cmp -s "$work/e14/checkpoints/latest" "$work/e7/checkpoints/latest"
said 'in the third of them, to the bits of a run that was not stopped' $?
