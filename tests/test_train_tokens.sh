#!/bin/sh
# tally train on token files, as people meet it: what is read, in which order, what is refused, resuming bit for bit across
# epochs, readers and threads, the validation loss, --dry-run. Token files are made here, so that what they hold is known.
# Exit statuses are CLI.md's; the cases of ../shared/FAULTS.md under "Data" are marked FAULTS.
set -u
. tests/verb.inc
cd "$work" || exit 1

field() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$1" | tail -1; }
checkpoint() { # FOLDER: its newest checkpoint
    for file in "$1/checkpoint.tally" "$1/checkpoints/latest"; do
        [ -e "$file" ] && echo "$file" && return
    done
}
same_checkpoints() { cmp -s "$(checkpoint "$1")" "$(checkpoint "$2")"; }

# 600 bytes of a text without meaning, and one that counts letters round and round.
awk 'BEGIN { x = 7; for (i = 0; i < 600; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%c", 97 + int(x / 65536) % 20 } }' >noise.txt
awk 'BEGIN { for (i = 0; i < 1200; i++) printf "%c", 97 + i % 12 }' >cycle.txt
"$TALLY" data pack noise.txt -o noise.bin >/dev/null && "$TALLY" data pack cycle.txt -o cycle.bin >/dev/null
small='--model gpt2:N=1,D=16,H=2,dropout=0.1 --seq 8 --micro-batch 2 --global-batch 4 --threads 1'

# ---- a run ----
rm -f noise.bin.json cycle.bin.json # as made by others: nothing is noted
# shellcheck disable=SC2086 # options in a variable
run train noise.bin --out a $small --steps 20 --log-every 5 --val cycle.bin --eval-every 10
said 'a run of 20 steps ends with 0' $?
for file in config.json run.json plan.json metrics.jsonl ledger.json evaluation.json; do
    [ -s "a/$file" ]
    said "the folder holds $file" $?
done
grep -q '600 tokens of uint16 (inferred), vocabulary 117 (largest id + 1); windows of 8, at random' err
said 'it says what it trains on, and what was assumed' $?
grep -q 'step 10: validation loss' err
said 'the validation loss on the way' $?
grep -q 'validation' out && grep -q 'waiting' out
said 'and in the report, with the time waited for data' $?
! grep -qE '^.{81}' out
said 'within 80 columns' $?
last=a/metrics.jsonl
[ "$(field $last planned_peak_bytes)" -gt 0 ] && [ "$(field $last planned_peak_bytes)" = "$(field $last measured_peak_bytes)" ] &&
    [ "$(field $last planned_flops)" = "$(field $last measured_flops)" ] && [ "$(field $last unplanned_bytes)" = 0 ]
said 'planned = measured, the batches held ready included' $?
grep -q '"data_wait_seconds":[0-9]' $last
said 'metrics.jsonl says how long it waited' $?
run ledger a
said 'the ledger agrees' $?
run ledger a
# Two steps held ready: 2 steps × 2 micro-batches × (input, target) × 2 × 8 ids of 4 bytes = 512; and the batch at hand, 128.
grep -qE 'data +640 ' out || grep -qE 'data +512 ' out
said 'data: the ring, and the batch while it lives' $?
[ "$(field a/config.json vocab_size)" = 117 ]
said 'the vocabulary is one more than the largest id (t is 116)' $?

# ---- it learns ----
run train cycle.bin --out learn --model gpt2:N=1,D=32,H=2 --seq 24 --micro-batch 8 --threads 1 --steps 150 --lr 5e-3 --warmup 10 --val cycle.bin
loss=$(field learn/evaluation.json loss)
# Each letter but the first of a window follows from the one before it: the loss has nowhere to stop but near 0.
awk "BEGIN { exit !($loss < 0.1 && $loss > 0) }"
said "what repeats is learned: loss $loss" $?
awk "BEGIN { p = $(field learn/evaluation.json perplexity); d = p - exp($loss); exit !(d < 1e-9 && d > -1e-9) }"
said 'perplexity is its exponential' $?

# ---- the same order: five and five are ten, across epochs, readers and threads ----
# noise.bin has 74 windows of 8; ten steps of 4 are 40, and from 60 on an epoch ends in between.
for sampler in random epochs; do
    # shellcheck disable=SC2086
    run train noise.bin --out ten.$sampler $small --sampler $sampler --steps 40
    # shellcheck disable=SC2086
    run train noise.bin --out five.$sampler $small --sampler $sampler --steps 40 --stop-at 25 --readers 3
    run train noise.bin --out five.$sampler --resume --readers 0
    said "$sampler: resumes" $?
    same_checkpoints ten.$sampler five.$sampler
    said "$sampler: 25 steps, resumed for 15 in the third epoch: the bits of 40" $?
    # shellcheck disable=SC2086
    run train noise.bin --out threads.$sampler ${small%--threads 1} --sampler $sampler --steps 40 --threads 2 --readers 2
    same_checkpoints ten.$sampler threads.$sampler
    said "$sampler: and on two threads with two readers" $?
done
! same_checkpoints ten.random ten.epochs
said 'the samplers differ' $?
run train --out five.epochs --resume
said 'what is trained on need not be said again' $?
gives 'another file is refused' 2 'goes on with it' train cycle.bin --out five.epochs --resume
gives 'another task too' 2 'not sums' train sums --out five.epochs --resume
gives 'another order too' 2 'goes on with it' train noise.bin --out five.epochs --resume --sampler random

# shellcheck disable=SC2086
run train noise.bin --out kept $small --steps 6 --stop-at 3 --val cycle.bin
run train --out kept --resume
[ $? -eq 0 ] && [ -s kept/evaluation.json ]
said 'nor what it is evaluated on' $?

# ---- a seed a source ----
first() { sed -n 's/^{"step":1,"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
seeds() { # FOLDER OPTION...
    folder=$1
    shift
    run train noise.bin --out "$folder" --model gpt2:N=1,D=16,H=2,dropout=0.1 --seq 8 --micro-batch 2 --threads 1 --steps 1 --log-every 1 "$@"
    first "$folder"
}
base=$(seeds s0 --seed 7)
[ -n "$base" ] && [ "$base" = "$(seeds s1 --seed 1 --seed-init 7 --seed-data 7 --seed-dropout 7)" ]
said '--seed stands for all three' $?
for source in init data dropout; do
    [ "$base" != "$(seeds s.$source --seed 7 --seed-$source 8)" ]
    said "--seed-$source alone changes the run" $?
done

# ---- schedules ----
for schedule in constant linear cosine wsd wsd-sqrt; do
    # shellcheck disable=SC2086
    run train noise.bin --out "sched.$schedule" $small --steps 12 --schedule $schedule
    said "--schedule $schedule" $?
done
! same_checkpoints sched.linear sched.cosine && ! same_checkpoints sched.wsd sched.constant
said 'which differ' $?
gives 'an unknown schedule' 2 'constant, linear, cosine' train noise.bin --out r --schedule square
gives 'a decay without wsd' 2 'schedule cosine' train noise.bin --out r --decay-steps 5
gives 'a warm-up longer than the run' 2 'schedule cosine' train noise.bin --out r --steps 10 --warmup 11

# ---- interrupts ----
# shellcheck disable=SC2086
"$TALLY" train noise.bin --out int $small --steps 100000000 --log-every 10 >out 2>err </dev/null &
pid=$!
tries=0
while [ ! -s int/metrics.jsonl ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -TERM $pid
wait $pid
[ $? -eq 130 ] && [ -n "$(checkpoint int)" ]
said 'SIGTERM: saved, exit 130, the reader ends too' $?

# ---- minutes ----
# shellcheck disable=SC2086
run train noise.bin --out minutes $small --minutes 1 --stop-at 3
said 'a run that --minutes ends stops before it has a number of steps' $?
gives 'and cannot go on without one: it would for good' 2 'give --minutes again' train --out minutes --resume
gives 'with --minutes it does' 0 'step 5' train --out minutes --resume --minutes 1 --stop-at 5
# Once the checkpoint has a number of steps, the time ends a run and leaves its schedule alone: 0.01 minutes are too short for
# 4000 steps, and a schedule cut short would have other learning rates from step 33 on.
# shellcheck disable=SC2086
run train noise.bin --out onego $small --steps 4000 --stop-at 60 --save-every 1000
# shellcheck disable=SC2086
run train noise.bin --out timed $small --steps 4000 --stop-at 20 --save-every 1000
gives '--minutes on resuming says what it does' 0 'does not change the schedule: it stays that of the 4000 steps' train --out timed --resume \
    --minutes 0.01 --stop-at 60
same_checkpoints onego timed
said 'and the run is that of one go, bit for bit' $?

# ---- documents ----
printf 'one\ntwo and three\nfour\n' >docs.txt
"$TALLY" data pack docs.txt docs.txt docs.txt docs.txt -o docs.bin --separator 256 >/dev/null
# shellcheck disable=SC2086
gives 'a separator: the token behind it is no target' 0 'step 10 of 10' train docs.bin --out docs $small --steps 10 --separator 256
# shellcheck disable=SC2086
run train docs.bin --out nodocs $small --steps 10 --separator none
! same_checkpoints docs nodocs
said 'which changes the run' $?
# shellcheck disable=SC2086
run train docs.bin --out noted $small --steps 10
same_checkpoints docs noted
said 'without the option it is what pack noted' $?

# Masked: a loss and weights of their own, planned as measured, resumed bit for bit on any threads and readers.
for attention in eager flash; do
    masked="--documents masked --attention $attention --separator 256 --val docs.bin --eval-every 5"
    # shellcheck disable=SC2086
    run train docs.bin --out "masked-$attention" $small --steps 10 $masked
    grep -q 'planned = measured in each of 9 steps' out
    said "masked documents, $attention: planned = measured" $?
    [ "$(field "masked-$attention/evaluation.json" planned_peak_bytes)" = "$(field "masked-$attention/evaluation.json" measured_peak_bytes)" ]
    said 'so are those of the validation' $?
    ! same_checkpoints docs "masked-$attention"
    said 'and they are another run than joined ones' $?
    # shellcheck disable=SC2086
    run train docs.bin --out "half-$attention" $small --steps 10 --stop-at 5 $masked
    run train --out "half-$attention" --resume --threads 2 --readers 2
    same_checkpoints "masked-$attention" "half-$attention"
    said 'resumed, bit for bit' $?
done
# 2 steps ready × 2 micro-batches × (input, target, position) × 2 × 8 numbers of 4 bytes = 768; and the batch at hand, 192.
run ledger masked-eager
grep -qE 'data +960 ' out || grep -qE 'data +768 ' out
said 'positions are data, 4 bytes a token' $?
gives 'and the plan of it says so' 0 'attention and positions begin anew' train docs.bin --dry-run --documents masked --separator 256 --seq 8
gives 'documents that nobody knows' 2 'where documents end is not known' train noise.bin --dry-run --documents masked --seq 8
gives 'nor with none' 2 'where documents end is not known' train docs.bin --dry-run --documents masked --separator none --seq 8
gives 'sums have none' 2 'changes nothing about sums' train sums --dry-run --documents masked
# Without a separator pack notes where each begins; what others made comes with a .npy. Both are the same run.
"$TALLY" data pack docs.txt docs.txt docs.txt docs.txt -o bare.bin >/dev/null
[ "$(tr -d ' \n' <bare.bin.json | sed 's/.*"starts":\[\([^]]*\)\].*/\1/')" = 0,23,46,69 ]
said 'pack notes where documents begin (23 bytes each)' $?
gives 'info tells of them' 0 '4 without a separator, as pack noted' data info bare.bin
python3 -c 'import struct
def write(name, form, *values):
    h = "{\"descr\": \"<%s8\", \"fortran_order\": False, \"shape\": (4,), }" % ("i" if form == "q" else "f")
    h += " " * (118 - 1 - len(h)) + "\n"
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h.encode() + struct.pack("<4" + form, *values))
write("starts.npy", "q", 0, 23, 46, 69)
write("beyond.npy", "q", 0, 23, 46, 690)
write("back.npy", "q", 0, 46, 23, 69)
write("real.npy", "d", 0, 23, 46, 69)'
# shellcheck disable=SC2086
run train bare.bin --out noted-starts $small --steps 6 --documents masked --val bare.bin
said 'documents without a separator are masked by what pack noted' $?
cp bare.bin other.bin
# shellcheck disable=SC2086
run train other.bin --data-dtype uint16 --out given-starts $small --steps 6 --documents masked --boundaries starts.npy --vocab 256
[ "$(field noted-starts/metrics.jsonl loss)" = "$(field given-starts/metrics.jsonl loss)" ]
said 'and by --boundaries alike' $?
# shellcheck disable=SC2086
run train other.bin --data-dtype uint16 --out half-starts $small --steps 6 --stop-at 3 --documents masked --boundaries starts.npy --vocab 256
run train --out half-starts --resume
same_checkpoints given-starts half-starts
said 'resumed with them, bit for bit' $?
elsewhere='train other.bin --data-dtype uint16 --dry-run --seq 8 --boundaries'
# shellcheck disable=SC2086
{
    gives 'beginnings beyond the stream' 2 'document 3 begins at 690' $elsewhere beyond.npy
    gives 'beginnings that go back' 2 'document 2 begins at 23, before the one before it' $elsewhere back.npy
    gives 'beginnings that are no whole numbers' 1 'is no list of positions' $elsewhere real.npy
    gives 'a file that is not there' 1 'nowhere.npy' $elsewhere nowhere.npy
    gives 'both ways to say it' 2 'one of them says where' $elsewhere starts.npy --separator 5
}
gives 'a validation file of which it is not known' 2 'the documents of --val' train bare.bin --dry-run --seq 8 --documents masked \
    --val noise.bin

# ---- what cannot be ----
# 256 stands everywhere, so that each target stands behind one: the loss of nothing would be 0, and decay would go on.
awk 'BEGIN { for (i = 0; i < 200; i++) printf "\\000\\001" }' | xargs -0 printf >blank.bin
gives 'a step in which no target counts' 1 'no target counts in windows 0 to 1' train blank.bin --data-dtype uint16 --vocab 257 \
    --separator 256 --out blank --model gpt2:N=1,D=16,H=2 --seq 8 --micro-batch 2 --threads 1 --steps 4
gives '--seed-dropout without dropout says that it changes nothing' 0 'gpt2:N=1,D=16,H=2 has no dropout' train noise.bin --dry-run \
    --out r --model gpt2:N=1,D=16,H=2 --seed-dropout 3
gives 'FAULTS: an id not below the vocabulary is named, with index and file' 1 'noise.bin: id ' train noise.bin --out bad \
    --model gpt2:N=1,D=16,H=2,V=100 --seq 8 --micro-batch 2 --threads 1 --steps 20
grep -q 'is not below the vocabulary of 100' flat
said 'and never taken by a modulo' $?
[ -z "$(checkpoint bad)" ]
said 'no checkpoint of such a run' $?
gives 'a vocabulary larger than the model has' 2 'vocabulary of 100' train noise.bin --out r --model gpt2:N=1,V=100 --vocab 117
for n in 0 1 8; do # FAULTS: 0, 1, T tokens
    head -c $((2 * n)) noise.bin >"n$n.bin"
    gives "FAULTS: $n tokens of windows of 8" 2 'a window of 8 needs 9' train "n$n.bin" --data-dtype uint16 --out r --seq 8
done
head -c 18 noise.bin >n9.bin
# shellcheck disable=SC2086
gives 'FAULTS: T + 1 tokens are one window' 0 'step 3 of 3' train n9.bin --data-dtype uint16 --out nine $small --steps 3
head -c 31 noise.bin >odd.bin
gives 'FAULTS: an odd number of bytes' 1 'odd number of bytes' train odd.bin --out r
gives 'a text' 1 'is text, not tokens' train noise.txt --out r
gives 'a file that is not there' 2 'no file of that name' train nowhere.bin --out r
gives 'an option of token files with sums' 2 'changes nothing about sums' train sums --out r --sampler epochs
gives 'an unknown sampler' 2 'random and epochs' train noise.bin --out r --sampler shuffle
gives 'evaluation without data' 2 '--val' train noise.bin --out r --eval-every 5
gives 'validation data too short' 2 'needs 129' train noise.bin --out r --val n9.bin --data-dtype uint16
[ ! -e r ]
said 'no folder of what was refused' $?

# ---- what an evaluation takes, and what it is no part of ----
# It runs between steps, while the arena of the step stays where it is. What it takes is planned by running it on meta and
# measured by the second instrument.
for form in fp32 bf16-mixed fp8-mixed; do
    # shellcheck disable=SC2086
    run train noise.bin --out "asks.$form" $small --precision $form --recompute full --steps 4 --val cycle.bin
    planned=$(field "asks.$form/evaluation.json" planned_peak_bytes)
    [ "${planned:-0}" -gt 0 ] && [ "$planned" = "$(field "asks.$form/evaluation.json" measured_peak_bytes)" ]
    said "$form: the evaluation's peak, planned = measured" $?
done
# shellcheck disable=SC2086
run --json train noise.bin --dry-run $small --val cycle.bin
arena=$(field out arena_bytes) asks=$(field out evaluation_bytes)
[ "${asks:-0}" -gt 0 ]
said 'it needs more than the arena' $?
# shellcheck disable=SC2086
gives 'what holds both is enough' 0 'beside the arena' train noise.bin --dry-run $small --val cycle.bin --memory $((arena + asks))B
# shellcheck disable=SC2086
gives 'one byte less is not: the run would outgrow it' 3 'does not fit' train noise.bin --dry-run $small --val cycle.bin \
    --memory $((arena + asks - 1))B
# shellcheck disable=SC2086
gives 'without an evaluation the arena is all' 0 'nothing was started' train noise.bin --dry-run $small --memory "${arena}B"
# shellcheck disable=SC2086
run train noise.bin --out stops $small --steps 20 --stop-at 10 --val cycle.bin --eval-every 10
[ "$(field stops/ledger.json unaccounted_flops)" = 0 ] && [ "$(field stops/ledger.json unaccounted_bytes)" = 0 ]
said 'a run that stops where it was evaluated: its account is of the step alone' $?

# ---- dry runs ----
gives 'a dry run prints the plan' 0 'nothing was started' train noise.bin --dry-run
! grep -qE '^.{81}' out
said 'within 80 columns' $?
gives 'of a model of the catalogue too' 0 'gpt2, 124.4 M parameters' train noise.bin --model gpt2 --seq 64 --micro-batch 1 --dry-run --memory 100GB
gives 'and one that does not fit: exit 3' 3 'does not fit' train noise.bin --model gpt2-xl --seq 64 --micro-batch 1 --dry-run --memory 1GB
run --json train noise.bin --dry-run --memory 1MB
[ $? -eq 3 ] && grep -q '"fits": false' out && grep -q '"peak_bytes": [0-9]' out
said 'as JSON' $?
run train noise.bin --dry-run --out dry
[ $? -eq 0 ] && [ ! -e dry ]
said 'and makes nothing' $?

# ---- a file of settings, shards, forms ----
printf '{"task": "tokens", "data": "noise.bin", "steps": 3, "seq": 8, "micro-batch": 2, "threads": 1, "model": "gpt2:N=1,D=16,H=2", "sampler": "epochs", "val": "cycle.bin"}' >task.json
gives 'a file of settings' 0 'step 3 of 3' train task.json --out task
printf '{"task": "sums", "val": "x.bin"}' >wrong.json
gives 'with a key that changes nothing' 1 'changes nothing about sums' train wrong.json --out r
mkdir shards
head -c 600 noise.bin >shards/s_1.bin
tail -c +601 noise.bin >shards/s_2.bin
# shellcheck disable=SC2086
run train noise.bin --out whole $small --steps 10
# shellcheck disable=SC2086
run train shards --out parts $small --steps 10
same_checkpoints whole parts
said 'a folder of shards is the same stream' $?
"$TALLY" data pack noise.txt -o noise.npy --dtype uint32 >/dev/null
"$TALLY" data pack noise.txt -o noise.llmc --form llmc >/dev/null
rm -f noise.npy.json noise.llmc.json
for form in npy llmc; do
    # shellcheck disable=SC2086
    run train noise.$form --out $form $small --steps 10
    same_checkpoints whole $form
    said "so is $form" $?
done
# shellcheck disable=SC2086
run train noise.bin --out locked $small --steps 3 --lock-batches yes
code=$?
[ $code -eq 0 ] || { [ $code -eq 1 ] && grep -q 'RLIMIT_MEMLOCK is' err; }
said 'batches locked in memory, or told why not' $?
