#!/bin/sh
# The kinds of shared/FAULTS.md, "Memory estimates", "FLOPs and MFU" and "Model descriptions", each as a person meets it on the
# command line, with figures beyond those of the list: other models, formats, numbers of devices, lengths. Expected values are
# arithmetic beside each case on shapes of shared/data/models.csv and formulas of shared/data/formulas.md; tests/test_mfu.sh has
# MFU's.
set -u
. tests/verb.inc
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

# ---- Memory estimates
# "Weights of a 70B model shown at half their size because the config's own torch_dtype was applied twice": 2 bytes each of a
# Llama of 16 layers (1,235,814,400 parameters), 4 where the run is fp32, whatever the file says
SHAPE='"model_type":"llama","hidden_size":2048,"num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"intermediate_size":8192,"vocab_size":128256,"max_position_embeddings":131072,"tie_word_embeddings":true'
for said_dtype in '"torch_dtype":"float16",' '"torch_dtype":"float32",' '"torch_dtype":"bfloat16",' '"dtype":"float32",' '"dtype":"bfloat16",' ''; do
    printf '{%s%s}' "$said_dtype" "$SHAPE" >"$work/config.json"
    json "weights: 2 B a parameter with ${said_dtype:-no dtype}" 0 '"high_by_category":\{"param":2471628800,' plan "$work/config.json" -g H100 --seq 64
    json "weights: 4 B in fp32 with ${said_dtype:-no dtype}" 0 '"high_by_category":\{"param":4943257600,' plan "$work/config.json" -g H100 --seq 64 --precision fp32
    json "weights: served with ${said_dtype:-no dtype}" 0 '"weights_bytes":2471628800,' plan "$work/config.json" -g H100 --seq 64 --infer
done
# "70.55e9 parameters in fp16 are 141.1 GB = 131.4 GiB"
gives "weights: GB" 3 "141.1 GB in bf16" plan llama-3-70b -g H100 --infer --seq 64
gives "weights: GiB" 3 "131.4 GiB in bf16" --units iec plan llama-3-70b -g H100 --infer --seq 64

# "6 bytes/param charged when grads are bf16": 2+2+12 and 2+4+12; "Both are 16; show which"
gives "state: mixed" 3 "16 B × 8.03 B parameters (2 weights + 2 gradients + 4 master + 8 states)" plan llama-3-8b -g H100 --seq 64
gives "state: fp32" 3 "16 B × 8.03 B parameters (4 weights + 4 gradients + 8 states)" plan llama-3-8b -g H100 --seq 64 --precision fp32
gives "state: gradients in fp32" 3 "18 B × 8.03 B parameters (2 weights + 4 gradients + 4 master + 8 states)" \
    plan llama-3-8b -g H100 --seq 64 --grads f32
gives "state: Megatron's main gradients" 3 "18 B × 8.03 B parameters (2 weights + 4 gradients + 4 master + 8 states)" \
    plan llama-3-8b -g H100 --seq 64 --engine megatron-te
gives "state: torchtune's bf16" 3 "8 B × 8.03 B parameters (2 weights + 2 gradients + 4 states)" plan llama-3-8b -g A100-40G --seq 64 --precision bf16
# "Why do 1B parameters need 16 GB with Adam?" P = devices·memory/bytes, in whole parameters
fits() { # NAME GPUS BYTES-OF-ALL EACH OPTION...
    name=$1 gpus=$2 all=$3 each=$4
    shift 4
    json "largest model: $name" 0 "\"value\":$((all / each))," fit model -g "$gpus" "$@"
}
fits "mixed" 8xH100 640000000000 16
fits "fp32" 8xH100 640000000000 16 --precision fp32
fits "mixed, fp32 gradients" 8xH100 640000000000 18 --grads f32
fits "bf16, fp32 gradients" 3xA100-40G 120000000000 10 --precision bf16 --grads f32
fits "fp32, fp32 gradients" 2xH100 160000000000 16 --precision fp32 --grads f32
fits "fp16-mixed sgd, fp32 gradients" A100-80G 80000000000 10 --precision fp16-mixed --optim sgd --grads f32
gives "largest model: what changes nothing says so" 0 "changes no byte of the state: gradients are f32 already" \
    fit model -g H100 --precision fp32 --grads f32
gives "largest model: which gradients" 0 "weight 2, gradient 4, fp32 master 4, adamw m 4, v 4" fit model -g H100 --grads f32

# "The loss forgotten": one fp32 logits tensor is B·T·V·4 B; logits, log-softmax and both their gradients
printf '{"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"vocab_size":50304,"n_positions":2048}' >"$work/config.json"
for shape in "4 1024" "2 2048" "16 256"; do
    b=${shape% *} t=${shape#* }
    logits=$((b * t * 50304 * 4))
    json "loss: logits, $shape" 0 "\"op\":\"linear\",\"category\":\"(work|saved)\",\"bytes\":$logits,\"count\":1" \
        plan "$work/config.json" -g H100 --micro-batch "$b" --seq "$t" --precision fp32 --loss log-softmax --attention flash --timeline --at loss
    for op in log_softmax nll_loss_backward log_softmax_backward; do
        json "loss: $op, $shape" 0 "\"op\":\"$op\",\"category\":\"(work|saved)\",\"bytes\":$logits,\"count\":1" \
            plan "$work/config.json" -g H100 --micro-batch "$b" --seq "$t" --precision fp32 --loss log-softmax --attention flash --timeline --at backward
    done
done

# "KV cache sized by embedding ÷ heads; keys and values may differ": 2·L·g·d·2 B a position; MLA L·(rkv + dr)·2; windows cap
cache() { # MODEL POSITIONS BYTES-OF-A-POSITION ALL
    run --json plan "$1" -g B300-SXM --infer --seq "$2"
    tr -d ' \n' <"$work/out" | grep -q "\"cache_bytes\":$4,.*\"cache\":{\"positions\":$2,\"bytes_per_position\":$3,"
    said "cache: $1, $2 positions" $?
}
cache llama-3-70b 8192 $((2 * 80 * 8 * 128 * 2)) $((8192 * 2 * 80 * 8 * 128 * 2))
cache qwen3-0.6b 1000 $((2 * 28 * 8 * 128 * 2)) $((1000 * 2 * 28 * 8 * 128 * 2)) # head_dim 128, not 1024/16
cache gemma-7b 4096 $((2 * 28 * 16 * 256 * 2)) $((4096 * 2 * 28 * 16 * 256 * 2))
cache falcon-7b 2048 $((2 * 32 * 1 * 64 * 2)) $((2048 * 2 * 32 * 1 * 64 * 2))
cache deepseek-v2 8192 $((60 * 576 * 2)) $((8192 * 60 * 576 * 2))
cache deepseek-v3 4096 $((61 * 576 * 2)) $((4096 * 61 * 576 * 2))
cache mistral-7b-v0.1 4096 $((2 * 32 * 8 * 128 * 2)) $((4096 * 2 * 32 * 8 * 128 * 2))
cache mistral-7b-v0.1 32768 $((2 * 32 * 8 * 128 * 2)) $((4096 * 2 * 32 * 8 * 128 * 2))
cache gemma-2-2b 8192 $((2 * 26 * 4 * 256 * 2)) $((13 * (4096 + 8192) * 2 * 4 * 256 * 2))
cache gemma-3-1b 32768 $((2 * 26 * 256 * 2)) $(((22 * 512 + 4 * 32768) * 2 * 256 * 2))
cache gpt-oss-120b 16384 $((2 * 36 * 8 * 64 * 2)) $(((18 * 128 + 18 * 16384) * 2 * 8 * 64 * 2))
# A token reads the weights of its k experts of E: 2 of 8 in Mixtral, 12,879,925,248 of 46,702,792,704 parameters; the table of
# 131,072,000 gives a row. A bound from below may not count the rest.
run --json plan mixtral-8x7b -g B300-SXM --infer --seq 64 --prompt 2
bytes=$(sed -n 's/.*"bytes_per_token": \([0-9]*\),.*/\1/p' "$work/out")
least=$(((12879925248 - 131072000) * 2))
[ "${bytes:-0}" -ge "$least" ] && [ "$bytes" -lt $((least + least / 50)) ]
said "decode: the experts of a token alone are read" $?
json "decode: DeepSeek's weights, none of its router packed" 3 "\"weights\":\"nf4\"" plan deepseek-v2 -g H100 --infer --seq 64 --weights nf4
json "adapters over 4 bits of DeepSeek" 3 '"base":"nf4-dq"' plan deepseek-v3 -g H100 --seq 64 --qlora 8
# 27 layers, of each the 4 matrices of attention (q_proj 2048·3072, kv_a 2048·576, kv_b 512·4096, o_proj 2048·2048); one dense MLP
# of 3·2048·10944 and 26 shared ones of 3·2048·2816 and 26·64 experts of 3·2048·1408. The router, a parameter and no layer, has no adapter:
# r·(in + out) of every layer
each=$((2048 + 3072 + 2048 + 576 + 512 + 4096 + 2048 + 2048))
json "adapters of all linear layers, the router left alone" 0 "\"parameters_trainable\":$((8 * (27 * each + 3 * (2048 + 10944) + 26 * 3 * (2048 + 2816) + 26 * 64 * 3 * (2048 + 1408))))}" \
    plan deepseek-v2-lite -g H200 --seq 64 --lora 8 --lora-targets all-linear

# "Model states printed as if it were the total"
gives "total: the state alone says so" 0 "leaves out activations; workspaces" fit model -g H100
# "The part that does not shrink with the number of ranks was missing": Adam's 8 bytes of 8,030,261,248 parameters, on each device
for n in 1 8 64; do
    json "replicas: states on each of $n" 3 '"optim":64242089984,' plan llama-3-8b -g ${n}xH100 --seq 64
done
# "Peak outside the step": 124,439,808 parameters are made in 2 + 4 bytes, and loaded and saved with 8 more
json "moments: init, load, step and save apart" 0 \
    '"moments":\{"init":746638848,"load":1742157312,"step":[0-9]+,"save":1742157312\}' plan gpt2 -g H100 --micro-batch 1
# "Estimator unaware which attention really runs"
json "attention: the path that is assumed" 0 '"attentioneager:theT×Tscoresarekept' plan gpt2 -g H100 --micro-batch 1
json "attention: and the other" 0 '"attentionflash:theT×Tscoresarenever' plan gpt2 -g H100 --micro-batch 1 --attention flash
# "Which number do I watch: allocated, active, reserved?" live bytes at their peak, what the allocator takes, and what must be there
json "names: peak, arena, needs" 0 '"peak_bytes":[0-9]+,.*"arena_bytes":[0-9]+,"needs_bytes":[0-9]+,' plan gpt2 -g H100 --micro-batch 1
# "An unexplained activation multiplier": every term is a formula that the ledger gives (tests/test_explain.c). "Explains 39 of 82
# GiB": the rest is a row of `tally ledger' (tests/test_compare.sh). "Two-matrix MLP, plain MHA": tests/test_explain_families.c.

# "GB against GiB" beside each other; a bare 80G is refused
gives "units: si" 0 "80.0 GB a device" fit model -g H100
gives "units: iec" 0 "74.5 GiB a device" --units iec fit model -g H100
# "a plan that does not fit": not even one sequence
json "max_micro_batch where one does not fit" 3 '"max_micro_batch":0' plan llama-3-8b -g H100 --seq 64

# ---- FLOPs
flops() { # MODEL SEQ FORWARD: FLOPs of a token, forward, attention in full
    json "FLOPs: $1 at $2" "$4" "\"forward_per_token\":$3," plan "$1" -g B300-SXM --seq "$2"
}
# 2·(L·(h·d·(a + 2g) + a·d·h + 3·h·f) + h·V) + L·4·s·a·d, from models.csv
llama() { echo $((2 * ($1 * ($2 * $5 * ($3 + 2 * $4) + $3 * $5 * $2 + 3 * $2 * $6) + $2 * $7) + $1 * 4 * $8 * $3 * $5)); }
flops llama-3.2-1b 777 "$(llama 16 2048 32 8 64 8192 128256 777)" 0      # tied: the head counts, the look-up does not
flops qwen3-0.6b 333 "$(llama 28 1024 16 8 128 3072 151936 333)" 0       # head_dim ≠ h/a
flops gemma-2b 100 "$(llama 18 2048 8 1 256 16384 256000 100)" 0         # one key/value head
flops phi-3.5-mini 64 "$(llama 32 3072 32 32 96 8192 32064 64)" 0        # fused projections
# DeepSeek-V3: 61·(q 7168·1536 + 1536·128·192; kv 7168·576 + 512·128·256; o 128·128·7168), 3 dense of 18432, 58 of (8 + 1)·2048 and a
# router of 256; scores of 192 and values of 128 a head
mla=$((61 * (7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168)))
ffn=$((3 * 3 * 7168 * 18432 + 58 * (3 * 7168 * 2048 * 9 + 7168 * 256)))
flops deepseek-v3 64 $((2 * (mla + ffn + 7168 * 129280) + 61 * 2 * 64 * 128 * (192 + 128))) 3
# Tied and untied alike
printf '{%s}' "$SHAPE" >"$work/config.json"
tied=$("$TALLY" --json plan "$work/config.json" -g H100 --seq 64 | grep -m1 '"per_step"')
printf '{%s}' "$SHAPE" | sed 's/embeddings":true/embeddings":false/' >"$work/config.json"
untied=$("$TALLY" --json plan "$work/config.json" -g H100 --seq 64 | grep -m1 '"per_step"')
[ -n "$tied" ] && [ "$tied" = "$untied" ]
said "FLOPs: tied and untied embeddings alike" $?

# ---- Model descriptions
describes() { # NAME PARAMETERS JSON-AFTER-SED-EXPRESSION
    printf '{%s}' "$SHAPE" | sed "$3" >"$work/config.json"
    json "$1" 0 "\"parameters\":$2," plan "$work/config.json" -g H200 --seq 64
}
# 16·(2048·64·(32 + 2g) + 32·64·2048 + 3·2048·8192 + 2·2048) + 2048 + 2048·128256
count() { echo $((16 * (2048 * $2 * (32 + 2 * $1) + 32 * $2 * 2048 + 3 * 2048 * 8192 + 2 * 2048) + 2048 + 2048 * 128256)); }
describes "description: as it is" "$(count 8 64)" ''
describes "description: no key/value heads: as many as heads" "$(count 32 64)" 's/"num_key_value_heads":8,//'
describes "description: null key/value heads" "$(count 32 64)" 's/heads":8/heads":null/'
describes "description: a head of its own size" "$(count 8 128)" 's/head_dim":64/head_dim":128/'
describes "description: no head_dim: width over heads" "$(count 8 64)" 's/"head_dim":64,//'
describes "description: nested" "$(count 8 64)" 's/^{\(.*\)}$/{"model_type":"mllama","vision_config":{},"text_config":{\1}}/'
printf '{%s}' "$SHAPE" | sed 's/"num_key_value_heads":8,//' >"$work/config.json"
gives "description: what is assumed is said" 0 "num_key_value_heads absent: equal to heads, 32, assumed from llama" \
    plan "$work/config.json" -g H200 --seq 64
printf '{%s}' "$SHAPE" | sed 's/"intermediate_size":8192,//' >"$work/config.json"
gives "description: sizes are not guessed" 1 '"intermediate_size" is missing' plan "$work/config.json" -g H200 --seq 64
# First layers dense in a mixture: each dense one of DeepSeek-V3 has 3·7168·18432 for 3·7168·2048·257 + 7168·256 + 256
if [ -r "${TALLY_SHARED:-../shared}/data/configs/deepseek-ai--DeepSeek-V3.json" ]; then
    for dense in 0 1 5; do
        sed "s/\"first_k_dense_replace\": *[0-9]*/\"first_k_dense_replace\": $dense/" \
            "${TALLY_SHARED:-../shared}/data/configs/deepseek-ai--DeepSeek-V3.json" >"$work/config.json"
        json "description: $dense dense layers first" 3 "\"parameters\":$((671026419200 + (3 - dense) * (3 * 7168 * 2048 * 257 + 7168 * 256 + 256 - 3 * 7168 * 18432)))," \
            plan "$work/config.json" -g H100 --seq 64
    done
fi
