#!/bin/sh
# tally export: a run's weights under the published names, in one file or shards, in another format; refusals. That the values
# are right is tests/test_weights.c's.
set -u
. tests/verb.inc

for model in gpt2:N=1,D=16,H=2 llama:N=1,D=16,H=2; do
    family=${model%%:*}
    run train sums --out "$work/$family" --model "$model" --micro-batch 4 --threads 1 --steps 3
    run export "$work/$family" --out "$work/$family-out"
    [ $? -eq 0 ] && has 'in f32' && [ -s "$work/$family-out/model.safetensors" ]
    said "$family: a run's weights" $?
    run inspect "$work/$family-out/config.json"
    said "$family: with a config.json that is read back" $?
done
run inspect "$work/gpt2-out"
[ $? -eq 0 ] && has 'h.0.attn.c_attn.weight F32 [16, 48]' && has 'format = pt' # [in, out], as Conv1D keeps it
said 'gpt2: the published shapes' $?
run inspect "$work/llama-out"
[ $? -eq 0 ] && has 'model.layers.0.self_attn.q_proj.weight F32 [16, 16]'
said 'llama: the published names' $?
run export "$work/gpt2/checkpoints/step-00000003.safetensors" --out "$work/one"
[ $? -eq 0 ] && cmp -s "$work/one/model.safetensors" "$work/gpt2-out/model.safetensors"
said 'a checkpoint alone says of which model it is: the same file' $?
run export "$work/gpt2-out" --out "$work/bf16" --dtype bf16 --shard-size 2kB
[ $? -eq 0 ] && has 'in bf16' && [ -s "$work/bf16/model.safetensors.index.json" ] && [ ! -e "$work/bf16/model.safetensors" ]
said 'a model in bf16 and in shards' $?
run --json export "$work/bf16" --out "$work/again" --dtype f32
[ $? -eq 0 ] && grep -q '"dtype": *"f32"' "$work/out" && grep -q '"from_dtype": *"bf16"' "$work/out"
said 'and back, as JSON' $?
run inspect "$work/again"
[ $? -eq 0 ] && has 'F32: 16 tensors, 3,712 values'
said 'in one file' $?
run export "$work/gpt2"
[ $? -eq 2 ] && err '--out'
said 'no --out: exit 2' $?
run export "$work/gpt2" --out "$work/x" --dtype u8
[ $? -eq 2 ] && err '--dtype'
said 'a format that is none for weights: exit 2' $?
run export "$work/gpt2" --out "$work/x" --shard-size 5G
[ $? -eq 2 ] && err '--shard-size'
said 'a bare size: exit 2' $?
run export "$work" --out "$work/x"
[ $? -eq 2 ] && err 'holds neither'
said 'a folder without weights: exit 2' $?
: >"$work/file"
run export "$work/gpt2" --out "$work/file"
[ $? -eq 1 ] && err 'cannot'
said 'a file in the place of the folder: exit 1' $?
