#!/bin/sh
# The examples print what they promise. Figures: CS336 lecture 2 (spring2025-lectures, lecture_02.py @ bbdbc9c5), or the
# arithmetic beside each.
set -u
dir=${BUILD:-build}/examples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

example() { # NAME ARGUMENT...: runs it; what it printed is in $out
    name=$1
    shift
    out=$("$dir/$name" "$@" 2>"$work/err")
    code=$?
    if [ $code -eq 0 ] && [ ! -s "$work/err" ]; then echo "ok example $name: runs"; else
        sed 's/^/# /' "$work/err"
        echo "not ok example $name: exits $code"
    fi
}
check() { # WHAT TEXT: it printed that
    if printf '%s\n' "$out" | grep -qF -- "$2"; then echo "ok example $name: $1"; else
        printf '%s\n' "$out" | sed 's/^/# /'
        echo "not ok example $name: $1"
    fi
}
holds() { # WHAT, status of the test before
    if [ "$2" -eq 0 ]; then echo "ok example $name: $1"; else
        printf '%s\n' "$out" | sed 's/^/# /'
        echo "not ok example $name: $1"
    fi
}

example flops_and_mfu
check "6·70e9·15e12" "70B parameters, 15T tokens: 6.3e+24 FLOPs"
check "1024 H100 at half of 989.5e12" "143.93 days"
check "8·80e9 B / 16 B" "8 H100 of 80e9 B: 4e+10 parameters"
check "six products of 2·1024³" "the ledger counts 12884901888 FLOPs"
# 2·1024³ FLOPs ÷ the printed time, and that ÷ the peak: the three figures of a line belong together, within their digits.
printf '%s\n' "$out" | awk '/^f32: / { seen = 1; rate = 2147483648 / ($2 * 1e-3) * 1e-9; sub(/:$/, "", $7)
    if (rate / $4 > 1.01 || rate / $4 < 0.99 || $9 * $7 / $4 > 1.05 || $9 * $7 / $4 < 0.95 || $9 > 1.1) bad = 1 }
    END { exit !seen || bad }'
holds "MFU is the rate over the peak, and not above it" $?

example memory_account
check "GPT-2 small's published parameters" "gpt2, 124439808 parameters"
check "16 bytes each" "16 bytes a parameter: 1991036928 B" # 16·124,439,808
check "4 of them the parameters'" "param     497759232"     # 4·124,439,808
check "8 of them AdamW's" "optim     995518464"
# 3·(2·1024·(12·12·768² + 768·50257) + 12·2·2·1024²·768): every matrix three times, and scores and values of attention
check "FLOPs: 3 × 291,648,307,200" "matmul FLOPs of the step 874944921600"

example number_formats
check "1e-8 is 0 in f16 and not in bf16" "f16 0  bf16 1.001172e-08" # 1.001172e-8 = 0x322C: 172·2^-34
check "f16: 65504" "         65504     6.103516e-05"
check "e4m3: 448" "f8e4m3      1         4         3           448"
check "e5m2: 57344" "f8e5m2      1         5         2         57344"
check "beyond 448" "500 in f8e4m3: 448 saturating, nan not"

example tensors_and_strides
check "4·8·4 bytes" "f32[4, 8] takes 128 bytes"
check "one matrix of GPT-3" "2304 MiB"
check "row 1, column 2 by strides 4 and 1" "x[1, 2] is element 6 of the storage"
check "columns backwards" " [ 7.  6.  5.  4.]"
check "a write shows in the transpose" "[[100.   4.   8.  12.]"
check "view of a transpose is refused" "cannot be seen as [16] without a copy"
check "reshape copies 16·4" "reshape copied 64 bytes"
check "five views, one storage" "6 tensors on 2 storages: 128 bytes"

example einsum
check "batch seq1 hidden, batch seq2 hidden -> batch seq1 seq2" "f32[batch 2, seq1 3, seq2 5]"
check "ones over a hidden axis of 4" "[[[4. 4. 4. 4. 4.]"
check "heads are a view" "yes, nothing was copied"
check "2·(64·64·1 + 64·1·64), not 2·(64·1·64 + 64·64·64)" "first 0 with 1, 16384 FLOPs"
check "the ledger counts that order" "the ledger counted 16384"
check "a mistake has its place" "8 not divisible by 3"

example linear_model
check "forward 2·1024·81920" "forward    167772160 = 2·B·P"
check "backward 4·1024·81920" "backward   335544320 = 4·B·P"
check "2 + 4 = 6" "together   503316480 = 6·B·P"
check "without the gradient of x" "together   369098752 = 6·B·P − 2·B·D²"

example initialisation
check "outputs as √16384, and 1 when divided" "16384                      128                   1.00              1.00"

example cruncher
check "2·64² + 64" "8256 parameters"
check "AdaGrad" "it learns"
check "the lecture's sum" "4·(8256 + 1024 + 8256 + 8256) = 103168 B"
check "the ledger's peak" "peak in backward  103208 B"
check "the difference has names" "loss and seed 8 = 103208 B"

example training_loop "$work"
check "the loss" "it falls"
check "going on from a checkpoint" "the same loss, bit for bit"
[ "$(wc -c <"$work/tokens.npy")" -eq $((128 + 4096 * 4)) ]
holds "a .npy of 4096 tokens" $?

example linear_layer
check "4 bytes per parameter" "made           param   16  grad    0  optim    0 MiB"
check "8 after backward" "after backward param   16  grad   16  optim    0 MiB"
check "16 after the step" "after the step param   16  grad   16  optim   32 MiB"
check "FLOPs of forward and weight gradient" "4294967296"
planned=$(printf '%s\n' "$out" | sed -n '/^on meta/,/^on [^m]/p' | grep '^  ')
measured=$(printf '%s\n' "$out" | sed -n '/^on [^m]/,$p' | grep '^  ')
[ -n "$planned" ] && [ "$planned" = "$measured" ]
holds "both devices keep the same account" $?

# a small Llama by hand: 2·(linear layers)·(tokens) + 2·V·D for each head + 4·H·K·(pairs) a layer; the whole text each time, or
# the prompt and then one token at a time. Cache: 2·4·1·23·2·16·4. f32: 4·P; int8: 1 a linear weight and 4 a row's scale.
example cached_decoding
check "the same text" "16 of 16 tokens are the same"
check "the cache" "2*4*1*23*2*16*4 = 23552 B"
check "FLOPs with and without it" "124370944 without the cache, 11132928 with it"
check "FLOPs of a step" "last step: 514048 FLOPs"
check "weights in f32" "weights f32: 936192 B, cache 23552 B"
check "weights in int8" "weights int8: 295680 B, cache 23552 B"

# 2·16 + 16 + 16 + 1 = 65 parameters of 4 B; AdamW's two states 8 B each. 2·64·2·16 forward in the first layer and as much for
# its weights' gradient (its input wants none); 2·64·16·1 in the second, and twice that backward: 4096 + 4096 + 3·2048.
example own_model
check "65 parameters, gradients and two states" "param 260  grad 260  optim 520 B;  matmul 14336 FLOPs"
check "the op's line" "first   linear    4096 FLOPs  examples/own_model.c:"
check "planned is kept" "peak planned and kept: the same"
# Predicting the mean product of the 8×8 grid leaves a variance of (E[a²])² − (E[a])⁴, a uniform over 0/8 … 7/8: 0.0381.
printf '%s\n' "$out" | awk '/loss/ { last = $4 } END { exit !(last > 0 && last < 0.0381 / 10) }'
holds "it learns: a tenth of what the mean leaves, or less" $?
