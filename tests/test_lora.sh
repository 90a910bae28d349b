#!/bin/sh
# Adapters in plan, train, sample, eval and export. Expected values: the counts that peft prints for these models ("trainable
# params: 3,407,872 || all params: 8,033,669,120" of Llama-3-8B, "294,912 || 124,734,720" of GPT-2, both of rank 8), and
# arithmetic on the formats' bytes beside each case (docs/lora.md).
set -u
. tests/verb.inc
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
json() { # NAME TEXT ARGUMENT...: JSON that holds TEXT, blanks taken out
    name=$1 text=$2
    shift 2
    run --json "$@"
    [ $? -eq 0 ] && tr -d ' \n' <"$work/out" | grep -qF -- "$text"
    said "$name" $?
}

# ---- plan ----
json "plan: peft's count of Llama-3-8B" '"parameters":8033669120,"parameters_active":8033669120,"parameters_non_embedding":6982995968,"parameters_trainable":3407872}' \
    plan llama-3-8b -g H100 --seq 2048 --lora 8
json "plan: peft's count of GPT-2" '"parameters":124734720,' plan gpt2 -g H100 --lora 8
json "plan: what was meant" '"lora":{"rank":8,"alpha":16.0,"dropout":0.0,"targets":"c_attn","base":"plain","layers":12}' plan gpt2 -g H100 --lora 8
json "plan: what was said" '"lora":{"rank":4,"alpha":2.0,"dropout":0.5,"targets":"c_fc,c_attn","base":"nf4","layers":24}' \
    plan gpt2 -g H100 --qlora 4 --lora-alpha 2 --lora-dropout 0.5 --lora-targets c_fc,c_attn --lora-base nf4
json "plan: without adapters all are trained" '"parameters_trainable":124439808}' plan gpt2 -g H100
# 84,934,656 weights in 48 matrices; 39,505,152 other values of 2 bytes, and 294,912 of the adapters
rest=$(((39505152 + 294912) * 2)) n=84934656
csv() { gives "plan: bytes of $1" 0 "param,$2," plan gpt2 -g H100 --precision bf16 --format csv --lora 8 --lora-base "$1"; }
csv plain $((rest + 2 * n))
csv int8 $((rest + n + 4 * 12 * (2304 + 768 + 3072 + 768)))
csv nf4 $((rest + n / 2 + 4 * n / 64))
csv nf4-dq $((rest + n / 2 + n / 64 + 4 * 12 * (108 + 36 + 144 + 144) + 4 * 48))
run plan gpt2 -g H100 --precision bf16 --format csv --lora 8
grep -q "^optim,$((294912 * 2 * 2))," "$work/out" && grep -q "^grad,.*,$((294912 * 2))," "$work/out"
said "plan: states and gradients of the adapters alone" $?
gives "plan: says so" 0 "rank 8, alpha 16 on c_attn in 12 layers: 294,912 parameters are trained (0.24 %); base nf4-dq" \
    plan gpt2 -g H100 --qlora 8
gives "plan: 70B on one device" 0 "fits" plan llama-3-70b -g A100-80G --seq 2048 --qlora 16 --recompute full
gives "plan: and not without" 3 "does not fit" plan llama-3-70b -g A100-80G --seq 2048 --recompute full
gives "plan: what would help" 3 "--recompute selective" plan llama-3-70b -g A100-80G --seq 2048 --qlora 16
run plan gpt2 -g H100 --json --qlora 4 --lora-targets c_fc,c_attn --lora-dropout 0.25
again=$(sed -n 's/.*"command": "tally \(.*\)".*/\1/p' "$work/out")
grep -v '^ *"--' "$work/out" >"$work/first" # what is a default there is typed here
# shellcheck disable=SC2086 # words
run --json $again
grep -v '^ *"--' "$work/out" | cmp -s - "$work/first"
said "plan: its command line says it again" $?

gives "an unknown target" 2 'adapters for "nope": gpt2 has no linear layer of that name; there are c_attn, c_proj, c_fc, or all-linear' \
    plan gpt2 -g H100 --lora 8 --lora-targets c_attn,nope
gives "a tied head has none" 2 "is its token table, and what they learn could not be folded into it" plan gpt2 -g H100 --lora 8 --lora-targets lm_head
# mixtral: 32 layers of 8 experts of three matrices 4096 × 14336; with the router, peft's adapters of its nn.Linear:
# 32·(8·3·8·(4096 + 14336) + 8·(2·(4096 + 4096) + 2·(4096 + 1024) + 4096 + 8))
json "plan: adapters of mixtral's experts" '"parameters_trainable":121112576}' \
    plan mixtral-8x7b -g H100 --seq 256 --qlora 8 --lora-targets all-linear
gives "plan: what has no adapters" 0 "frozen and without adapters: k_proj, o_proj, gate, w1, w3, w2, lm_head" \
    plan mixtral-8x7b -g H100 --seq 256 --qlora 8
# in 4 bits: the linear layers of the blocks and the experts; 8 matrices a layer, each with a mean of 4 bytes
run plan mixtral-8x7b -g H100 --seq 256 --qlora 8 --precision bf16 --format csv
linear=$((32 * (8 * 3 * 4096 * 14336 + 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096)))
rest=$((2 * 32000 * 4096 + 65 * 4096 + 32 * 8 * (4096 + 4096 + 4096 + 1024)))
grep -q "^param,$((2 * rest + linear / 2 + linear / 64 + linear / 4096 + 4 * 32 * 8))," "$work/out"
said "plan: bytes of mixtral in 4 bits" $?
gives "a head" 0 "lm_head" plan llama-3-8b -g H100 --seq 256 --lora 8 --lora-targets lm_head
json "modules in full" '"trained":"embed_tokens,norm"' plan llama-3-8b -g H100 --seq 256 --lora 8 --lora-train embed_tokens,norm
gives "no such module" 2 "has no module of that name; there are embed_tokens" \
    plan llama-3-8b -g H100 --seq 256 --lora 8 --lora-train nothing
gives "modules without adapters" 2 "--lora-train changes nothing without --lora RANK" plan gpt2 -g H100 --lora-train wte
gives "no blocks" 2 "which has no blocks" plan cruncher -g H100 --lora 8
gives "alpha without rank" 2 "--lora-alpha changes nothing without --lora RANK or --qlora RANK" plan gpt2 -g H100 --lora-alpha 8
gives "base without rank" 2 "--lora-base changes nothing" plan gpt2 -g H100 --lora-base nf4
gives "both" 2 "one of them" plan gpt2 -g H100 --lora 8 --qlora 8
gives "qlora over 8 bits" 2 "--lora 8 --lora-base int8" plan gpt2 -g H100 --qlora 8 --lora-base int8
gives "rank 0" 2 "at least 1" plan gpt2 -g H100 --lora 0
gives "alpha 0" 2 "above 0" plan gpt2 -g H100 --lora 8 --lora-alpha 0
gives "dropout 1" 2 "below 1" plan gpt2 -g H100 --lora 8 --lora-dropout 1
gives "no such base" 2 'it is one of plain, int8, nf4 or nf4-dq' plan gpt2 -g H100 --lora 8 --lora-base int4
gives "fp8 over 4 bits" 2 "float8 layers over a base of nf4-dq" plan gpt2 -g H100 --qlora 8 --precision fp8-mixed
gives "the state alone has no adapters" 2 "--lora" fit model -g H100 --lora 4

# ---- train: a plain run, tuned further over 4 bits ----
spec=llama:N=2,D=32,H=4,G=2
gives "train: a base" 0 "" train sums --model $spec --steps 30 --micro-batch 16 --out "$work/base"
tune="sums --model $spec --weights $work/base --micro-batch 16 --steps 20 --precision bf16-mixed --qlora 4 --lora-targets all-linear --lora-dropout 0.1"
# shellcheck disable=SC2086 # words
gives "train: over nf4-dq" 0 "planned = measured in each of 19 steps" train $tune --out "$work/whole"
# shellcheck disable=SC2086 # words
gives "train: half of it" 0 "" train $tune --stop-at 9 --out "$work/parts"
gives "train: the rest" 0 "" train --out "$work/parts" --resume
cmp -s "$work/whole/checkpoints/latest" "$work/parts/checkpoints/latest"
said "train: the same bits" $?
gives "train: options stay" 2 "was started with 4" train --out "$work/parts" --resume --qlora 8
grep -q '"parameters_trainable": ' "$work/whole/plan.json"
said "train: plan.json" $?
gives "inspect: the codes" 0 "q_proj.weight" inspect "$work/whole/checkpoints/latest" --all
gives "eval: folded" 0 "are folded into its weights" eval "$work/whole"
run --json eval "$work/whole"
sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$work/out" | head -1 >"$work/loss"
gives "sample" 0 "planned = measured" sample "$work/whole" --prompt 12+3=
gives "sample: a file alone" 0 "folded" sample "$work/whole/checkpoints/step-00000020.safetensors" --ids 1,2,3
gives "export" 0 "" export "$work/whole" --out "$work/hf"
grep -q lora "$work/hf/model.safetensors"
[ $? -eq 1 ]
said "export: no adapters are left" $?
# shellcheck disable=SC2086 # words
gives "train: over int8, in fp32" 0 "planned = measured" train sums --model $spec --steps 6 --micro-batch 8 --lora 2 --lora-base int8 --out "$work/int8"
gives "train: adapters upon adapters" 1 "" train sums --model $spec --weights "$work/int8" --steps 2 --lora 3 --out "$work/other"

# ---- experts: tuned over 4 bits, resumed, merged, exported one by one ----
mkdir "$work/mix"
cat >"$work/mix/config.json" <<'EOF'
{"model_type": "mixtral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 64, "max_position_embeddings": 64,
 "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": false}
EOF
gives "experts: a base" 0 "" train sums --model "$work/mix" --steps 4 --micro-batch 8 --out "$work/mixed"
tune="sums --model $work/mix --weights $work/mixed --micro-batch 8 --steps 8 --precision bf16-mixed --qlora 4 --lora-targets all-linear,lm_head --lora-train embed_tokens"
# shellcheck disable=SC2086 # words
gives "experts: over nf4-dq" 0 "planned = measured in each of 7 steps" train $tune --out "$work/experts"
# shellcheck disable=SC2086 # words
gives "experts: half of it" 0 "" train $tune --stop-at 4 --out "$work/halves"
gives "experts: the rest" 0 "" train --out "$work/halves" --resume
cmp -s "$work/experts/checkpoints/latest" "$work/halves/checkpoints/latest"
said "experts: the same bits" $?
gives "experts: eval" 0 "are folded into its weights" eval "$work/experts"
gives "experts: export" 0 "" export "$work/experts" --out "$work/mixhf"
grep -q "experts.3.w2.weight" "$work/mixhf/model.safetensors"
said "experts: published one by one" $?
