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

# ---- other families: trained, written, read, continued ----

sizes='"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 24, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4'
ids() { tr -d ' \n' <"$work/out" | sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p'; }
family() { # NAME CONFIG TENSOR: a published tensor as inspect says it
    mkdir "$work/$1-config"
    printf '{"model_type": "%s", %s}\n' "$1" "$2" >"$work/$1-config/config.json"
    run train sums --out "$work/$1" --model "$work/$1-config/config.json" --micro-batch 4 --threads 1 --steps 2
    said "$1: trained from its config.json" $?
    run export "$work/$1" --out "$work/$1-shards" --shard-size 9kB
    [ $? -eq 0 ] && [ -s "$work/$1-shards/model.safetensors.index.json" ]
    said "$1: written in shards" $?
    run inspect "$work/$1-shards" --all
    [ $? -eq 0 ] && has "$3"
    said "$1: under the published names" $?
    run export "$work/$1-shards" --out "$work/$1-whole"
    run export "$work/$1" --out "$work/$1-direct"
    cmp -s "$work/$1-whole/model.safetensors" "$work/$1-direct/model.safetensors" && cmp -s "$work/$1-whole/config.json" "$work/$1-direct/config.json"
    said "$1: read from shards, it is the run's own, byte for byte" $?
    run --json sample "$work/$1" --ids 1,3,7 --tokens 6 --temperature 0
    ids >"$work/of-run"
    run --json sample "$work/$1-shards" --ids 1,3,7 --tokens 6 --temperature 0
    ids >"$work/of-shards"
    [ -s "$work/of-run" ] && cmp -s "$work/of-run" "$work/of-shards"
    said "$1: the same tokens from run and folder" $?
    run train sums --out "$work/$1-more" --model "$work/$1-shards/config.json" --weights "$work/$1-shards" --micro-batch 4 --threads 1 --steps 1
    [ $? -eq 0 ] && err 'tensors,'
    said "$1: trained on from there" $?
    run eval "$work/$1-more"
    said "$1: evaluated" $?
}
family mixtral "$sizes, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": null, \"tie_word_embeddings\": false" 'model.layers.1.block_sparse_moe.experts.3.w2.weight F32 [16, 24]'
family gemma2 "$sizes, \"query_pre_attn_scalar\": 8, \"sliding_window\": 16, \"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": 30.0" 'model.layers.0.pre_feedforward_layernorm.weight F32 [16]'
family bloom '"vocab_size": 40, "hidden_size": 16, "n_layer": 2, "n_head": 2' 'transformer.h.0.self_attention.query_key_value.weight F32 [48, 16]'
