#!/bin/sh
# tally sample, eval and runs as people meet them: text on stdout and the account on stderr, the same text for the same seed,
# windows counted by arithmetic, what is not known left out and named, and folders that are broken in every way runs break.
set -u
. tests/verb.inc
trap 'chmod -R u+rwx "$work" 2>/dev/null; rm -rf "$work"' EXIT

fails() { # NAME STATUS PART ARGUMENT...: exits so and says that
    name=$1 status=$2 part=$3
    shift 3
    run "$@"
    [ $? -eq "$status" ] && grep -qF -- "$part" "$work/err"
    said "$name" $?
}
narrow() { ! grep -qE '^.{81,}' "$work/out" && ! grep -v "^tally" "$work/err" | grep -qE '^.{81,}'; }
integer() { sed -n "s/^ *\"$1\": *\([0-9]*\),*$/\1/p" "$work/out" | head -1; }

small='--model gpt2:N=2,D=16,H=2 --micro-batch 8 --threads 1 --log-every 5'
# shellcheck disable=SC2086 # options in a variable
run train sums --out "$work/runs/a" $small --steps 20
said 'a run to look at' $?
# shellcheck disable=SC2086
run train sums --out "$work/runs/deep/b" --model llama:N=1,D=16,H=4,G=2 --micro-batch 4 --threads 1 --log-every 5 --steps 20 --stop-at 10
said 'and one that was stopped' $?

# ---- sample ----
run sample "$work/runs/a" --prompt '137+485=' --temperature 0
said 'sample ends with 0' $?
[ "$(wc -c <"$work/out")" -eq 5 ] # four characters of the answer, and the end of the line
said 'stdout holds what the model wrote and nothing else' $?
cp "$work/out" "$work/greedy"
# 2 * N * S * G * K * size: 2 layers, 8 + 4 - 1 positions, 2 heads of 8, 4 bytes
grep -qF 'cache     2,816 B planned, 2,816 B measured' "$work/err" && grep -qF '2 * 2 * 11 * 2 * 8 * 4' "$work/err"
said 'the cache, planned and measured, by its formula' $?
grep -qF 'planned = measured' "$work/err" && narrow
said 'the account agrees and fits 80 columns' $?
run sample "$work/runs/a" --ids 1,3,7,10,4,8,5,11 --temperature 0 --threads 2
cmp -s "$work/out" "$work/greedy"
said 'the same prompt as ids, on two threads: the same text' $?
run sample "$work/runs/a" --prompt 1 --seed 5 --tokens 11
cp "$work/out" "$work/drawn"
run sample "$work/runs/a" --prompt 1 --seed 5 --tokens 11 --threads 2
cmp -s "$work/out" "$work/drawn"
said 'the same seed, the same text on two threads' $?
run sample "$work/runs/a" --prompt 1 --seed 6 --tokens 11
! cmp -s "$work/out" "$work/drawn"
said 'another seed, another text' $?
run -q sample "$work/runs/a" --prompt 1 --top-k 1 --seed 3
top=$(cat "$work/out")
run -q sample "$work/runs/a" --prompt 1 --top-p 0.000001 --seed 9
nucleus=$(cat "$work/out")
run -q sample "$work/runs/a" --prompt 1 --temperature 0
[ "$top" = "$(cat "$work/out")" ] && [ "$nucleus" = "$top" ] && [ ! -s "$work/err" ]
said 'one token to choose from is greedy; -q says nothing' $?
run --json sample "$work/runs/deep/b" --prompt 12 --tokens 7
[ "$(integer cache_bytes)" -eq $((2 * 1 * 8 * 2 * 4 * 4)) ] && [ "$(integer kv_heads)" -eq 2 ] && grep -q '"planned_equals_measured": true' "$work/out"
said 'json: grouped heads, 2·1·8·2·4·4 bytes, planned = measured' $?
run --json sample "$work/runs/a" --prompt 12
full=$(integer weights_bytes)
run --json sample "$work/runs/a" --prompt 12 --weights int8
# 2 layers of 48·16 + 16·16 + 64·16 + 16·64 weights in 48 + 16 + 64 + 16 rows: 3 bytes less each, 4 bytes more a row
[ "$(integer weights_bytes)" -eq $((full - 3 * 2 * 3072 + 4 * 2 * 144)) ] && grep -q '"planned_equals_measured": true' "$work/out"
said 'int8 weights: a byte each and four a row' $?
run --json sample "$work/runs/a" --prompt 12 --cache bf16
[ "$(integer cache_bytes)" -eq $((2 * 2 * 5 * 2 * 8 * 2)) ]
said 'a cache in 16 bits takes half' $?
# the same weights as Hugging Face keeps them, as one file, and as the checkpoint itself
run export "$work/runs/a" --out "$work/hf"
said 'exported' $?
for from in "$work/hf" "$work/hf/model.safetensors" "$work/runs/a/checkpoints/latest"; do
    run sample "$from" --ids 1,3,7,10,4,8,5,11 --temperature 0 --tokens 4
    # ids of the characters that were written before: one blank between ids
    [ "$(sed 's/\b12\b/_/g; s/\b11\b/=/g; s/\b10\b/+/g; s/ //g; s/_/ /g' "$work/out")" = "$(cat "$work/greedy")" ] &&
        grep -qF 'planned = measured' "$work/err"
    said "the same text from $(basename "$from")" $?
done
run --json sample "$work/hf" --ids 1,2 --weights bf16
half=$(integer weights_bytes)
[ $((2 * half)) -eq "$full" ]
said 'bf16 weights take half' $?
fails 'a run is not cast' 2 "the run's are f32" sample "$work/runs/a" --prompt 1 --weights bf16
fails 'no prompt' 2 'a prompt is needed' sample "$work/runs/a"
fails 'two prompts' 2 'exclude each other' sample "$work/runs/a" --prompt 1 --ids 1
fails 'an empty prompt' 2 'no token at all' sample "$work/runs/a" --prompt ''
fails 'a character that is none' 2 'byte 2 of the text' sample "$work/runs/a" --prompt '12x'
fails 'an id beyond the vocabulary' 2 'token 1 of the prompt is 13; the vocabulary has ids 0 to 12' sample "$work/runs/a" --ids 1,13
fails 'ids that are none' 2 'is no token id' sample "$work/runs/a" --ids 1,,2
fails 'more tokens than positions' 2 '1 to 12 would work' sample "$work/runs/a" --prompt 1 --tokens 13
fails 'a prompt longer than the model' 2 '12 positions' sample "$work/runs/a" --prompt 1234567890123
fails 'an option without effect' 2 '--top-k would change nothing' sample "$work/runs/a" --prompt 1 --temperature 0 --top-k 3
fails 'top-p 0' 2 'leaves no token' sample "$work/runs/a" --prompt 1 --top-p 0
fails 'a temperature below 0' 2 'temperature' sample "$work/runs/a" --prompt 1 --temperature=-1
fails 'a tokenizer too large' 1 'a vocabulary of 13' sample "$work/runs/a" --prompt 1 --tokenizer bytes
fails 'no such run' 2 'there is no' sample "$work/none" --prompt 1
fails 'a folder without a run' 2 'neither a run' sample "$work/runs" --prompt 1
if [ -w /dev/full ]; then
    "$TALLY" sample "$work/runs/a" --prompt 1 >/dev/full 2>"$work/err" </dev/null
    [ $? -eq 1 ]
    said 'a full disk is an error' $?
fi

# ---- eval ----
run eval "$work/runs/a" --tokens 64
said 'eval of held-out sums' $?
grep -q '^loss [0-9.]*   nats per token   perplexity [0-9.]*   [0-9.]* bits per byte$' "$work/out" && grep -q '256 answer characters of 64 held-out sums' "$work/out" && narrow
said 'four characters of each answer' $?
run --json eval "$work/runs/a" --tokens 64
# perplexity = e^loss, bits per byte = loss / ln 2 for one byte a token
awk -F'[:,]' '/"loss":/ { l = $2 } /"perplexity"/ { p = $2 } /"bits_per_byte"/ { b = $2 }
    END { exit !(l > 0 && p / exp(l) > 0.999999 && p / exp(l) < 1.000001 && b * log(2) / l > 0.999999 && b * log(2) / l < 1.000001) }' "$work/out"
said 'perplexity and bits per byte follow from the loss' $?
i=0
while [ $i -lt 30 ]; do
    printf '%d+%d=%4d' $((100 + i * 7)) $((900 - i * 11)) $((1000 - i * 4))
    i=$((i + 1))
done >"$work/text"
run --json eval "$work/runs/a" --text "$work/text"
said 'eval of a text' $?
[ "$(integer targets)" -eq 359 ] && [ "$(integer windows)" -eq 30 ] && [ "$(sed -n 's/.*"bytes": \([0-9]*\).*/\1/p' "$work/out")" = 359 ]
said '360 characters: 359 targets in 30 windows of 12' $?
grep -q '"planned_equals_measured": true' "$work/out"
said 'planned = measured' $?
first=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$work/out")
run --json eval "$work/runs/a" --text "$work/text" --batch 1 --threads 2
[ "$(printf '%.9s' "$first")" = "$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$work/out" | cut -c1-9)" ]
said 'the batch does not show in the loss' $?
run --json eval "$work/runs/a" --text "$work/text" --stride 4
# 1 + (359 - 12)/4, up
[ "$(integer targets)" -eq 359 ] && [ "$(integer windows)" -eq 88 ]
said 'overlapping windows: each target once, 88 windows' $?
run eval "$work/runs/a" --text "$work/text" --stride 4 --seq 10
grep -q 'at least 7' "$work/out" && narrow
said 'and the report says what each sees' $?
# the same as uint32 ids in a raw file
tr '0123456789+= ' '\000\001\002\003\004\005\006\007\010\011\012\013\014' <"$work/text" | od -An -v -tu1 -w1 |
    awk '{ printf "\\%03o\\000\\000\\000", $1 }' >"$work/octal"
# shellcheck disable=SC2059 # the format is the data
printf "$(cat "$work/octal")" >"$work/ids.bin"
run --json eval "$work/runs/a" --data "$work/ids.bin" --dtype uint32
[ "$first" = "$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$work/out")" ]
said 'token files give the loss of the text' $?
sed 's/"task": "sums"/"task": "other"/' "$work/runs/a/run.json" >"$work/run.json"
mkdir "$work/other"
cp -R "$work/runs/a"/* "$work/other/"
cp "$work/run.json" "$work/other/run.json"
run eval "$work/other" --data "$work/ids.bin" --dtype uint32
grep -q 'leaves out bits per byte' "$work/out" && ! grep -q 'bits per byte$' "$work/out"
said 'bytes that are not known are left out and named' $?
run --json eval "$work/other" --data "$work/ids.bin" --dtype uint32 --bytes-per-token 2
awk -F'[:,]' '/"loss":/ { l = $2 } /"bits_per_byte"/ { b = $2 } END { r = b * 2 * log(2) / l; exit !(r > 0.999999 && r < 1.000001) }' "$work/out"
said 'or stated' $?
fails 'nothing to evaluate on' 2 '--data FILE' eval "$work/other"
fails 'a stride beyond the window' 2 '1 to 12 would work' eval "$work/runs/a" --text "$work/text" --stride 13
fails 'a window beyond the model' 2 '12 positions' eval "$work/runs/a" --text "$work/text" --seq 13
fails 'sums have no stride' 2 'would change nothing' eval "$work/runs/a" --stride 3
printf 7 >"$work/one"
fails 'one token' 1 'holds 1 token' eval "$work/runs/a" --text "$work/one"
fails 'no such text' 1 'No such file' eval "$work/runs/a" --text "$work/none"
printf '\377\000\000\000\001\000\000\000' >"$work/bad.bin"
run eval "$work/runs/a" --data "$work/bad.bin" --dtype uint32
[ $? -ne 0 ] && grep -q 255 "$work/err" && [ ! -s "$work/out" ]
said 'an id beyond the vocabulary is named' $?

# a run on tokens of bytes: its text through the same tokenizer, and bits per byte = loss / ln 2
run train "$work/ids.bin" --out "$work/tokens" --data-dtype uint32 --model gpt2:N=1,D=16,H=2,C=16 --vocab 256 --seq 16 --micro-batch 4 --steps 3 --threads 1
said 'a run on tokens' $?
run sample "$work/tokens" --prompt 'ab' --tokenizer bytes --tokens 5 --seed 2
[ $? -eq 0 ] && [ "$(wc -c <"$work/out")" -eq 6 ]
said 'five bytes from it' $?
fails 'a prompt without a tokenizer' 2 'does not say its tokenizer' sample "$work/tokens" --prompt ab
run --json eval "$work/tokens" --data "$work/ids.bin" --dtype uint32 --tokenizer bytes
awk -F'[:,]' '/"loss":/ { l = $2 } /"bits_per_byte"/ { b = $2 } END { r = b * log(2) / l; exit !(r > 0.999999 && r < 1.000001) }' "$work/out"
said 'eval of a run on tokens' $?

# ---- runs ----
touch -d '2020-01-01' "$work/runs/deep/b"/*
run runs "$work/runs"
said 'runs ends with 0' $?
[ "$(sed -n 2p "$work/out" | cut -d' ' -f1)" = a ] && grep -q '^a .* 20/20 .* finished$' "$work/out" && grep -q '^deep/b .* 10/20 .* interrupted$' "$work/out" && narrow
said 'newest first, finished and interrupted, in 80 columns' $?
COLUMNS=120
export COLUMNS
run runs "$work/runs"
! grep -qE '^.{121,}' "$work/out" && grep -q 'gpt2:N=2,D=16,H=2' "$work/out"
said 'and the model in 120' $?
unset COLUMNS
touch "$work/runs/deep/b/metrics.jsonl"
run runs "$work/runs"
grep -q '^deep/b .* running?$' "$work/out"
said 'a log that changed just now: running?' $?
mkdir "$work/runs/half" "$work/runs/empty" "$work/runs/log" "$work/runs/closed"
printf '{"schema": "tally/1", "task"' >"$work/runs/half/run.json"
: >"$work/runs/empty/run.json"
cp "$work/runs/a"/*.json "$work/runs/log/"
printf '{"step":5,"loss":1.5}\nnonsense\n{"step":10,"loss":0.5}\n{"step":15,"lo' >"$work/runs/log/metrics.jsonl"
ln -s "$work/runs" "$work/runs/deep/loop"
ln -s "$work/nowhere" "$work/runs/deep/dangling"
chmod 0 "$work/runs/closed"
run runs "$work/runs"
said 'a folder of wrecks ends with 0' $?
[ "$(grep -c ' damaged$' "$work/out")" -eq 3 ] && grep -q 'half is damaged: .*run.json:' "$work/err" && grep -q 'empty is damaged' "$work/err" && grep -q 'log is damaged: line 2 of metrics.jsonl' "$work/err"
said 'each wreck is named with its reason' $?
grep -q '1 link to folders not followed' "$work/err"
said 'links are counted, not followed' $?
if [ "$(id -u)" -ne 0 ]; then
    grep -q 'closed: Permission denied' "$work/err"
    said 'a closed folder is named' $?
else
    echo 'skip a closed folder is named: root may read it'
fi
run --json runs "$work/runs"
grep -q '"state": "damaged"' "$work/out" && grep -q '"loss": null' "$work/out" && grep -q '"step": 10' "$work/out"
said 'json: what is not known is null; an unfinished line does not count' $?
i=0
while [ $i -lt 1500 ]; do
    mkdir -p "$work/many/$i"
    i=$((i + 1))
done
for i in 3 700 1400; do cp -R "$work/runs/a"/* "$work/many/$i/"; done
run --format csv runs "$work/many"
[ "$(wc -l <"$work/out")" -eq 4 ]
said 'three runs among 1500 folders' $?
run runs "$work/runs/a" "$work/runs/deep/b"
said 'two runs compared' $?
grep -q '^model  *gpt2:N=2,D=16,H=2  *llama:N=1,D=16,H=4,G=2' "$work/out" && grep -q '^micro-batch  *8  *4$' "$work/out" && ! grep -q '^lr ' "$work/out" && [ "$(grep -cE '^ +(5|10)  [0-9.]+' "$work/out")" -eq 2 ] && narrow
said 'the settings that differ, and the steps both logged' $?
run runs "$work/runs/a" "$work/runs/a"
grep -q 'all settings are equal' "$work/out"
said 'a run equals itself' $?
run --json runs "$work/runs/a" "$work/runs/deep/b"
[ "$(grep -c '"loss_a"' "$work/out")" -eq 2 ]
said 'json of two' $?
fails 'a run that is none' 2 'run.json' runs "$work/runs/a" "$work/none"
fails 'no folder' 2 'is no folder' runs "$work/none"
mkdir "$work/void"
run runs "$work/void"
[ $? -eq 0 ] && grep -q 'no runs below' "$work/err"
said 'no runs: said so' $?
