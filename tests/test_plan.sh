#!/bin/sh
# tally plan, fit and op as people and scripts meet them: answers, JSON fields, exit statuses, refusals, hostile input, and the
# bar of the 405B plan. Expected values: shared/CLI.md (fields, statuses), shared/UX.md (the bill), the bars of the planner,
# shared/data/models.csv (parameters), and the arithmetic beside each case.
set -u
TALLY=${TALLY:-build/tally}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C.UTF-8
export LC_ALL
unset COLUMNS NO_COLOR
# No measurement of this machine stands in: time here is unknown.
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

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
    tr -s '\n ' '  ' <"$work/out" >"$work/flat"
    [ $code -eq "$status" ] && grep -qF -- "$text" "$work/out" "$work/flat"
    passed_or "$name" $?
}
refuses() { # NAME TEXT ARGUMENT...: exit 2, TEXT on stderr, nothing on stdout.
    name=$1 text=$2
    shift 2
    run "$@"
    code=$?
    [ $code -eq 2 ] && grep -qF -- "$text" "$work/err" && [ ! -s "$work/out" ]
    passed_or "$name" $?
}
gives_json() { # NAME STATUS PATTERN ARGUMENT...: JSON of this schema that holds the pattern (an ERE), blanks taken out
    name=$1 status=$2 pattern=$3
    shift 3
    run "$@" --json
    code=$?
    tr -d '\n ' <"$work/out" >"$work/flat"
    if command -v python3 >/dev/null 2>&1; then python3 -m json.tool "$work/out" >/dev/null 2>&1 || code=99; fi
    [ $code -eq "$status" ] && grep -q '^{"schema":"tally/1","verb":"' "$work/flat" && grep -qE -- "$pattern" "$work/flat"
    passed_or "$name" $?
}

# ---- plan
gives "plan: it fits" 0 "fits: needs" plan gpt2 -g H100
gives "plan: parameters, every digit" 0 "124,439,808 parameters" plan gpt2 -g H100
gives "plan: the moment of the peak" 0 "peak at backward, loss, cross_entropy_backward (src/nn/loss.c:" plan gpt2 -g H100
gives "plan: the runner-up" 0 "runner-up: " plan gpt2 -g H100
gives "plan: both conventions" 0 "attention causal" plan gpt2 -g H100
gives "plan: MFU with its peak, dtype, dense, and how attention counts" 0 \
    "0.400 (full attention; HFU 0.400) of 989.4 TFLOP/s, H100-SXM5-80GB bf16 dense" plan gpt2 -g H100 --mfu 0.4
gives "plan: causal changes the convention" 0 "(causal attention; HFU" plan gpt2 -g H100 --flops causal
gives "plan: a bound without an MFU" 0 "MFU at most" plan gpt2 -g H100
gives "plan: assumptions" 0 "assumed --precision bf16-mixed; --optim adamw; --seq 1024, the model's context" plan gpt2 -g H100
gives "plan: what it leaves out" 0 "leaves out allocator slack" plan gpt2 -g H100
gives "plan: the command that says the same" 0 \
    "tally plan gpt2 -g H100 --seq 1024 --micro-batch 1 --precision bf16-mixed --optim adamw --flops full" plan gpt2 -g H100
gives "plan: something comes next" 0 "next:" plan gpt2 -g H100
gives "plan: the whole run and its price" 0 "at \$4.00/h)" plan gpt2 -g H100 -t 10B --mfu 0.4 --price 4
gives "plan: here without a measurement says so" 0 "next: tally machine" plan smollm2-135m --seq 64
gives "plan: iec" 0 "GiB" plan gpt2 -g H100 --units iec
gives "plan: csv is raw" 0 "optim,995518464," plan gpt2 -g H100 --format csv
# AdamW's states of 124,439,808 parameters are 995,518,464 B; in 8 bits 2 B each of what has 4096 elements or more
# (124,318,464; the 121,344 in norms and small biases keep 8), and 8 B for each 256 of them, of which none has a rest
gives "plan: adamw8bit" 0 "optim,253492632," plan gpt2 -g H100 --format csv --optim adamw8bit
gives "plan: rmsprop" 0 "optim,497759232," plan gpt2 -g H100 --format csv --optim rmsprop
gives "plan: adam" 0 "optim,995518464," plan gpt2 -g H100 --format csv --optim adam
gives "plan: 8-bit states may help" 3 " --optim adamw8bit" plan gpt2-xl -g A100-40G --micro-batch 3 --seq 1024
gives "plan: md" 0 "| optim | 995,518,464 |" plan gpt2 -g H100 --format md
gives "plan: what does not fit exits with 3" 3 "does not fit: needs" plan llama-3-8b -g A100-80G
gives "plan: and says what is missing" 3 "missing" plan llama-3-8b -g A100-80G
gives "plan: and what would help" 3 "1 --micro-batch 1 --global-batch 32 " plan gpt2-xl -g A100-40G --micro-batch 32 --seq 1024
gives "plan: and prints the whole account all the same" 3 "attention causal" plan llama-3-8b -g A100-80G
gives "plan: 405B says that nothing fits" 3 "no single-device option of this build makes it fit" plan llama-3.1-405b --optim adamw -g 8xH100
gives "plan: cruncher has samples, no tokens" 0 "forward/sample" plan cruncher -g H100
run plan gpt2 -g H100 --peak 1979e12
[ $? -eq 0 ] && grep -q 'WITH 2:4 sparsity' "$work/err"
passed_or "plan: a sparse peak by hand is recognised" $?

# 124,439,808 (FAULTS.md); 2, 4 and 8 bytes of it
P='"parameters":124439808,"parameters_active":124439808,"parameters_non_embedding":85056000,"parameters_trainable":124439808'
gives_json "plan: JSON, model" 0 "\"model\":\\{\"name\":\"gpt2\",$P\\}" plan gpt2 -g H100
gives_json "plan: JSON, flops" 0 '"flops":\{"forward_per_token":284812800,"per_token":854438400,"per_step":874944921600,"hardware_per_step":874944921600,"attention":"full","convention":"' plan gpt2 -g H100
gives_json "plan: JSON, causal" 0 '"attention":"causal"' plan gpt2 -g H100 --flops causal
gives_json "plan: JSON, memory" 0 '"memory":\{"device":"H100-SXM5-80GB","capacity_bytes":85899345920,"usable_bytes":[0-9]*,"fits":true,"peak_bytes":[0-9]*,"peak_phase":"backward"' plan gpt2 -g H100
gives_json "plan: JSON, categories" 0 '"by_category":\{"param":248879616,"grad":[0-9]*,"master":497759232,"optim":995518464,"saved":[0-9]*,"work":[0-9]*,"cache":0,"data":8192,"comm":0\}' plan gpt2 -g H100
gives_json "plan: JSON, outside and stages" 0 '"outside":\{"context":[0-9]*\},"stages":\[\{"stage":0,"peak_bytes":[0-9]*' plan gpt2 -g H100
gives_json "plan: JSON, the largest micro-batch" 0 '"max_micro_batch":[1-9]' plan gpt2 -g H100
gives_json "plan: JSON, layout" 0 '"layout":\{"devices":8,"tp":1,"pp":1,"vpp":1,"cp":1,"ep":1,"dp":8,"zero":0,"micro_batch":2,"global_batch":64,"seq":512,"accumulation":4' plan gpt2 -g 8xH100 --micro-batch 2 --global-batch 64 --seq 512
gives_json "plan: JSON, time" 0 '"time":\{"step_seconds":[0-9.e-]*,"tokens_per_second":[0-9.e+]*,"mfu":0\.(4|39999)[0-9]*,"hfu":0\.(4|39999)[0-9]*,' plan gpt2 -g H100 --mfu 0.4
gives_json "plan: JSON, cost" 0 '"cost":\{"device_hours":[0-9.]*,"currency":"USD","amount":' plan gpt2 -g H100 -t 1B
gives_json "plan: JSON, suggestions" 3 '"suggestions":\[\{"change":"--micro-batch1--global-batch32","peak_bytes":[0-9]*,"step_seconds":[0-9.e-]*,"extra_flops":0,"extra_percent":0\.0,"arena_bytes":[0-9]*,"fits":true' plan gpt2-xl -g A100-40G --micro-batch 32
# A forward of all blocks more, 2·B·T·N·(4·D² + 2·D·F + 2·D·T), with B 32, T 1024, N 48, D 1600, F 6400.
gives_json "plan: JSON, what recompute costs" 3 "\"change\":\"--recomputefull\",\"peak_bytes\":[0-9]*,\"step_seconds\":[0-9.e-]*,\"extra_flops\":$((2 * 32 * 1024 * 48 * (4 * 1600 * 1600 + 2 * 1600 * 6400 + 2 * 1600 * 1024)))," plan gpt2-xl -g A100-40G --micro-batch 32
gives_json "plan: JSON, recompute" 0 '"recompute":"every:3"' plan gpt2 -g H100 --recompute every:3
gives "plan: hardware FLOPs beside the model's" 0 "is computed again for backward" plan gpt2 -g H100 --recompute full
refuses "plan: every:K needs K" "every:4" plan gpt2 -g H100 --recompute every
refuses "plan: every:0" "from 1 up" plan gpt2 -g H100 --recompute every:0
refuses "plan: no such recompute" "selective" plan gpt2 -g H100 --recompute some
gives "fit: recompute makes room" 0 "recompute full" fit batch gpt2 -g A100-40G --recompute full
refuses "fit model: recompute changes nothing" "changes nothing" fit model -g H100 --recompute full
gives_json "plan: JSON, over" 3 '"over_bytes":[0-9]*,"state_bytes":6493654220800,"state_alone_exceeds":true' plan llama-3.1-405b -g 8xH100
run plan smollm2-135m --seq 64 --json
[ $? -eq 0 ] && ! grep -q '"time":' "$work/out" && grep -q 'unknown until' "$work/out"
passed_or "plan: JSON leaves out the time it cannot know, and says so" $?
run plan gpt2 -g H100 --json
! grep -q '"cost":' "$work/out" && grep -q 'time.total_seconds and cost' "$work/out"
passed_or "plan: JSON without tokens names what is left out" $?

refuses "plan: a model is needed" "it needs MODEL" plan
refuses "plan: an unknown model gets the nearest" "gpt2" plan gpt22
refuses "plan: ZeRO by name" "--zero 3 is not done by \`plan'" plan gpt2 --zero 3
refuses "plan: tensor parallel by name" "--tp 2 is not done" plan gpt2 --tp 2
refuses "plan: dp is the devices" "plain data parallel" plan gpt2 -g 8xH100 --dp 4
gives "plan: dp that is the devices" 0 "8 devices" plan gpt2 -g 8xH100 --dp 8
gives "plan: flash attention by name" 0 "attention flash: the T×T scores are never a tensor" plan gpt2 -g H100 --attention flash
# Dense rates of one H100 SXM5 (NVIDIA's data sheet): 1978.9 TFLOP/s in fp8, 989.4 in fp16.
gives "plan: fp8 is emulated" 0 "fp8 is emulated" plan gpt2 -g H100 --precision fp8-mixed
gives "plan: fp8 on a device that has it" 0 "1.98 PFLOP/s, H100-SXM5-80GB fp8 dense" plan gpt2 -g H100 --precision fp8-mixed
gives "plan: and its own run emulates" 0 "this library's own run emulates fp8" plan gpt2 -g H100 --precision fp8-mixed
gives "plan: fp8 on a device that has none" 0 "the peak of this device in fp8-mixed is not known" plan gpt2 -g A100-80G --precision fp8-mixed
gives "plan: fp16" 0 "989.4 TFLOP/s, H100-SXM5-80GB fp16 dense" plan gpt2 -g H100 --precision fp16-mixed
gives "plan: fp16 scales the loss" 0 "dynamic loss scaling from 2^16" plan gpt2 -g H100 --precision fp16-mixed
gives "plan: autocast has fp32 parameters" 0 "param 497,759,232" plan gpt2 -g H100 --precision fp16-mixed --autocast on
gives "plan: autocast again" 0 "--precision fp16-mixed --optim adamw --flops full --autocast on" plan gpt2 -g H100 --precision fp16-mixed --autocast on
run plan gpt2 -g H100 --precision bf16 --autocast on
[ $? -eq 2 ] && grep -q 'bf16 has no use for it' "$work/err"
passed_or "plan: autocast where it has no use" $?
refuses "plan: several of here" "one device" plan gpt2 -g 2xhere
refuses "plan: a global batch that cannot be" "a multiple of 8" plan gpt2 -g 8xH100 --global-batch 9
refuses "plan: clip 0" "more than 0" plan gpt2 -g H100 --clip 0
refuses "plan: clip is a number" "--clip" plan gpt2 -g H100 --clip x
run plan gpt2 -g H100 --seq 1025
[ $? -eq 1 ] && grep -q '1024' "$work/err"
passed_or "plan: more than the learned positions names them" $?

# Hostile: ends by itself with 1, 2 or 3, never by a signal.
i=0
for value in "" " " -1 0 1e400 nan 9223372036854775807 9223372036854775808 1099511627776 99999999999999999999999 '%s%n' "$(printf '\377')"; do
    for option in --seq --micro-batch --global-batch --tokens --clip --gpus --precision --optim --mfu --flops --peak; do
        i=$((i + 1))
        run plan gpt2 "$option=$value"
        code=$?
        case "$code:$option:$value" in
        1:* | 2:* | 3:*) ;;
        0:--tokens:* | 0:--clip:* | 0:--peak:* | 0:--global-batch:*) ;; # large and yet a number
        *)
            echo "# exit $code: $option=$value"
            echo "not ok hostile plan value $i" ;;
        esac
    done
    for what in batch context devices nothing; do
        run fit $what "$value"
        code=$?
        [ $code -eq 1 ] || [ $code -eq 2 ] || echo "not ok hostile fit $what $value ($code)"
    done
    for what in "linear $value 4" "attention 4 $value 64" "block gpt2 8 2 $value" "$value"; do
        run op "$what"
        code=$?
        case "$code:$value" in 1:* | 2:*) ;; 0:1099511627776) ;; *) echo "not ok hostile op $what ($code)" ;; esac
    done
done
echo "ok $i hostile values of plan"
printf '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, "n_positions": 32}' >"$work/it's a.json"
gives "plan: a config.json, quoted for the shell" 0 "'\\''s a.json'" plan "$work/it's a.json" -g H100

# ---- fit
gives "fit batch" 0 "micro-batch " fit batch gpt2-xl -g A100-80G
gives "fit context: learned positions are the limit" 0 "1,024 tokens" fit context gpt2 -g H100
gives "fit devices: one" 0 "1 device" fit devices gpt2 -g 8xH100
gives "fit devices: none, and why" 3 "plain data parallel keeps" fit devices llama-3-70b -g 8xH100
gives_json "fit batch: JSON" 0 '"what":"batch","value":[1-9][0-9]*,"peak_bytes":[0-9]*,"capacity_bytes":85899345920,"formula":"' fit batch gpt2 -g H100
gives_json "fit context: JSON" 0 '"what":"context","value":1024,' fit context gpt2 -g H100
gives_json "fit devices: JSON, none is null" 3 '"what":"devices","value":null,' fit devices llama-3-70b -g H100
run fit batch gpt2-xl -g A100-80G
best=$(sed -n 's/^micro-batch \([0-9]*\) .*/\1/p' "$work/out")
run plan gpt2-xl -g A100-80G --micro-batch "$best"
[ $? -eq 0 ]
passed_or "fit batch: it fits" $?
run plan gpt2-xl -g A100-80G --micro-batch $((best + 1))
[ $? -eq 3 ]
passed_or "fit batch: one more does not" $?
refuses "fit batch: needs a model" "needs a MODEL" fit batch
refuses "fit batch: the batch is what it finds" "leave it out" fit batch gpt2 --micro-batch 3
refuses "fit context: the sequence is what it finds" "leave it out" fit context gpt2 --seq 3
refuses "fit model: --seq changes nothing" "changes nothing" fit model --seq 3
refuses "fit model: an argument too many" "one argument too many" fit model gpt2

# ---- op: UX.md
gives "op: the sketch, FLOPs" 0 "forward 2.10 M/token + backward 4.19 M = 6.29 M, 6 per parameter" op "linear 1024 1024" --on H100
gives "op: the sketch, intensity" 0 "intensity 455 FLOP/B ≥ ridge 295 → compute-bound; 8.68 us at peak" op "linear 1024 1024" --on H100 --tokens 4096
gives "op: as words" 0 "1,048,576 parameters (+ bias 1,024)" op linear 1024 1024 bias --on H100
gives "op: fp32 under AdamW" 0 "16.0 MiB built | 32.0 MiB after backward | 64.0 MiB after the step" op "linear 2048 2048" --precision fp32 --units iec
gives "op: without a device" 0 "name a device, --on H100" op "linear 8 8"
gives "op: csv" 0 "forward,8589934592,8589934592,0,0,10485760,8388608," op "linear 1024 1024" --on H100 --format csv
gives_json "op: JSON" 0 '"flops":\{"forward_per_token":2097152,"backward_per_token":4194304,"per_parameter":6(\.0)?,' op "linear 1024 1024" --on H100
gives_json "op: JSON, bytes" 0 '"bytes":\{"param":2097152,"grad":2097152,"master":4194304,"optim":8388608,"inference":2097152,"training":16777216,' op "linear 1024 1024"
refuses "op: an unknown one lists the grammar" "linear I O [bias]; matmul M K N" op "conv 3 3"
refuses "op: one device" "an op runs on one device" op "gelu 8" --on 8xH100
refuses "op: an unknown device" "--on:" op "gelu 8" --on H1000
refuses "op: gpus is for plan" "does not take --gpus" op "gelu 8" -g H100

# ---- serving: GPT-2's numbers by hand
# Weights 124,439,808 in 4 or 2 bytes. A position of the cache: keys and values of 12 layers of 12 heads of 64, 2 bytes each:
# 2·12·768·2 = 36,864. A token behind 512: every matrix once, 2·(12·12·768² + 50257·768) = 247,064,064, and scores and weighted
# sum over 513 positions, 4·768·513·12 = 18,911,232.
gives_json "infer: weights by dtype" 0 '"weights_by_dtype":\{"f32":497759232,"bf16":248879616,"int8":[0-9]+,"nf4":[0-9]+,"nf4-dq":[0-9]+\}' plan gpt2 --infer -g H100
# llama-2-7b: 6,476,005,376 weights of the blocks' linear layers at 0.5 + 4/64 bytes, 262,410,240 others at 2
gives_json "infer: nf4" 0 '"weights_bytes":4167573504,' plan llama-2-7b --infer -g A100-40G --weights nf4
gives "infer: nf4 is said" 0 "GB in nf4" plan llama-2-7b --infer -g A100-40G --weights nf4
gives_json "infer: the cache" 0 '"positions":1024,"bytes_per_position":36864,"dtype":"bf16"' plan gpt2 --infer -g H100
gives_json "infer: FLOPs of a token" 0 '"decode":\{"position":513,"flops_per_token":265975296,' plan gpt2 --infer -g H100
# Llama-3-8B: 8,030,261,248 parameters in bf16; a position 2·32·8·128·2 = 131,072.
gives_json "infer: llama-3-8b" 0 '"weights_bytes":16060522496,"cache_bytes":1073741824,' plan llama-3-8b --infer -g H100
gives "infer: bound by memory" 0 "a token behind 2048: " plan llama-3-8b --infer -g H100 --prompt 2048
gives "infer: what does not fit exits 3" 3 "does not fit: needs" plan llama-3-70b --infer -g H100
# A prompt of 32768 eagerly: scores and weights of 32 heads, 2 bytes each, 2·32·32768²·2 = 137 GB at once; flash writes none.
gives "infer: and what would fit" 3 "makes it fit (each one planned): 1 --attention flash" \
    plan llama-3-8b --infer -g A100-40G --seq 65536
gives "infer: so it does" 0 "fits: needs" plan llama-3-8b --infer -g A100-40G --seq 65536 --attention flash
gives "infer: nor do 8 bits, made of 16" 3 "--weights int8" plan llama-3-70b --infer -g H100
"$TALLY" --json plan llama-3-8b --infer -g A100-40G --seq 65536 >"$work/out" 2>"$work/err"
tr -d ' \n' <"$work/out" | grep -o '"suggestions":\[.*\],"assumptions"' | tr '{' '\n' | sed -n 's/^"change":"\([^"]*\)","peak_bytes":\([0-9]*\),"fits":\([a-z]*\).*/\1 \2 \3/p' |
    sed 's/\(--[a-z]*\)\([a-z0-9]\)/\1 \2/g' >"$work/suggested"
[ "$(wc -l <"$work/suggested")" -ge 4 ]
passed_or "infer: suggestions in JSON" $?
number_of() { # KEY ARGUMENT...
    key=$1
    shift
    "$TALLY" --json plan "$@" 2>"$work/err" | tr -d ' \n' | grep -o "\"$key\":[0-9]*" | head -1 | cut -d: -f2
}
for change in "--attention flash" "--seq 16384 --prompt 8192" "--weights int8"; do
    case $change in *--seq*) seq= ;; *) seq="--seq 65536" ;; esac
    # shellcheck disable=SC2086
    bytes=$(number_of peak_bytes llama-3-8b --infer -g A100-40G $seq $change)
    tr -d ' ' <"$work/suggested" | grep -q "^$(echo "$change" | tr -d ' ')$bytes"
    passed_or "infer: typed as it stands it holds as many bytes: $change" $?
done
# 3.35e12 bytes/s (NVIDIA's datasheet): the weights alone, but for the table of which one row is read, take 4.48 ms.
"$TALLY" --json plan llama-3-8b --infer -g H100 --prompt 1 >"$work/out" 2>"$work/err"
awk '/"decode"/ { d = 1 } d && /seconds_at_least/ { gsub(/[^0-9.e-]/, "", $2); s = $2 + 0; exit !(s > 4.48e-3 && s < 4.7e-3) } END { if (!s) exit 1 }' "$work/out"
passed_or "infer: a token takes at least the weights' bytes / bandwidth" $?
# What files take: gpt-oss-120b's checkpoint is 60.8 GiB (its model card, arXiv 2508.10925, table 1), 36·128·3·2880² parameters of the
# experts at 4.25 bits. DeepSeek-V3 in fp8: of 671,026,419,200 parameters 2·129280·7168 of table and head, 58·256·7168 of routers,
# norms and a bias of choice are not; one float for each 128 × 128.
as_stored() { # NAME CONFIG: the shared config.json, its quantization_config the rest of standard input
    sed "1s/{/{\"quantization_config\":$(cat),/" "$TALLY_SHARED/data/configs/$2.json" >"$work/$1.json"
}
if [ -n "${TALLY_SHARED:-}" ]; then
    echo '{"quant_method":"mxfp4"}' | as_stored oss openai--gpt-oss-120b
    gives "infer: as published, MXFP4" 3 "stored 60.8 GiB in files: 114.7 B parameters in MXFP4, 4.25 bits each with their scales; the rest bf16" \
        --units iec plan "$work/oss.json" --infer --seq 128 -g H100
    gives_json "infer: every byte of it" 3 '"stored":\{"format":"MXFP4","bytes":[0-9]*,"packed_parameters":114661785600,"packed_bytes":60914073600\}' \
        plan "$work/oss.json" --infer --seq 128 -g H100
    echo '{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]}' | as_stored fp8 deepseek-ai--DeepSeek-V3
    gives "infer: as published, fp8" 3 "parameters in fp8, 8.002 bits each" plan "$work/fp8.json" --infer --seq 128 -g H100
    for method in gptq awq bitsandbytes; do
        echo "{\"quant_method\":\"$method\",\"bits\":4}" | as_stored other meta-llama--Meta-Llama-3.1-8B
        refuses "infer: $method is refused by name" "of quant_method $method" plan "$work/other.json" --infer
    done
fi
for option in "--optim sgd" "--micro-batch 2" "--precision fp32" "--recompute full" "--clip 1" "--gpus 8xH100"; do
    # shellcheck disable=SC2086
    refuses "infer: $option" "serving" plan gpt2 --infer $option
done
refuses "infer: its options are its own" "is of --infer" plan gpt2 -g H100 --prompt 3
refuses "infer: more positions than there are" "1024 positions" plan gpt2 --infer --seq 2000
refuses "infer: a prompt that leaves no room" "1 to 1023" plan gpt2 --infer --prompt 1024

# ---- the moments beside the steps ----
# 124,439,808 parameters: init holds them in bf16 and f32 (6 bytes each), 8 bytes of Adam's states come with loading (2+4+4+4).
gives_json "moments: init, load, step, save" 0 '"moments":\{"init":746638848,"load":1742157312,"step":[0-9]+,"save":1742157312\}' plan gpt2 -g H100
gives "moments: on the page" 0 "moments init 746.6 MB | load 1.74 GB | step " plan gpt2 -g H100
run plan gpt2 -g H100
! grep -q 'loading and saving' "$work/out"
passed_or "moments: nothing of them is left out" $?

# ---- memory over the step ----
gives "timeline: a curve" 0 "█" plan gpt2 -g H100 --timeline
gives "timeline: the peak's module, op and line" 0 "peak at backward, loss, cross_entropy_backward (src/nn/" plan gpt2 -g H100 --timeline
gives "timeline: who holds a phase's peak" 0 "at the most of step: " plan gpt2 -g H100 --timeline --at step
for columns in 80 120; do
    COLUMNS=$columns "$TALLY" plan llama-3-8b -g H100 --global-batch 4 --timeline >"$work/out" 2>"$work/err"
    [ "$(wc -L <"$work/out")" -le $columns ]
    passed_or "timeline: within $columns columns" $?
done
LC_ALL=C "$TALLY" plan gpt2 -g H100 --timeline >"$work/out" 2>"$work/err"
! LC_ALL=C grep -q '[^ -~]' "$work/out" && grep -q '#' "$work/out"
passed_or "timeline: in ASCII" $?
# Each phase's most among the points is the most that the account says of it.
"$TALLY" plan gpt2 -g H100 --global-batch 8 --timeline --format csv >"$work/points"
"$TALLY" --json plan gpt2 -g H100 --global-batch 8 --timeline >"$work/out" 2>"$work/err"
awk -F, 'NR > 1 && $5 + 0 > m[$2] + 0 { m[$2] = $5 } END { for (p in m) print p, m[p] }' "$work/points" | LC_ALL=C sort >"$work/most"
tr -d ' ",' <"$work/out" | awk -F: '/^by_phase/ { on = 1; next } on && /}/ { exit } on && $1 != "init" { print $1, $2 }' | LC_ALL=C sort >"$work/said"
[ "$(wc -l <"$work/said")" -eq 4 ] && cmp -s "$work/most" "$work/said" && [ "$(wc -l <"$work/points")" -le 513 ]
passed_or "timeline: no phase loses its maximum" $?
gives_json "timeline: JSON" 0 '"timeline":\[\{"event":0,"phase":"forward","module":"","op":"","bytes":1742157312\},\{"event":' plan gpt2 -g H100 --timeline
gives_json "timeline: JSON of a phase's holders" 0 '"at":\{"phase":"forward","bytes":[0-9]+,"module":"lm_head","op":"linear","site":"src/nn/[^"]*","top":\[\{' plan gpt2 -g H100 --timeline --at forward
gives "timeline: what does not fit exits 3" 3 "peak at" plan llama-3-70b -g H100 --timeline
refuses "timeline: --at alone" "is of --timeline" plan gpt2 -g H100 --at forward
refuses "timeline: no such phase" "forward, loss, backward, step or peak" plan gpt2 -g H100 --timeline --at init
refuses "timeline: of serving" "serving" plan gpt2 --infer --timeline

# ---- all 126 layers of 405B in under 64 MB as a whole process (how fast: bench/bench_plan.sh)
gnu_time=/usr/bin/time
if [ -n "${SANITIZE:-}" ]; then
    echo "skip the 405B bar: a sanitizer is no measure"
elif [ -x $gnu_time ]; then
    $gnu_time -f '%M' -o "$work/time" "$TALLY" plan llama-3.1-405b --optim adamw -g 8xH100 >"$work/out" 2>"$work/err"
    kilobytes=$(tail -n 1 "$work/time")
    [ "$kilobytes" -lt 64000 ]
    passed_or "405B: under 64 MB as a whole process ($kilobytes kB)" $?
else
    echo "skip the 405B bar: no $gnu_time here"
fi
