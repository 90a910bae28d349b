#!/bin/sh
# Each option of plan, varied alone on three models, changes a number of the answer, or the answer says why it does not. The list of
# options is --help's own, those of choices and engines the command's own: a new one that nobody thought about fails here.
set -u
. tests/verb.inc

XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

# Numbers and flags of the account: what was asked for (layout, and the command) is no answer.
answer() {
    tr -d '\n' <"$1" | sed 's/"layout": *{.*"choices": *{[^}]*} *},//; s/"assumptions":.*//' |
        grep -oE '"[a-z_0-9]+": *(-?[0-9][0-9.e+-]*|true|false)'
}

# MODEL OPTION...: ok where the answer is another one than $work/plain's, or says why not.
tried=0 silent=0
varied() {
    model=$1
    shift
    run plan "$model" $base "$@" --json
    code=$?
    tried=$((tried + 1))
    cat "$work/out" "$work/err" | tr -s '\n ' '  ' >"$work/flat"
    word=${1#--}
    [ "$word" = choice ] && word=${2%%=*}
    if [ $code -eq 0 ] || [ $code -eq 3 ]; then
        answer "$work/out" >"$work/other"
        cmp -s "$work/plain" "$work/other" || return 0
        silent=$((silent + 1))
        grep -qE "$word [^;\"]*(changes nothing|without effect)|$word changes nothing|already" "$work/flat" && return 0
        echo "not ok options: $model $* changes no number and says nothing"
    elif [ $code -gt 3 ]; then
        echo "not ok options: $model $* ends with $code"
    else
        silent=$((silent + 1))
        grep -qF -- "$word" "$work/err" && return 0
        sed 's/^/# /' "$work/err" | head -5
        echo "not ok options: $model $* is refused without its name"
    fi
}

run plan gpt2 -g H100 --choice none=1
names=$(tr -s '\n ' '  ' <"$work/err" | sed 's/.*is no choice "none"; //; s/.*there is no choice "none"; //; s/ would work.*//; s/ or /, /; s/,//g')
[ "$(echo "$names" | wc -w)" -ge 15 ]
said "options: the choices by name" $?
run plan gpt2 -g H100 --engine none
engines=$(tr -s '\n ' '  ' <"$work/err" | sed 's/.*it is one of //; s/ or /, /; s/[.,]//g; s/ Did you.*//; s/ Try .*//')
[ "$(echo "$engines" | wc -w)" -eq 10 ]
said "options: the engines by name ($engines)" $?

values() { # of a choice, from the words that refuse nonsense; a number where one may stand
    run plan gpt2 -g H100 --choice "$1=nonsense"
    tr -s '\n ' '  ' <"$work/err" | sed 's/.*"nonsense"; //; s/ would work.*//; s/\[:K\]/:5/g; s/\[:F\]/:1.5/g; s/|/ /g'
}

known="gpus seq micro-batch global-batch tokens precision autocast optim attention loss norm glu gelu rotary repeat-kv grads update
 update-in-backward choice recompute engine flops zero tp pp vpp cp ep dp infer mfu peak price clip prompt weights
 timeline at lora qlora lora-alpha lora-dropout lora-targets lora-train lora-base groups documents"
run plan --help
left=$(grep -oE '^ *(-[a-z], )?--[a-z-]+' "$work/out" | grep -oE -- '--[a-z-]+' | sed 's/^--//' | sort -u |
    grep -vxE 'json|format|units|color|quiet|verbose|help' | while read -r option; do
    case " $(echo $known) " in *" $option "*) ;; *) echo "$option" ;; esac
done)
[ -z "$left" ]
said "options: all that plan has are varied here ($left)" $?

for model in gpt2 llama-3.2-1b mixtral-8x7b; do
    base="-g H100 --seq 256"
    run plan $model $base --json
    answer "$work/out" >"$work/plain"
    [ "$(wc -l <"$work/plain")" -gt 40 ]
    said "options: $model has an account" $?
    tried=0 silent=0
    for engine in $engines; do
        [ "$engine" = tally ] || varied $model --engine "$engine"
    done
    for name in $names; do
        first=yes # the first is what stands already
        for value in $(values "$name"); do
            [ $first = no ] && varied $model --choice "$name=$value"
            first=no
            case "$name" in
            norm | glu | gelu | rotary | attention | loss | repeat-kv | grads | update | update-in-backward | documents)
                [ "$value" = "$(values "$name" | cut -d' ' -f1)" ] || varied $model "--$name" "$value"
                ;;
            esac
        done
    done
    for value in fp32 bf16 fp16-mixed fp8-mixed; do varied $model --precision $value; done
    for value in adam sgd momentum adagrad rmsprop adamw8bit none; do varied $model --optim $value; done
    for value in selective full every:2; do varied $model --recompute $value; done
    for option in tp pp vpp cp ep dp zero; do varied $model --$option 2; done
    varied $model --autocast on
    varied $model --flops causal
    varied $model --micro-batch 2
    varied $model --global-batch 4
    varied $model --tokens 1B
    varied $model --price 3
    varied $model --mfu 0.4
    varied $model --peak 100T
    varied $model --clip 1
    varied $model --infer
    varied $model --prompt 7
    varied $model --weights int8
    run plan $model $base --timeline --json
    has '"timeline":'
    said "options: $model --timeline shows a curve" $?
    varied $model --at step
    varied $model --groups '*.1.*:frozen'
    varied $model --groups 'nothing:frozen'
    varied $model --lora 4
    varied $model --qlora 4
    for option in "--lora-alpha 3" "--lora-dropout 0.1" "--lora-targets all-linear" "--lora-train norm" "--lora-base int8"; do
        # shellcheck disable=SC2086 # an option and its value
        varied $model $option
    done
    base="-g H100" varied $model --seq 128
    base="--seq 256" varied $model -g A100-40G
    plain_base=$base
    base="$base --lora 4"
    run plan $model $base --json
    answer "$work/out" >"$work/plain"
    table=embed_tokens
    [ $model = gpt2 ] && table=wte
    for option in "--lora-alpha 3" "--lora-dropout 0.1" "--lora-targets all-linear" "--lora-base int8" \
        "--lora-train $table" "--choice adapters=f32" "--choice base-input=on"; do
        # shellcheck disable=SC2086
        varied $model $option
    done
    # SECOND OPTION:CHOICES: what has an effect beside that option
    for beside in "--qlora 4:adapters=f32 base-head=on base-by-f16=on base-input=on" "--recompute full:offload=on" \
        "--global-batch 3:grads-apart=on" "--loss full-fp32:hold-logits=on"; do
        base="$plain_base ${beside%:*}"
        run plan $model $base --json
        answer "$work/out" >"$work/plain"
        for choice in ${beside#*:}; do varied $model --choice $choice; done
    done
    base=$plain_base
    [ $tried -gt 60 ] && [ $silent -lt $((tried / 2)) ]
    said "options: $model, $tried varied, $silent of them change nothing and say why" $?
done

# What is given wins over the engine, and both are said.
gives "engine: its choices are said" 0 "hf-trainer chooses attention=flash, norm=composed, rotary=tables" \
    plan llama-3.2-1b -g H100 --seq 2048 --engine hf-trainer
gives "engine: what is given wins and is said" 0 "given instead of what hf-trainer chooses: norm=fused" \
    plan llama-3.2-1b -g H100 --seq 2048 --engine hf-trainer --norm fused
has "--engine hf-trainer --precision bf16-mixed" && has "--choice norm=fused"
said "engine: and typed again" $?
gives "engine: its formats" 0 "--precision bf16 of torchtune: 2+2+2+2" plan llama-3.2-1b -g H100 --seq 2048 --engine torchtune
gives "engine: a precision that is given" 0 "fp32, adamw" plan llama-3.2-1b -g H100 --seq 2048 --engine hf-trainer --precision fp32
gives "engine: GPT-2's own code" 0 "gelu=composed" plan gpt2 -g H100 --engine torch-eager
gives "engine: near miss" 2 "Did you mean torchtune?" plan gpt2 -g H100 --engine torchtine
gives "engine: serving has none" 2 "changes nothing about serving" plan gpt2 -g H100 --infer --engine litgpt
gives "engine: nor has a model's size" 2 "changes nothing" fit model -g H100 --engine litgpt
gives "engine: fit" 0 "--engine megatron-te" fit batch gpt2 -g A100-40G --engine megatron-te

# Bytes a parameter by form, of gpt2's 124,439,808: what lives at the end of backward and in the step.
state() {
    run plan gpt2 -g H100 --engine "$1" --json
    tr -d ' \n' <"$work/out" | sed 's/.*"high_by_category"://' | grep -oE '"(param|grad|master|optim)":[0-9]+' | cut -d: -f2 |
        while read -r bytes; do printf '%s ' "$((bytes / 124439808))"; done
}
for row in "torch-eager 4 4 0 8" "torchtune 2 2 0 4" "litgpt 2 2 0 4" "megatron-te 2 4 4 8" "megatron-local 2 4 4 8" \
    "deepspeed 2 2 4 8" "torchtitan 4 4 0 8" "tally 2 2 4 8"; do
    [ "$(state "${row%% *}")" = "${row#* } " ]
    said "engine: bytes a parameter of $row" $?
done

# Outside tensors: 481 MiB and twice 32 MiB beside 1.085 of the peak, all of which must fit 81,559 MiB (nvidia-smi, H100 80 GB).
run plan llama-3.2-1b -g H100 --seq 2048 --engine hf-trainer --json
tr -d ' \n' <"$work/out" >"$work/flat"
value() { grep -oE "\"$1\":[0-9]+" "$work/flat" | head -1 | cut -d: -f2; }
[ "$(value context)" -eq $((481 << 20)) ] && [ "$(value workspaces)" -eq $((64 << 20)) ] &&
    [ "$(value needs_bytes)" -eq $(($(value peak_bytes) + $(value allocator))) ] &&
    [ "$(value allocator)" -eq $(($(value peak_bytes) * 85 / 1000)) ]
said "engine: context, workspaces and slack" $?
run plan llama-3.2-1b -g H100 --seq 2048 --json
tr -d ' \n' <"$work/out" >"$work/flat"
[ "$(value needs_bytes)" -eq "$(value arena_bytes)" ] && ! grep -q '"allocator"' "$work/flat"
said "engine: tally's needs are its arena" $?

small="--model llama:N=2,D=32,H=4,G=2 --steps 4 --micro-batch 4 --threads 1"
for engine in $engines; do
    # shellcheck disable=SC2086
    gives "train: $engine's choices run here, planned = measured" 0 "planned = measured in each of" \
        train sums --out "$work/$engine" $small --engine "$engine"
done
grep -q '"engine": *"torchtune"' "$work/torchtune/run.json" && grep -q '"precision": *"bf16"' "$work/torchtune/run.json"
said "train: run.json keeps engine and formats" $?
gives "train: goes on with it" 0 "nothing left to train" train --out "$work/torchtune" --resume
gives "train: not with another" 2 "was started with torchtune" train --out "$work/torchtune" --resume --engine litgpt
for engine in $engines; do
    [ "$engine" = tally ] && continue
    run plan llama-3.2-1b -g H100 --seq 256 --engine "$engine" --json
    list=$(grep -oE "\"$engine chooses [^\"]*" "$work/out" | sed 's/.* chooses //')
    [ -n "$list" ] && grep -qF "| $engine | " docs/engines.md && grep -qF "| $list |" docs/engines.md
    said "docs/engines.md has $engine's choices" $?
done
