#!/bin/sh
# Hostile input to the command: what is refused, with which status and which words, quickly and with nothing on standard
# output; and what is accepted all the same. The words are what a person needs to find the mistake: file, key, value.
set -u
TALLY=${TALLY:-build/tally}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C.UTF-8
XDG_CACHE_HOME=$work/cache
export LC_ALL XDG_CACHE_HOME
unset COLUMNS NO_COLOR
cd_back=$(pwd)
case $TALLY in /*) ;; *) TALLY=$cd_back/$TALLY ;; esac
cd "$work" || exit 1

# verdict STATUS WANTED TEXT FILE NAME
verdict() {
    if LC_ALL=C grep -aqE 'Sanitizer|runtime error' err; then
        echo "not ok sanitizers are silent: $5"
        sed 's/^/# /' err | head -5
    fi
    if [ "$1" -eq "$2" ] && grep -aqF -- "$3" "$4"; then echo "ok $5"; else
        echo "# status $1, wanted $2 and \"$3\""
        sed 's/^/# /' out err | head -10
        echo "not ok $5"
    fi
}
# refuses STATUS TEXT ARGUMENT...: exits so within 20 s, says TEXT, and nothing on standard output.
refuses() {
    wanted=$1 text=$2
    shift 2
    timeout 20 "$TALLY" "$@" >out 2>err </dev/null
    code=$?
    [ -s out ] && code=99
    verdict $code "$wanted" "$text" err "$(printf '%.60s' "$*" | tr -c '[:print:]' '?')"
}

gpt2='"model_type":"gpt2","n_embd":768,"n_head":12'
llama='"model_type":"llama","vocab_size":99,"hidden_size":64,"num_hidden_layers":2,"intermediate_size":96'
describe() { printf '{%s}' "$2" >"$1.json"; }

# ---- descriptions: file, contents, status, words ----
describe layers "$gpt2,\"vocab_size\":9,\"n_layer\":1000000"
refuses 1 'layers (N) is 1000000 (n_layer); it must be from 1 to 1024' plan layers.json
describe layers40 "$gpt2,\"vocab_size\":9,\"n_layer\":1099511627776"
refuses 1 'layers (N) is 1099511627776' plan layers40.json
describe vocab "$gpt2,\"n_layer\":2,\"vocab_size\":9223372036854775807"
refuses 1 'vocabulary (V) is 9223372036854775807 (vocab_size)' plan vocab.json
describe beyond "$gpt2,\"n_layer\":2,\"vocab_size\":99999999999999999999"
refuses 1 '"vocab_size" is 99999999999999999999, beyond 64 bits' plan beyond.json
describe fraction "$gpt2,\"n_layer\":2,\"vocab_size\":9.5"
refuses 2 '"vocab_size" is 9.5; it must be a whole number' plan fraction.json
describe negative "$gpt2,\"n_layer\":-2,\"vocab_size\":9"
refuses 2 '"n_layer" is -2; it must be at least 1' plan negative.json
describe infinite "$gpt2,\"n_layer\":Infinity,\"vocab_size\":9"
refuses 1 '"n_layer" is Infinity' plan infinite.json
describe heads "$llama,\"num_attention_heads\":0"
refuses 2 '"num_attention_heads" is 0; it must be at least 1' plan heads.json
describe groups "$llama,\"num_attention_heads\":4,\"num_key_value_heads\":8"
refuses 1 'num_key_value_heads' plan groups.json
describe odd "$llama,\"num_attention_heads\":4,\"head_dim\":15"
refuses 1 'must be even' plan odd.json
describe twice "$gpt2,\"n_layer\":2,\"n_layer\":3,\"vocab_size\":9"
refuses 1 'duplicate object key' plan twice.json
printf '{%s,"n_layer":2,"vocab_size":9\000}' "$gpt2" >nul.json
refuses 1 'byte 72 is NUL' plan nul.json
printf '{\000"\000a\000"\000' >utf16.json
refuses 1 'save it as UTF-8' plan utf16.json
: >empty.json
refuses 1 'is empty' plan empty.json
printf '{"a":{"b":' >half.json
refuses 1 'half a download' plan half.json
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "{\"a\":" }' >deep.json
refuses 1 'no model description nests like that' plan deep.json
awk 'BEGIN { printf "{\"a0\":1"; for (i = 1; i < 300000; i++) printf ",\"a%d\":1", i; printf "}" }' >many.json
refuses 1 'holds more than 200000 values' plan many.json
printf '\200\004\225' >pickle.json
refuses 1 'Python pickle' plan pickle.json
printf 'version https://git-lfs.github.com/spec/v1\n' >lfs.json
refuses 1 'git-LFS pointer' plan lfs.json
printf '<!DOCTYPE html>' >page.json
refuses 1 'HTML page' plan page.json

# ---- what is no file ----
mkfifo fifo
ln -s loop loop
mkdir folder
refuses 1 'is a FIFO' plan ./fifo
refuses 1 'loop' plan ./loop
refuses 2 'without a config.json' plan ./folder
refuses 1 'is a character device' plan /dev/zero
refuses 2 'no model named' plan ''

# ---- options ----
refuses 2 'given twice' train sums --model gpt2:N=1,N=2 --out never
refuses 2 'not NAME=NUMBER' train sums --model gpt2: --out never
refuses 2 'not NAME=NUMBER' train sums --model gpt2:N=1, --out never
refuses 2 'holds nothing' train sums --memory 0 --out never
refuses 1 'beyond 63 bits' op linear 1000000000 1000000000
refuses 1 'even 1 needs more' fit batch llama-3-8b -g H100 --seq 1000000000000000000
refuses 2 '--g could be --gpus or --groups' plan gpt2 --g H100
refuses 2 'a multiple of 8 would work' plan gpt2 -g 8xH100 --global-batch 7
refuses 1 '2^63 bytes' plan gpt2 -g H100 --micro-batch 4611686018427387904
refuses 1 'seq 1000000000000000000' plan gpt2 -g H100 --seq 1000000000000000000
refuses 2 'the count is 0' plan gpt2 -g 0xH100
refuses 2 'the most is 10000000' plan gpt2 -g 1000000000000000000xH100
refuses 2 '--tokens 0: it is at least 1' plan gpt2 -t 0
refuses 2 'is given twice' plan gpt2 --seq 8 --seq 9
refuses 2 'one argument too many' plan gpt2 -- --json
refuses 2 'more than 2^128 FLOPs' time --params 1e38 -t 1e38 -g H100 --mfu 0.5

# ---- what train is given ----
# 40 ids of two bytes, 7 and 9 in turn (octal 007, 011); --vocab is narrower than a model whose vocabulary is padded.
awk 'BEGIN { for (i = 0; i < 20; i++) printf "\\007\\000\\011\\000" }' >ids.text
printf "$(cat ids.text)" >ids.bin
tiny='--data-dtype uint16 --model gpt2:N=1,D=16,H=2,V=64,C=8 --micro-batch 8 --steps 2 --warmup 1'
# shellcheck disable=SC2086
{
    refuses 1 'is not below the vocabulary of 9' train ids.bin $tiny --vocab 9 --out narrow
    refuses 2 'has a vocabulary of 64' train ids.bin $tiny --vocab 65 --out never
    refuses 2 '--stop-at 0: 1 to' train ids.bin $tiny --stop-at 0 --out never
    refuses 1 '"optim" "adams": adamw, adam' train "$(printf '{"task":"tokens","data":"ids.bin","optim":"adams"}' >t.json && echo t.json)" --out never
    refuses 2 'needs "data"' train "$(printf '{"task":"tokens"}' >u.json && echo u.json)" --out never
    mkdir -p blocked/plan.json
    refuses 1 'cannot rename to blocked/plan.json' train ids.bin $tiny --out blocked
}
[ ! -e blocked/plan.json.tmp ] && [ ! -e never ]
verdict $? 0 '' err 'what cannot be put in place is taken away'
refuses 1 'there is no ./config.json' sample ids.bin --ids 1
refuses 1 'fifo is no regular file' sample fifo --ids 1

# ---- a run's folder that another made ----
# shellcheck disable=SC2086
timeout 60 "$TALLY" train ids.bin $tiny --save-every 1 --out run1 >out 2>err
verdict $? 0 '' err 'a run of two steps'
cp -r run1 run2
rm run1/metrics.jsonl
mkfifo run1/metrics.jsonl
timeout 20 "$TALLY" runs run1 >out 2>err </dev/null
verdict $? 0 'metrics.jsonl is no regular file' err 'a log that is a pipe is damage'
refuses 1 'metrics.jsonl: it is no regular file' train --resume --out run1
rm run1/metrics.jsonl
ln -s /dev/zero run1/metrics.jsonl
timeout 20 "$TALLY" runs run1 >out 2>err </dev/null
verdict $? 0 'metrics.jsonl is no regular file' err 'so is one that never ends'
rm run1/metrics.jsonl run1/plan.json
truncate -s 100G run1/metrics.jsonl
mkfifo run1/plan.json
timeout 20 "$TALLY" runs run1 >out 2>err </dev/null
verdict $? 0 'plan.json: is a FIFO; a file with a JSON object is wanted' err 'a plan that is a pipe is named as one'
# A weight that is no number (c0 7f: the last bytes of a float's quiet NaN) has a loss that is none.
timeout 60 "$TALLY" export run2 --out weights >out 2>err
size=$(wc -c <weights/model.safetensors)
printf '\300\177' | dd of=weights/model.safetensors bs=1 seek=$((size - 2)) conv=notrunc 2>err
refuses 1 'is not finite' eval weights --data ids.bin --dtype uint16

# ---- names and standard files ----
escape=$(printf '\033')
mkdir "$escape[31m"
describe "$escape[31m/config" "$gpt2,\"n_layer\":2,\"vocab_size\":9"
"$TALLY" plan "$escape[31m" -g H100 >out 2>err
code=$?
LC_ALL=C grep -aq "$escape" out err && code=99
verdict $code 0 '\x1b[31m' out 'a name with control characters is shown written out'
"$TALLY" version >&- 2>err
verdict $? 1 'cannot write the result to standard output' err 'a closed standard output is a failure'
"$TALLY" version >/dev/full 2>err
verdict $? 1 'No space left on device' err 'a full device is a failure'
"$TALLY" version >out 2>&- </dev/null
verdict $? 0 'tally' out 'a closed standard error is borne'
timeout 60 "$TALLY" train sums --out run --steps 1 --model gpt2:N=1,D=16,H=2 >&- 2>err <&-
code=$?
cat run/*.json run/checkpoints/latest >out 2>/dev/null
LC_ALL=C grep -aqE 'step 1|sums, ' out && code=99
verdict $code 1 'cannot write the result' err 'what is printed never lands in a file of the run'
