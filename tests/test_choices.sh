#!/bin/sh
# The options that say how a model is run: what they change in a plan, what they refuse and in what words, what a run keeps and
# goes on with. Bytes by the arithmetic beside each.
set -u
. tests/verb.inc

XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

number() { # KEY ARGUMENT...: the first of that name in a plan
    key=$1
    shift
    run plan "$@" --json
    tr -d ' \n' <"$work/out" | grep -o "\"$key\":[0-9]*" | head -1 | cut -d: -f2
}

# gpt2 with its dropout, 4 sequences of 1024, in bf16: softmax, mask and what is dropped, 5 bytes a score of 12 heads and 12 layers
# (Korthikanti et al. 2022), is what flash does not keep; it keeps 4 bytes a row and head.
eager=$(number saved gpt2 -g H100 --micro-batch 4)
flash=$(number saved gpt2 -g H100 --micro-batch 4 --attention flash)
[ "$((eager - flash))" -eq "$((4 * 12 * 12 * (5 * 1024 * 1024 - 4 * 1024)))" ]
said "plan: flash keeps no scores ($eager - $flash)" $?
# Logits and their gradient, 2 bytes each, of all tokens but a chunk's: where the loss is the peak.
full=$(number peak_bytes gpt2 -g H100 --micro-batch 16 --attention flash --recompute full)
chunked=$(number peak_bytes gpt2 -g H100 --micro-batch 16 --attention flash --recompute full --loss chunked:16)
[ "$((full - chunked))" -gt "$((2 * 16 * 1024 * 50257))" ]
said "plan: chunks keep no logits ($full - $chunked)" $?
whole=$(number forward_per_token gpt2 -g H100)
[ "$whole" = "$(number forward_per_token gpt2 -g H100 --loss fused)" ]
said "plan: gradients made early are backward's" $?

for choice in "--norm composed" "--glu fused" "--rotary tables" "--repeat-kv on" "--loss full-fp32" "--loss fused:16" \
    "--attention math" "--choice mask-tensor=on" "--choice attention-copies=on" "--choice softmax-fp32=on" \
    "--grads f32" "--update tensor" "--update foreach" "--update-in-backward on" "--attention flash"; do
    # shellcheck disable=SC2086 # an option and its value
    run plan llama-3.2-1b -g H100 --seq 2048 --micro-batch 2 $choice --json
    has '"choices": { "norm": "' && ! has "changes nothing for"
    said "plan: $choice changes llama" $?
done
gives "plan: what was chosen is said" 0 "attention flash: the T×T scores are never a tensor; loss chunked:4; norm=composed,glu=fused" \
    plan llama-3.2-1b -g H100 --seq 2048 --attention flash --loss chunked:4 --norm composed --glu fused
gives "plan: and typed again" 0 "--choice norm=composed,attention=flash" plan llama-3.2-1b -g H100 --seq 2048 --attention flash --norm composed
gives "plan: without effect, and why" 0 "gelu composed changes nothing for llama-3.2-1b: its activation is not GELU" \
    plan llama-3.2-1b -g H100 --seq 2048 --gelu composed
gives "plan: eager's own under flash" 0 "attention is one op" plan gpt2 -g H100 --attention flash --choice mask-tensor=on
gives "plan: scores in fp32 are so already" 0 "scores are fp32 already" plan gpt2 -g H100 --precision fp32 --choice softmax-fp32=on
gives "plan: JSON names all" 0 '"update-in-backward": "on"' plan gpt2 -g H100 --update-in-backward on --json
gives "fit: more fits" 0 "attention=flash" fit batch gpt2 -g A100-40G --attention flash

gives "plan: near miss" 2 "Did you mean flash?" plan gpt2 -g H100 --attention falsh
gives "plan: no such value" 2 "fused|composed|wide would work" plan gpt2 -g H100 --norm none
gives "plan: no such choice" 2 'there is no choice "color"' plan gpt2 -g H100 --choice color=red
gives "plan: no value" 2 "NAME=VALUE" plan gpt2 -g H100 --choice norm
gives "plan: nothing at all" 2 "NAME=VALUE" plan gpt2 -g H100 --choice ""
gives "plan: twice in a list" 2 "norm is chosen twice" plan gpt2 -g H100 --choice norm=fused,norm=composed
gives "plan: twice in two options" 2 "says it already" plan gpt2 -g H100 --choice norm=composed --norm fused
gives "plan: no chunks" 2 "1 to 256 would work" plan gpt2 -g H100 --loss chunked:0
gives "plan: too many chunks" 2 "1 to 256 would work" plan gpt2 -g H100 --loss fused:99999999999999999999
gives "plan: a long value" 2 "would work" plan gpt2 -g H100 --choice "norm=$(printf '%0500d' 0)"
gives "plan: updates in backward of several micro-batches" 2 "one micro-batch a step" \
    plan gpt2 -g H100 --update-in-backward on --global-batch 8
gives "plan: and with clipping" 2 "clipping by the global norm" plan gpt2 -g H100 --update-in-backward on --clip 1
gives "plan: serving takes attention" 0 "attention flash: scores are never a tensor" plan gpt2 -g H100 --infer --attention flash
gives "plan: of which math is training's" 2 "serving has eager and flash" plan gpt2 -g H100 --infer --attention math
gives "plan: and no loss" 2 "changes nothing about serving" plan gpt2 -g H100 --infer --loss chunked
gives "fit model: takes none" 2 "changes nothing" fit model -g H100 --norm composed
gives "fit model: nor packed documents" 2 "--documents changes nothing for" fit model -g H100 --documents masked
gives "fit model: nor what adapters have" 2 "--lora-base changes nothing for" fit model -g H100 --lora-base nf4

small="--model llama:N=2,D=32,H=4,G=2 --steps 6 --micro-batch 4 --threads 1"
# shellcheck disable=SC2086
gives "train: planned = measured with choices" 0 "planned = measured in each of" train sums --out "$work/a" $small --attention flash \
    --loss fused:3 --norm composed --glu fused --rotary tables --update foreach
grep -q '"choice": *"norm=composed,attention=flash,glu=fused,rotary=tables,loss=fused:3,update=foreach"' "$work/a/run.json"
said "train: run.json keeps them" $?
# shellcheck disable=SC2086
gives "train: another run, stopped" 0 "step 3" train sums --out "$work/b" $small --stop-at 3 --attention flash --loss fused:3 \
    --norm composed --glu fused --rotary tables --update foreach
gives "train: goes on with them" 0 "step 6 of 6" train --out "$work/b" --resume --norm composed
newest() { find "$1/checkpoints" -name '*.safetensors' -path '*6*' | sort | tail -1; }
a=$(newest "$work/a") b=$(newest "$work/b")
[ -n "$a" ] && cmp -s "$a" "$b"
said "train: to the same bits" $?
gives "train: not with others" 2 "was started with norm=composed" train --out "$work/b" --resume --norm fused
# shellcheck disable=SC2086
gives "train: updates in backward" 0 "planned = measured in each of" train sums --out "$work/c" $small --update-in-backward on --clip 0
# shellcheck disable=SC2086
gives "train: which clipping refuses" 2 "no clipping would work" train sums --out "$work/d" $small --update-in-backward on
# shellcheck disable=SC2086
gives "train: CS336's ways" 0 "planned = measured in each of" train sums --out "$work/e" $small --norm wide --loss log-softmax \
    --choice softmax=composed,silu=composed,mean-input=on
