#!/bin/sh
# The command line as people and scripts meet it: answers, forms, exit statuses, refusals, hostile arguments.
# Expected values: shared/UX.md (143.9 days, 72.0 days, 40.0 B, 42.8 B, the MFU ladder), shared/data/cs336.md
# (6·70e9·15e12 = 6.3e24; 143.93 days with 989.5e12; 40e9 parameters on 8×80e9), and the arithmetic beside each case.
set -u
TALLY=${TALLY:-build/tally}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C.UTF-8
export LC_ALL
unset COLUMNS NO_COLOR

passed_or() { # NAME, status of the test before
    if [ "$2" -eq 0 ]; then echo "ok $1"; else
        sed 's/^/# out: /' "$work/out" | head -20
        sed 's/^/# err: /' "$work/err" | head -20
        echo "not ok $1"
    fi
}
run() {
    "$TALLY" "$@" >"$work/out" 2>"$work/err" </dev/null
    ran=$?
    # A sanitizer ends the program with 1, which is a status of ours too.
    if LC_ALL=C grep -aqE 'Sanitizer|runtime error' "$work/err"; then
        sed 's/^/# /' "$work/err" | head -20
        echo "not ok sanitizers are silent"
    fi
    return $ran
}

# gives NAME STATUS TEXT ARGUMENT...: exits so and says TEXT on stdout.
gives() {
    name=$1 status=$2 text=$3
    shift 3
    run "$@"
    code=$?
    # Long lines are broken at the width: look in the text as one line too.
    tr -s '\n ' '  ' <"$work/out" >"$work/flat"
    [ $code -eq "$status" ] && grep -qF -- "$text" "$work/out" "$work/flat"
    passed_or "$name" $?
}
# refuses NAME TEXT ARGUMENT...: exit 2, TEXT on stderr, nothing on stdout.
refuses() {
    name=$1 text=$2
    shift 2
    run "$@"
    code=$?
    [ $code -eq 2 ] && grep -qF -- "$text" "$work/err" && [ ! -s "$work/out" ]
    passed_or "$name" $?
}
# Well-formed JSON by a parser that is not ours, where there is one.
json_ok() {
    if command -v python3 >/dev/null 2>&1 && python3 -c 'import json' >/dev/null 2>&1; then
        python3 -m json.tool "$1" >/dev/null 2>&1
    else
        awk '{ for (i = 1; i <= length($0); i++) { c = substr($0, i, 1)
                 if (quoted) { if (c == "\\") i++; else if (c == "\"") quoted = 0; continue }
                 if (c == "\"") quoted = 1
                 if (c == "{" || c == "[") depth++
                 if (c == "}" || c == "]") depth-- } }
             END { exit !(depth == 0 && !quoted && NR > 0) }' "$1"
    fi
}
gives_json() { # NAME PATTERN ARGUMENT...: valid JSON that begins with schema and verb and holds the pattern (an ERE)
    name=$1 pattern=$2
    shift 2
    run "$@" --json
    code=$?
    tr -d '\n ' <"$work/out" >"$work/flat"
    [ $code -eq 0 ] && json_ok "$work/out" && grep -q '^{"schema":"tally/1","verb":"' "$work/flat" && grep -qE -- "$pattern" "$work/flat"
    passed_or "$name" $?
}

# ---- the napkin
N="--params 70B --tokens 15T --gpus 1024xH100 --mfu 0.5"
# shellcheck disable=SC2086 # N is a list of words throughout
{
gives "time: 143.9 days" 0 "143.9 days   (20.6 weeks; 3.54 M GPU-hours; \$7.07 M at \$2.00/h)" time $N
gives "time: the formula with the numbers put in" 0 "= 6·70e9·15e12 / (1024·989.4e12·0.50) = 1.2437e7 s" time $N
gives "time: what the sparse figure would say" 0 "(1979 TFLOP/s is with 2:4 sparsity; it would say 72.0 days)" time $N
gives "time: the ladder" 0 "0.35: 205.6 d  0.40: 179.9  0.45: 159.9  0.50: 143.9  0.55: 130.9" time $N
gives "time: 6.3e24 is 21 times GPT-3" 0 "6.3e24: 21 × GPT-3 (3e23)" time $N
gives "time: a bare H100 is said to be the SXM5" 0 "SXM5 80 GB" time $N
gives "time: something comes next" 0 "next:" time $N
gives "time: the options may stand before the verb" 0 '"verb": "time"' --json time $N
gives "time: a sparse peak by hand is recognised" 0 "its dense bf16 peak is 989.4 TFLOP/s, which says 143.9 days" time $N --peak 1979e12
gives "time: without a device too" 0 "WITH 2:4 sparsity" time --params 70B --tokens 15T --gpus 1024 --mfu 0.5 --peak 1979T
gives "time: the lecture's 989.5e12 says 143.9" 0 "143.9 days" time --params 70B --tokens 15T --gpus 1024 --mfu 0.5 --peak 989.5e12
gives_json "time: JSON, every digit" '"flops":6300000000000000000000000,' time $N
gives_json "time: JSON, days" '"days":143\.9411' time $N
gives_json "time: JSON, seconds, hours, amount" '"seconds":12436514\.55.*"device_hours":3537497\.47.*"amount":7074994\.94' time $N
gives_json "time: JSON names its peak" '"peak_flop_per_s":989400000000000(\.0)?,"peak_source":"H100-SXM5-80GBbf16dense' time $N
gives "time: csv is raw" 0 "time,70000000000,70000000000,15000000000000,1024,H100-SXM5-80GB,bf16,989400000000000," time $N --format csv
gives "time: md" 0 "| time | 143.9 days |" time $N --format md
}
# 6·70e9·15e12 / (30·86400·989.4e12·0.5) = 4913.2
gives "time: devices for 30 days, rounded up" 0 "4,914 devices" time --params 70B --tokens 15T --mfu 0.5 --days 30 -g H100
gives_json "time: the same by --solve" '"solved_for":"gpus".*"devices":4914,' time --params 70B --tokens 15T --mfu 0.5 --time 30d -g H100 --solve gpus
# 90·86400·2048·989.4e12·0.4 / (6·15e12) = 7.0029e10
gives "time: parameters" 0 "70.0 B parameters" time --tokens 15T --gpus 2048xH100 --days 90 --mfu 0.4
gives "time: tokens" 0 "15.0 T tokens" time --params 70B --gpus 2048xH100 --days 90 --mfu 0.4
# 6.3e24 / (2048·989.4e12·90·86400) = 0.39983
gives "time: MFU" 0 "MFU 0.3998" time --params 70B --tokens 15T --gpus 2048xH100 --days 90
gives "time: an MFU above 1 cannot be, exit 3" 3 "cannot be: it would take an MFU of 6.397" time --params 70B --tokens 15T --gpus 128xH100 --days 90
# A100: 312e12 dense; 6·7e9·2e12/(8·312e12·0.5) = 6.731e7 s = 779.0 days
gives_json "time: another device, another peak" '"peak_flop_per_s":312000000000000(\.0)?,.*"days":779\.0' time --params 7B --tokens 2T -g 8xA100-80G --mfu 0.5
gives_json "time: fp8 has its own peak" '"peak_flop_per_s":1978900000000000' time --params 7B --tokens 2T -g 8xH100 --mfu 0.5 --precision fp8-mixed
refuses "time: an unknown device asks for --peak" "--peak" time --params 70B --tokens 15T --gpus 8xFoo --mfu 0.5
gives "time: an unknown device with --peak" 0 "days" time --params 7B --tokens 1T --gpus 64xFoo --mfu 0.5 --peak 312e12
refuses "time: MFU above 1" "cannot be" time --params 70B --tokens 15T --gpus 8xH100 --mfu 1.2
refuses "time: MFU in per cent" "did you mean 0.5 (50 %)" time --params 70B --tokens 15T --gpus 8xH100 --mfu 50
refuses "time: MFU 0" "never ends" time --params 70B --tokens 15T --gpus 8xH100 --mfu 0
refuses "time: too little given" "missing: tokens, gpus, mfu, time" time --params 70B
refuses "time: all given" "leave one out" time --params 70B --tokens 15T --gpus 8xH100 --mfu 0.5 --days 3
refuses "time: solved for and given" "leave it out" time --params 70B --tokens 15T --gpus 8xH100 --mfu 0.5 --solve mfu
refuses "time: V100 has no bf16" "no published dense bf16 rate" time --params 7B --tokens 1T -g 8xV100-SXM2-32GB --mfu 0.5
refuses "time: overflow is no number" "2^128" time --params 100000000000000000000000000000000000000 --tokens 15T --gpus 8xH100 --mfu 0.5

# ---- fit
F="--gpus 8xH100 --optim adamw --precision fp32"
# shellcheck disable=SC2086
{
gives "fit model: 40.0 B" 0 "40.0 B parameters" fit model $F
gives "fit model: the formula" 0 "= devices·HBM / (w + g + m + v) = 8·80e9 / (4+4+4+4 B)" fit model $F
gives "fit model: driver-visible memory, 42.8 B" 0 "(81,559 MiB = 85.5 GB): 42.8 B" fit model $F
gives "fit model: what it leaves out" 0 "leaves out activations" fit model $F
gives_json "fit model: JSON" '"what":"model","value":40000000000,"peak_bytes":80000000000,"capacity_bytes":80000000000,' fit model $F
}
# Bytes a parameter: shared/FAULTS.md "fp32: 4+4+8; mixed: 2+2+4+4+4. Both are 16".
gives_json "fit model: bf16-mixed is 16 too" '"bytes_per_parameter":16,' fit model -g H100 --precision bf16-mixed
gives_json "fit model: bf16 adamw is 8" '"bytes_per_parameter":8,' fit model -g H100 --precision bf16
gives_json "fit model: sgd fp32 is 8" '"bytes_per_parameter":8,' fit model -g H100 --precision fp32 --optim sgd
gives_json "fit model: momentum fp32 is 12" '"bytes_per_parameter":12,' fit model -g H100 --precision fp32 --optim momentum
gives_json "fit model: adagrad fp32 is 12" '"bytes_per_parameter":12,' fit model -g H100 --precision fp32 --optim adagrad
gives_json "fit model: here" '"device":"thismachine"' fit model
# states: one of fp32 (rmsprop), Adam's two (adam), two of one byte and two fp32 scales for 256 parameters (adamw8bit)
gives_json "fit model: rmsprop fp32 is 12" '"bytes_per_parameter":12,' fit model -g H100 --precision fp32 --optim rmsprop
gives_json "fit model: adam fp32 is 16" '"bytes_per_parameter":16,' fit model -g H100 --precision fp32 --optim adam
gives_json "fit model: adamw8bit fp32 is 10 and 8/256" '"bytes_per_parameter":10.03125,' fit model -g H100 --precision fp32 --optim adamw8bit
gives "fit model: adamw8bit shows its scales" 0 "(4+4+1+1+8/256 B)" fit model -g H100 --precision fp32 --optim adamw8bit
refuses "fit: none by name" "--optim none is not done by \`fit'" fit model --optim none
gives "fit model: fp16-mixed (Micikevicius et al. 2018: fp16 beside an fp32 copy)" 0 "/ (2+2+4+4+4 B)" fit model -g H100 --precision fp16-mixed
gives "fit model: fp8-mixed is emulated" 0 "fp8 is emulated" fit model -g H100 --precision fp8-mixed
refuses "fit: a precision by name" "it is one of fp32, bf16, bf16-mixed, fp16-mixed or fp8-mixed" fit model --precision fp4
refuses "op: fp8-mixed by name" "--precision fp8-mixed is not done by \`op'" op "linear 8 8" --precision fp8-mixed
refuses "fit: a slip of the finger" "did you mean model" fit modle
refuses "fit: nothing to fit" "it needs" fit
refuses "fit: more devices than there are" "999999999999xH100" fit model -g 999999999999xH100

# ---- look-ups
gives "gpus: a list" 0 "A100-SXM4-80GB" gpus
gives "gpus: dense rates" 0 "989.4" gpus H100
gives "gpus: part of a name" 0 "A100-PCIe-40GB" gpus A100
gives_json "gpus: JSON" '"name":"H100-SXM5-80GB","vendor":"NVIDIA","label_bytes":80000000000,"memory_bytes":85899345920,' gpus H100
gives "gpus: iec" 0 "74.5 GiB" gpus --units iec
refuses "gpus: unknown" "Foo" gpus Foo
gives "models: a list" 0 "llama-3-70b" models
gives_json "models: JSON" '"name":"gpt2","family":"gpt2"' models
gives "models: one, with sources" 0 "1,600     width" models gpt2-xl
refuses "models: unknown, the nearest" "gpt2-xl" models gpt2-xll
# Qwen3-30B-A3B: 30,532,122,624 in its safetensors index, 3.3B active by its card
gives "models: what a token passes" 0 "active     3,353,032,704 = 3.35 B" models qwen3-30b-a3b
gives "models: sizes of experts" 0 "Fe         768" models Qwen/Qwen3-30B-A3B
gives "models: layers of a kind" 0 "a window of 512 in 22 of 26 layers" models gemma-3-1b
gives "models: norms" 0 "RMSNorm times 1 + weight, before and after attention and MLP" models gemma-2-2b
gives "models: angles by lists" 0 "longrope by 32" models phi-3.5-mini
gives_json "models: JSON of a mixture" '"parameters":46702792704,"parameters_active":12879925248' models mixtral-8x7b
gives_json "models: JSON describes the block" '"place":"around","qk_norm":"head","positions":"rotary"' models gemma-3-1b
printf '{"model_type":"gemma3n","text_config":{"model_type":"gemma3n_text","hidden_size":2048}}' >"$work/gemma3n.json"
run inspect "$work/gemma3n.json"
[ $? -eq 2 ] && grep -qF "gemma3n" "$work/err" && [ ! -s "$work/out" ]
passed_or "inspect: a family that cannot be planned says why, with the status of plan" $?
printf '{"model_type":"opt","num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,"ffn_dim":16,"vocab_size":10}' >"$work/opt.json"
gives "inspect: a family's own names" 0 "(ffn_dim)" inspect "$work/opt.json"
gives "plan: what a token passes" 3 "a token passes 3,353,032,704" plan qwen3-30b-a3b -g H100 --seq 1024
gives "version" 0 "tally 0.1.0" version
gives "version: as everyone tries" 0 "tally 0.1.0" --version
gives_json "version: JSON" '"version":"0.1.0"' version

printf 'GGUF\003\000\000\000' >"$work/model.gguf"
printf '\002\000\000\000\000\000\000\000{}' >"$work/small.safetensors"
printf 'version https://git-lfs.github.com/spec/v1\n' >"$work/pointer"
printf '<!DOCTYPE html><html>' >"$work/page.json"
printf '{"model_type": "gpt2", ' >"$work/broken.json"
: >"$work/empty"
run inspect "$work/model.gguf"
[ $? -eq 1 ] && grep -q "half a download" "$work/err"
passed_or "inspect: half a GGUF" $?
gives_json "inspect: safetensors" '"kind":"safetensors","files":1,"file_bytes":10,' inspect "$work/small.safetensors"
gives "inspect: a git-LFS pointer" 0 "a git-LFS pointer, not the file itself" inspect "$work/pointer"
gives "inspect: a page of HTML" 0 "a page of HTML" inspect "$work/page.json"
gives "inspect: an empty file" 0 "an empty file" inspect "$work/empty"
run inspect "$work/broken.json"
[ $? -eq 1 ] && grep -q 'broken.json' "$work/err" && [ ! -s "$work/out" ]
passed_or "inspect: half a config" $?
# f4 [2] = 1.5, -2.5 as numpy.save wrote it (version 1.0, 118 bytes of header).
printf '\223NUMPY\001\000v\000%-117s\n\000\000\300\077\000\000\040\300' "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" >"$work/a.npy"
gives "inspect: an .npy" 0 "-2.5 to 1.5, mean -0.5" inspect "$work/a.npy"
gives "inspect: an .npy's values" 0 "[ 1.5 -2.5]" inspect "$work/a.npy"
gives_json "inspect: an .npy, JSON" '"kind":"npy","file_bytes":136,.*"dtype":"f32","shape":"\[2\]","bytes":8,.*"minimum":-2.5,"maximum":1.5,"mean":-0.5,' inspect "$work/a.npy"
refuses "inspect: --as of a page" "--as is for an .npy" inspect "$work/page.json" --as bf16
printf '\223NUMPY\001\000v\000%-117s\n\200\004' "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }" >"$work/o.npy"
run inspect "$work/o.npy"
[ $? -eq 1 ] && grep -q pickle "$work/err"
passed_or "inspect: objects are named a pickle" $?
run inspect "$work/absent"
[ $? -eq 1 ] && grep -q 'No such file' "$work/err"
passed_or "inspect: an absent file" $?
run inspect "$work"
[ $? -eq 1 ] && grep -q 'holds no config.json' "$work/err"
passed_or "inspect: a folder without one" $?
run inspect /dev/zero
[ $? -eq 1 ] && grep -q 'no regular file' "$work/err"
passed_or "inspect: a device would never end" $?
cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "hidden_act": "silu",
 "tie_word_embeddings": false, "torch_dtype": "float16"}
JSON
gives "inspect: a config.json, what was assumed" 0 "assumed" inspect "$work/config.json"
gives_json "inspect: a folder, JSON" '"kind":"config.json".*"layers":2,"width":64,"heads":4,"kv_heads":4,"head_size":16,"ff":128' inspect "$work"

# Formats: shared/data/cs336.md (E4M3 448, E5M2 57344); numpy 1.24 finfo(float16): max 65504, tiny 6.1035e-05, smallest
# subnormal 5.9605e-08; bf16 max 3.3895e38 (torch.finfo).
gives_json "inspect --dtype f8e4m3: 448" '"largest":448(\.0)?,' inspect --dtype f8e4m3
gives_json "inspect --dtype f8e5m2: 57344" '"largest":57344(\.0)?,' inspect --dtype f8e5m2
gives "inspect --dtype fp16: 65504" 0 "65504" inspect --dtype fp16
gives_json "inspect --dtype: torch's name, smallest" '"name":"f8e4m3",.*"smallest_normal":0.015625,"smallest":0.001953125,"epsilon":0.125,"has_infinity":false' \
    inspect --dtype float8_e4m3fn
gives_json "inspect --dtype i64: every digit" '"least":-9223372036854775808,"largest":9223372036854775807,' inspect --dtype i64
gives "inspect --dtype u16: 65535" 0 "65535" inspect --dtype u16
gives "inspect --dtype all" 0 "3.3895e+38" inspect --dtype all
refuses "inspect --dtype: unknown" "Did you mean bf16" inspect --dtype bf61
refuses "inspect: neither" "it needs FILE, or --dtype NAME" inspect
gives_json "help: JSON" '"verbs":\[\{"name":"time"' help

# ---- the frame
refuses "an unknown verb gets the nearest" "Did you mean \`tally time'" tiem
refuses "a verb is missing" "a verb is missing" -q
refuses "an unknown option gets the nearest" "Did you mean --tokens" time --tokns 3
refuses "an option of other verbs names them" "\`time', \`plan', \`sweep' do" gpus --mfu 0.5
refuses "an own option of another verb" "\`time' has" gpus --solve mfu
refuses "a value is missing" "--params needs a value" time --params
refuses "a flag takes no value" "takes no value" version --json=1
refuses "an argument too many" "takes no arguments" version extra
refuses "given twice" "given twice" time --mfu 0.5 --mfu 0.4
refuses "an unknown format" "table, md, csv or json" gpus --format xml
refuses "an unknown format before the verb" "table, md, csv or json" --format xml gpus
refuses "an unknown letter" "no option -z" gpus -z
for verb in $("$TALLY" help | sed -n 's/^  \([a-z]*\)  *.*/\1/p'); do
    gives "help of $verb" 0 "usage: tally $verb" "$verb" --help
    gives "help $verb" 0 "usage: tally $verb" help "$verb"
done
gives "help" 0 "Look-ups" help
gives "--help" 0 "Look-ups" --help

for verb in version "plan gpt2 -g H100" "op gelu 8" gpus "gpus --json" "models --format csv" help "time $N" "time $N --json" "completion bash"; do
    # shellcheck disable=SC2086
    "$TALLY" $verb >/dev/full 2>"$work/err"
    [ $? -eq 1 ] && grep -q 'cannot write' "$work/err"
    passed_or "a full disk is a failure: $(echo "$verb" | cut -c 1-20)" $?
done
"$TALLY" version >&- 2>"$work/err"
[ $? -eq 1 ]
passed_or "a closed standard output is a failure" $?

# Colours: never into a pipe, unless asked for.
run gpus && ! grep -q "$(printf '\033')" "$work/out"
passed_or "no colours in a pipe" $?
run gpus --color always && grep -q "$(printf '\033')" "$work/out"
passed_or "colours when asked for" $?
# No line beyond the width, at any width; tables of fixed columns need their 80.
too_wide() { awk -v most="$1" '{ n = length($0); if (n > most) { print "# " n ": " $0; bad = 1 } } END { exit !bad }' "$work/out"; }
for width in 80 100 120; do
    for verb in help gpus models "time $N" "fit model $F" "gpus H100" "models gpt2-xl" \
        "plan gpt2 -g 8xH100 -t 1T --mfu 0.4" "plan llama-3-8b -g A100-80G" "plan llama-3.1-405b -g 8xH100" "plan cruncher" \
        "fit batch gpt2 -g H100" "fit devices llama-3-70b -g H100" "op linear 1024 1024 --on H100" \
        "op block llama 4096 32 2048 --on H100" "op attention 32 128 4096 8 --on A100-80G"; do
        # shellcheck disable=SC2086
        COLUMNS=$width "$TALLY" $verb >"$work/wide"
        # awk may count bytes: one byte of each character is left for it
        LC_ALL=C tr -d '\200-\277' <"$work/wide" >"$work/out"
        if LC_ALL=C too_wide "$width"; then bad=1; else bad=0; fi
        ! LC_ALL=C grep -q ' $' "$work/out" || bad=1
        passed_or "$width columns hold: $(echo "$verb" | cut -c 1-16)" $bad
    done
done
for verb in $("$TALLY" completion bash | sed -n 's/^    \([a-z]*\))$/\1/p'); do
    COLUMNS=80 "$TALLY" "$verb" --help | LC_ALL=C tr -d '\200-\277' >"$work/out"
    ! LC_ALL=C too_wide 80
    passed_or "80 columns hold: $verb --help" $?
done
# shellcheck disable=SC2086
LC_ALL=C "$TALLY" time $N >"$work/out" && ! LC_ALL=C grep -q '[^ -~]' "$work/out" && grep -qF '6*70e9*15e12' "$work/out"
passed_or "ASCII where the locale has no more" $?
# The decimal point stays whatever the country (checked where the locale is installed).
if locale -a 2>/dev/null | grep -q '^de_DE.utf8$'; then
    # shellcheck disable=SC2086
    LC_ALL=de_DE.utf8 "$TALLY" time $N | grep -q '143\.9 days'
    passed_or "the decimal point stays" $?
else
    echo "skip the decimal point stays (no de_DE.utf8 here)"
fi

# Hostile arguments: each ends by itself, with 1 or 2, and never by a signal. A count beyond 2^64 and a long text are here too.
long=$(head -c 20000 /dev/zero | tr '\0' 'a')
i=0
for value in "" " " - -- --- -1 -0 0 1e400 1e-400 nan NaN inf -inf 0x10 1e 1e+ .e5 1,5 ½ 70b 70m 80G 1.5 \
    340282366920938463463374607431768211456 99999999999999999999999999999999999999999999 '%s%n' '../../x' 'xH100' '0xH100' '-1xH100' \
    '99999999999999999999xH100' '8xx' 'x' '8x' '8xH100xH100' '$(id)' "$long" "$(printf '\377\376')" "$(printf 'a\033[31mb')"; do
    for option in --params --tokens --gpus --mfu --peak --price --days --time --solve --precision --format --units; do
        i=$((i + 1))
        # The option under test comes last, so that what is given twice is it alone.
        run time --tokens 1T --mfu 0.3 "$option=$value"
        code=$?
        if [ $code -ne 1 ] && [ $code -ne 2 ]; then
            echo "# exit $code: $option=$(printf %s "$value" | head -c 60)"
            echo "not ok hostile value $i"
        fi
        if LC_ALL=C grep -q "$(printf '\033')" "$work/err"; then echo "not ok hostile value $i reaches the terminal"; fi
    done
    for verb in fit plan op gpus models inspect completion help version ""; do
        run $verb "$value"
        code=$?
        case "$code:$verb:$value" in 1:* | 2:*) ;; 0:gpus:* | 0:help:-- | 0:version:-- | 0:models:-- | 0:models:) ;; *)
            echo "# exit $code: $verb $(printf %s "$value" | head -c 60)"
            echo "not ok hostile argument" ;;
        esac
    done
done
echo "ok $i hostile values"
many=$(awk 'BEGIN { for (i = 0; i < 5000; i++) printf "a " }')
# shellcheck disable=SC2086
refuses "five thousand arguments" "one argument too many" fit $many

# ---- completion and the manual, both from or against the tables
run completion bash
if command -v bash >/dev/null 2>&1; then
    cp "$work/out" "$work/completion"
    bash -c ". '$work/completion'; COMP_WORDS=(tally ti); COMP_CWORD=1; _tally; echo \"\${COMPREPLY[*]}\"
        COMP_WORDS=(tally time --precision bf); COMP_CWORD=3; _tally; echo \"\${COMPREPLY[*]}\"
        COMP_WORDS=(tally --format json fit --opt); COMP_CWORD=4; _tally; echo \"\${COMPREPLY[*]}\"" >"$work/out" 2>"$work/err"
    printf 'time\nbf16 bf16-mixed\n--optim\n' | cmp -s - "$work/out"
    passed_or "completion: verbs, values and options" $?
else
    echo "skip completion: verbs, values and options (no bash here)"
fi
run completion zsh && grep -q "^    --optim) compadd -- adamw adam sgd " "$work/out" && grep -q " '--recompute:What backward " "$work/out"
passed_or "completion: zsh" $?
if command -v zsh >/dev/null 2>&1; then
    zsh -n "$work/out"
    passed_or "completion: zsh reads it" $?
else
    echo "skip completion: zsh reads it (no zsh here)"
fi
run completion fish && grep -q "^complete -c tally -n '__fish_seen_subcommand_from train' -l sampler -r -f -a 'random epochs' -d " "$work/out"
passed_or "completion: fish" $?
if command -v fish >/dev/null 2>&1; then
    fish --no-execute "$work/out"
    passed_or "completion: fish reads it" $?
else
    echo "skip completion: fish reads it (no fish here)"
fi
refuses "completion: another shell" "bash, zsh and fish would work" completion csh
page=man/tally.1
awk '/^\.EX$/ { inside = 1; next } /^\.EE$/ { inside = 0 } inside' "$page" | sed 's/\\-/-/g' >"$work/examples"
[ "$(grep -c '^\$ tally' "$work/examples")" -ge 8 ]
passed_or "manual: it has examples" $?
command=
while IFS= read -r line; do
    case $line in
    '$ tally '*)
        command=${line#?\ tally }
        # shellcheck disable=SC2086
        "$TALLY" $command >"$work/out" 2>"$work/err" </dev/null
        passed_or "manual: tally $command" $?
        ;;
    *)
        grep -qF -- "$line" "$work/out"
        passed_or "manual: it prints \"$line\"" $?
        ;;
    esac
done <"$work/examples"
for verb in $("$TALLY" help | sed -n 's/^  \([a-z]*\)  *.*/\1/p'); do
    grep -q "^\.SS tally $verb" "$page"
    passed_or "manual: it describes $verb" $?
    for option in $("$TALLY" "$verb" --help | sed -n 's/^  \(-., \|    \)--\([a-z-]*\).*/\2/p'); do
        grep -q -- "$(printf '\\\\-\\\\-%s' "$(printf %s "$option" | sed 's/-/\\\\-/g')")" "$page" || echo "not ok manual: --$option of $verb"
    done
done
if command -v groff >/dev/null 2>&1; then
    groff -man -Tutf8 -ww "$page" >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ]
    passed_or "manual: groff has nothing to say" $?
else
    echo "skip manual: groff has nothing to say (no groff here)"
fi
