#!/bin/sh
# Files that say two things at once, and what is said of them: shards that hold more than the index names, counts beyond
# 2^53, names that a terminal would obey; and command lines that ask for two things, or for nothing.
. tests/verb.inc
cd "$work" || exit 1

# refused NAME STATUS TEXT ARGUMENT...: so, and nothing on standard output
refused() {
    gives "$@"
    [ ! -s "$work/out" ]
    said "$1: nothing on standard output" $?
}
# tensors FILE HEADER BYTES: a safetensors file; its header's length in 8 bytes, little-endian (below 256)
# https://github.com/huggingface/safetensors#format
tensors() {
    printf "\\$(printf %03o ${#2})\\000\\000\\000\\000\\000\\000\\000%s" "$2" >"$1"
    head -c "$3" /dev/zero >>"$1"
}
one() { printf '"%s":{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}' "$1" "$2" $(($2 + 8)); }

# ---- an index and its shards: a and b are 2 values of 4 bytes each ----
mkdir m
first=model-00001-of-00002.safetensors second=model-00002-of-00002.safetensors
index() { printf '{"metadata":{"total_size":%s},"weight_map":{%s}}' "$1" "$2" >m/model.safetensors.index.json; }
tensors m/$first "{$(one a 0),$(one b 8),$(one z 16)}" 24
tensors m/$second "{$(one b 0)}" 8
index 16 "\"a\":\"$first\",\"b\":\"$second\""
gives 'the index decides: 4 values' 0 '"values": 4,' --json inspect m
[ "$(grep -c '"name"' "$work/out")" = 2 ]
said 'a tensor is listed once, one that the index does not name never' $?
gives 'of two shards that hold b one is its place' 0 'a shard holds b, which the index says lies in another: ignored' inspect m
index 17 "\"a\":\"$first\",\"b\":\"$second\""
gives 'a total that is not the sum' 0 'total_size 17, its tensors hold 16 bytes' inspect m
index 0 ''
refused 'an index of nothing' 1 '"weight_map" is empty' inspect m

# ---- a key that cannot be read, and what was counted by it ----
printf '{"model_type":"gemma3_text","vocab_size":99,"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
"head_dim":8,"num_hidden_layers":2,"intermediate_size":48,"max_position_embeddings":64,"query_pre_attn_scalar":8,
"sliding_window":16,"sliding_window_pattern":[1]}' >gemma.json
refused 'a pattern that is a list' 1 '"sliding_window_pattern"' models gemma.json

# ---- Gemma 4: global heads turn pairs too, and the kinds of positions are all named ----
gemma4() { # GLOBAL_HEAD_DIM SHARED KIND
    printf '{"model_type":"gemma4_text","vocab_size":99,"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":1,
"head_dim":8,"global_head_dim":%s,"num_hidden_layers":2,"intermediate_size":48,"max_position_embeddings":64,
"hidden_size_per_layer_input":0,"num_kv_shared_layers":%s,"layer_types":["sliding_attention","full_attention"],
"rope_parameters":{"full_attention":{"rope_type":"%s","rope_theta":100}}}' "$1" "$2" "$3" >gemma4.json
}
gemma4 16 0 proportional
gives 'a small Gemma 4' 0 'gemma4' models gemma4.json
for verb in models plan; do
    gemma4 15 0 proportional
    refused "$verb: an odd global_head_dim" 1 '"global_head_dim" is 15; rotary positions turn pairs, so it must be even' $verb gemma4.json
    gemma4 16 -1 proportional
    refused "$verb: fewer than no shared layers" 2 '"num_kv_shared_layers" is -1; it must be at least 0' $verb gemma4.json
    gemma4 16 0 proportionl
    refused "$verb: a kind of positions that is none" 2 'longrope, proportional and default are known' $verb gemma4.json
done

# ---- MXFP4: gpt_oss's experts, in blocks of 32 (OCP Microscaling Formats 1.0, 5.2) ----
printf '{"model_type":"llama","vocab_size":99,"hidden_size":64,"num_hidden_layers":2,"intermediate_size":96,"num_attention_heads":4,
"quantization_config":{"quant_method":"mxfp4"}}' >mx.json
refused 'mxfp4 of another family' 2 "which is read of gpt_oss's experts" plan mx.json --infer -g H100 --seq 64
mxfp4() {
    printf '{"model_type":"gpt_oss","vocab_size":99,"hidden_size":%d,"num_hidden_layers":1,"intermediate_size":%d,
"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"max_position_embeddings":64,"sliding_window":16,
"num_local_experts":2,"num_experts_per_tok":1,"layer_types":["full_attention"],"tie_word_embeddings":false,
"quantization_config":{"quant_method":"mxfp4"}}' "$1" "$2" >mx.json
}
mxfp4 64 96
gives 'mxfp4 of whole blocks' 0 'in MXFP4, 4.25 bits each' plan mx.json --infer -g H100
for sizes in '80 64' '64 50'; do
    # shellcheck disable=SC2086
    mxfp4 $sizes
    refused "mxfp4 of sizes $sizes" 1 'in blocks of 32: hidden_size' plan mx.json --infer -g H100
done

# ---- counts beyond 2^53, where a double holds every second one: 6·N·D of Llama 405B and 16 M tokens is beyond 2^64 ----
plan='llama-3.1-405b -g 4xH100 --seq 8192 --global-batch 2048'
# shellcheck disable=SC2086
run --json plan $plan
cp out a.json
flops=$(sed -n 's/.*"per_step": \([0-9]*\),.*/\1/p' a.json | head -1)
[ ${#flops} -ge 20 ]
said 'a step of more than 10^19 FLOPs' $?
last=${flops#"${flops%?}"} head=${flops%?}
other=$head$(((last + 1) % 10)) # the last digit alone is another
sed "s/\"per_step\": $flops/\"per_step\": $other/" a.json >b.json
gives 'check: the very number holds' 0 '1 of 1 hold' check a.json "per_step==$flops"
gives 'check: another last digit does not' 3 'VIOLATED' check a.json "per_step==$other"
gives 'diff: one digit in twenty is a difference' 0 'per_step 44.05 E 44.05 E +1' diff a.json b.json
gives 'diff: every digit of both' 0 "$other" --json diff a.json b.json
gives 'diff: a plan and itself' 0 'no difference' diff a.json a.json
sed 's/"peak_bytes": [0-9]*/"peak_bytes": null/' a.json >part.json
gives 'diff: a plan that lacks a value is not the same' 0 'values that both have' diff a.json part.json
printf '{"schema":"tally/1","verb":"plan"}' >none.json
gives 'diff: a plan of nothing' 0 'nothing to compare: no value is in both' diff a.json none.json
awk 'BEGIN { printf "{\"schema\":\"tally/1\",\"verb\":\"plan\",\"x\":\"%0100d", 0 }' >c.json
{ cat c.json; printf '1"}'; } >d.json
printf '2"}' >>c.json
gives 'diff: texts alike for 100 bytes' 0 'names x:' diff c.json d.json

# ---- documents of another kind ----
printf '\357\273\277' | cat - a.json >mark.json
gives 'a byte order mark is read past' 0 'no difference' diff a.json mark.json
sed 's|tally/1|tally/2|' a.json >later.json
refused 'a later schema' 1 'is of schema "tally/2"' check later.json fits
sed 's|"verb": "plan"|"verb": "time"|' a.json >time.json
refused 'another verb' 1 'verb "time"' diff time.json a.json
sed "s/\"per_step\": $flops/\"per_step\": 1e999/" a.json >beyond.json
refused 'a number no double holds, with its place' 1 '1e999 is beyond' check beyond.json fits
refused 'a claim that would be cut' 2 'a claim of more than 159 bytes' check a.json "per_step<=$(printf '%0200d' 1)"

# ---- names from files: raw C1 and DEL bytes, U+202E (turns the line), an escape ----
tensors names.safetensors '{"a\u001b[31m\u009b\u202e\nb":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
gives 'names are written out, once' 0 'a\x1b[31m\x9b\u202e\x0ab' inspect names.safetensors
LC_ALL=C grep -q "$(printf '\033')\\|$(printf '\342\200\256')" out
[ $? -eq 1 ]
said 'and nothing of them reaches the terminal' $?
refused 'an argument that is no UTF-8' 2 'no model "??"' plan "$(printf '\377\376')"

# ---- two things at once, or none ----
refused 'two formats' 2 'two formats are asked for, --json and csv' plan gpt2 --json --format csv
gives 'the same format twice' 0 '"verb": "plan"' plan gpt2 -g H100 --json --format json
refused 'a flag twice' 2 '--infer is given twice' plan gpt2 --infer --infer
refused 'a folder of no name is not /' 2 '--out is empty; FOLDER is wanted' export nowhere --out ''
refused 'targets of no name are not the default' 2 '--lora-targets is empty' plan gpt2 --lora 8 --lora-targets ''
refused 'no sizes' 2 '--set is empty' explain gpt2 params --set ''
refused 'a comma behind the last choice' 2 'ends with a comma' plan gpt2 --choice norm=fused,
refused 'a sweep without a plan' 2 'no model "nope"' sweep nope seq=1,2
refused 'a length for a model without sequences' 2 '--seq changes nothing: cruncher' explain cruncher flops --seq 4
gives 'options that say nothing of memory' 0 '--mfu, --price: of time and cost' plan gpt2 -g H100 --timeline --mfu 0.4 --price 3
