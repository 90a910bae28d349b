#!/bin/sh
# tally mfu, and the kinds of shared/FAULTS.md "FLOPs and MFU" as a person meets them on the command line. Expected values: the
# figures of that list, published formulas (shared/data/formulas.md) put in numbers beside each case, shared/data/models.csv.
set -u
. tests/verb.inc
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME

# "Peak hard-wired to one card: 104 % MFU on an H100 (3.245e14 against 312e12; against 989.4e12 it is 32.8 %)"
gives "peak of the device, not of another card" 0 "MFU 0.328" mfu --achieved 3.245e14 -g H100
gives "peak of another card: cannot be" 3 "cannot be: an MFU of 1.0401" mfu --achieved 3.245e14 -g H100 --peak 312e12
gives "and what it is by the device's own" 3 "dense 989.4 TFLOP/s, by which MFU is 0.328" mfu --achieved 3.245e14 -g H100 --peak 312T
# 74 % of 312e12 is 231e12; an H100's peak made 25 % of it (23.3 % of 989.4e12)
gives "peak of a lesser card" 0 "MFU 0.74" mfu --achieved 230.9e12 -g A100-80G
# "A sparse peak used as dense (420/1979 = 21 %; it is 42.45 %)"
gives "sparse peak as dense: 42.45 %" 0 "MFU 0.4245" mfu --achieved 420e12 -g H100
gives "sparse peak as dense: 21 % is what it says" 0 "MFU 0.2122" mfu --achieved 420e12 -g H100 --peak 1979e12
gives "sparse peak as dense: the hint" 0 "the 2:4-sparse figure: by the dense 989.4 TFLOP/s MFU is 0.4245" \
    mfu --achieved 420e12 -g H100 --peak 1979e12
gives "sparse peak: A100's 624" 0 "by the dense 312 TFLOP/s MFU is 0.5" mfu --achieved 156e12 -g A100-80G --peak 624e12
gives "sparse peak: fp8's 3958" 0 "by the dense 1979 TFLOP/s" mfu --achieved 900e12 -g H100 --precision fp8-mixed --peak 3957.8e12
json "sparse peak: plan's source says so" 0 '"peak_source":"givenbyhand:thefigureWITH2:4sparsityofH100-SXM5-80GB,whosedensebf16peakis989.4TFLOP/s"' \
    plan gpt2 -g H100 --seq 128 --peak 1979e12
json "sparse peak: op's source says so" 0 '"peak_source":"givenbyhand:thefigureWITH2:4sparsity' op "linear 64 64" --on H100 --peak 1979e12
json "a peak by hand that is none" 0 '"peak_source":"givenbyhand,denseasfarasweknow"' plan gpt2 -g H100 --seq 128 --peak 900e12
# "A dense peak halved 'for sparsity' (A100's 312 is dense)"
json "A100's 312 is dense" 0 '"peak_flop_per_s":312000000000000.0' mfu --achieved 100e12 -g A100-80G
# Unknown device: unknown peak
gives "unknown device, unknown peak" 2 "no accelerator \"Foo\"" mfu gpt2 -g 8xFoo --tokens-per-second 1e6
gives "unknown device, a peak by hand" 0 "given by hand, dense as far as we know" mfu gpt2 -g 8xFoo --peak 312e12 --tokens-per-second 1e6
gives "no bf16 on a V100" 2 "the dense bf16-mixed peak of V100-SXM2-32GB is not known" mfu gpt2 -g V100-SXM2-32GB --tokens-per-second 1e5
json "its fp16" 0 '"peak_flop_per_s":125000000000000.0' mfu gpt2 -g V100-SXM2-32GB --precision fp16-mixed --tokens-per-second 1e4

# "MFU falling as 1/ranks": the same speed of each device on 1, 8 and 64, the same MFU. 6·(forward of GPT-2 at T 1024):
# forward_per_token 284,812,800, three times it 854,438,400; times 1e5 over 989.4e12 is 0.086359
for n in 1 8 64; do
    json "MFU on $n devices" 0 '"flops_per_token":854438400,.*"mfu":0\.08635[0-9]*,' mfu gpt2 -g ${n}xH100 --tokens-per-second ${n}e5
done
gives "tokens/s of one device or of all" 0 "of each of them, MFU is 0.0864" mfu gpt2 -g 8xH100 --tokens-per-second 1e5

# Conventions: 6·(P in products + attention). Llama-3-70B at T 8192, N 80, D 8192, H 64, G 8, K 128, F 28672, V 128256
linear=$((2 * (80 * (8192 * 128 * (64 + 2 * 8) + 64 * 128 * 8192 + 3 * 8192 * 28672) + 8192 * 128256)))
full=$((3 * (linear + 80 * 4 * 8192 * 64 * 128)))
causal=$((3 * (linear + 80 * 4 * 8193 * 64 * 128 / 2)))
json "attention in full" 0 "\"attention\":\"full\",\"flops_per_token\":$full,\"flops_per_token_full\":$full,\"flops_per_token_causal\":$causal," \
    mfu llama-3-70b -g 512xH100 --seq 8192 --tokens-per-second 400K
json "attention causal" 0 "\"attention\":\"causal\",\"flops_per_token\":$causal," \
    mfu llama-3-70b -g 512xH100 --seq 8192 --tokens-per-second 400K --flops causal
# 14 % between 6·P with attention in full and without any: 3,943,913,849,094,144 / 3,467,855,781,691,392 (FAULTS.md)
gives "conventions side by side" 0 "convention: attention in full 0.3802, causal T(T+1)/2 0.3547, 6·P alone 0.3343" \
    mfu llama-3-70b -g 512xH100 --seq 8192 --tokens-per-second 400K

# Recompute: HFU counts it, MFU does not. Full: a forward of the blocks more: 80 layers without the head
again=$((linear - 2 * 8192 * 128256 + 80 * 4 * 8192 * 64 * 128))
json "HFU of full recompute" 0 "\"hardware_flops_per_token\":$((full + again))," \
    mfu llama-3-70b -g 512xH100 --seq 8192 --tokens-per-second 400K --recompute full
json "MFU of full recompute" 0 "\"flops_per_token\":$full," \
    mfu llama-3-70b -g 512xH100 --seq 8192 --tokens-per-second 400K --recompute full
# "Selective recompute adds 4BLs²h": a token's share 4·L·s·h
json "HFU of selective recompute" 0 "\"hardware_flops_per_token\":$((full + 80 * 4 * 8192 * 64 * 128))," \
    mfu llama-3-70b -g 512xH100 --seq 8192 --tokens-per-second 400K --recompute selective

# Mixtures: a token passes 12,879,925,248 of 46,702,792,704 (models.csv)
json "mixture: active parameters" 0 '"parameters":46702792704,"parameters_active":12879925248,' \
    mfu mixtral-8x7b -g 64xH100 --tokens-per-second 500K --seq 4096
json "time, mixture: 6·P of those a token passes" 0 "\"parameters\":46702792704,\"parameters_active\":12879925248,.*\"flops\":$((6 * 12879925248))000000," \
    time mixtral-8x7b -t 1M -g 64xH100 --mfu 0.4
json "time, mixture: DeepSeek-V3" 0 "\"parameters\":671026419200,\"parameters_active\":37552297472,.*\"flops\":$((6 * 37552297472))000000," \
    time deepseek-v3 -t 1M -g 64xH100 --mfu 0.4
gives "time, mixture: says which" 0 "P: the 12,879,925,248 parameters of mixtral-8x7b that a token passes" \
    time mixtral-8x7b -t 1T -g 64xH100 --mfu 0.4
json "time, dense: all" 0 '"parameters":8030261248,"parameters_active":8030261248,' time llama-3-8b -t 1T -g 64xH100 --mfu 0.4
# solved for: params = time·devices·peak·MFU / (6·tokens) = 864000·8·989.4e12·0.4/(6·1e12)
json "time, solved for parameters" 0 '"solved_for":"params","parameters":455915520,"parameters_active":455915520,' \
    time -t 1T -g 8xH100 --mfu 0.4 --days 10

# By the time of a step: 512 sequences of 1024 in 0.3 s on 8; 854,438,400·512·1024/0.3/(8·312e12)
json "by the time of a step" 0 '"tokens_per_second":1747626.6[0-9]*,.*"mfu":0\.59825' mfu gpt2 -g 8xA100-80G --step-seconds 0.3 --global-batch 512
json "by 6·P" 0 '"flops_per_token":42000000000,.*"mfu":0\.4206[0-9]*,"mfu_full":null' mfu --params 7B -g 64xA100-80G --tokens-per-second 200K
gives "by 6·P: a step" 0 "MFU 0.1723" mfu --params 7B -g 8xA100-80G --step-seconds 50 --global-batch 256 --seq 2000

gives "csv" 0 ",312000000000000," mfu gpt2 -g A100-80G --tokens-per-second 1e5 --format csv
gives "md" 0 "| gpt2 |" mfu gpt2 -g A100-80G --tokens-per-second 1e5 --format md
gives "nothing says how fast" 2 "says how fast the run is" mfu gpt2 -g H100
gives "two say how fast" 2 "not several" mfu gpt2 -g H100 --tokens-per-second 5 --step-seconds 2
gives "no model" 2 "name one, or give --params" mfu -g H100 --tokens-per-second 5
gives "no such speed" 2 "not a number" mfu gpt2 -g H100 --tokens-per-second fast
gives "speed 0" 2 "more than 0" mfu gpt2 -g H100 --tokens-per-second 0
gives "a step of what" 2 "give that, accumulation included" mfu gpt2 -g H100 --step-seconds 2
gives "a batch of what" 2 "changes nothing without --step-seconds" mfu gpt2 -g H100 --tokens-per-second 5 --global-batch 4
gives "recompute of what" 2 "changes nothing without a MODEL" mfu --params 7B -g H100 --tokens-per-second 5 --recompute full
gives "no tokens" 2 "has no tokens" mfu cruncher -g H100 --tokens-per-second 5
