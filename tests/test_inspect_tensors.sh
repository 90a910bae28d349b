#!/bin/sh
# tally inspect of safetensors files, shards and checkpoints: what is listed is what other readers list (the file is taken
# apart here with od and text tools), totals add up, damage is named, and no output is wider than 80 columns.
set -u
. tests/verb.inc

# A file from its header, padded with spaces to N bytes, and M bytes of values. make FILE HEADER N M
make() {
    printf "\\$(printf %03o $(($3 % 256)))\\$(printf %03o $(($3 / 256)))\0\0\0\0\0\0%-$3s" "$2" >"$1"
    head -c "$4" /dev/zero >>"$1"
}

# ---- one file ----
make "$work/a.safetensors" '{"__metadata__":{"format":"pt","by":"hand"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},"ids":{"dtype":"U64","shape":[],"data_offsets":[30,38]}}' 256 38
run inspect "$work/a.safetensors"
said 'a file' $?
has '10 values in 3 tensors' && has 'F32: 1 tensor, 6 values, 24 B' && has 'BF16: 1 tensor, 3 values, 6 B' && has 'U64: 1 tensor, 1 values, 8 B'
said 'totals by format' $?
has 'format = pt' && has 'by = hand' && has 'w F32 [2, 3] 24' && has 'b BF16 [3] 6' && has 'ids U64 [] 8'
said 'metadata and tensors' $?
[ "$(awk '{ if (length > most) most = length } END { print most + 0 }' "$work/out")" -le 80 ]
said 'within 80 columns' $?
run --json inspect "$work/a.safetensors"
code=$?
[ $code -eq 0 ] && tr -d ' \n' <"$work/out" >"$work/flat" && grep -qF '"kind":"safetensors"' "$work/flat" &&
    grep -qF '{"name":"b","dtype":"BF16","shape":[3],"values":3,"bytes":6,"offset":288}' "$work/flat" &&
    grep -qF '"value_bytes":38' "$work/flat" && grep -qF '"metadata":{"format":"pt","by":"hand"}' "$work/flat"
said 'and as JSON' $?
run --format csv inspect "$work/a.safetensors"
[ $? -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 4 ] && grep -q '^ids,U64,\[\],1,8,,false' "$work/out"
said 'and as csv, where a format that is not ours says so' $?

# ---- codes with their scales: 2·4·32 parameters of MXFP4 in 128 + 8 B are 4.25 bits each; 256·128 of fp8 and 2 floats ----
make "$work/p.safetensors" '{"m.experts.down_proj_blocks":{"dtype":"U8","shape":[2,4,1,16],"data_offsets":[0,128]},"m.experts.down_proj_scales":{"dtype":"U8","shape":[2,4,1],"data_offsets":[128,136]},"w.weight":{"dtype":"F8_E4M3","shape":[256,128],"data_offsets":[136,32904]},"w.weight_scale_inv":{"dtype":"F32","shape":[2,1],"data_offsets":[32904,32912]},"ids_scales":{"dtype":"U8","shape":[2,2,1],"data_offsets":[32912,32916]}}' 512 32916
run inspect "$work/p.safetensors"
[ $? -eq 0 ] && has 'MXFP4 (U8 in _blocks, and _scales): 1 tensor, 256 parameters, 136 B with their scales: 4.25 bits each' &&
    has 'fp8 with weight_scale_inv: 1 tensor, 32,768 parameters, 32,776 B with their scales: 8.002 bits each'
said 'packed formats, by parameter and bit' $?
[ "$(awk '{ if (length > most) most = length } END { print most + 0 }' "$work/out")" -le 80 ]
said 'within 80 columns' $?
run --json inspect "$work/p.safetensors"
[ $? -eq 0 ] && tr -d ' \n' <"$work/out" >"$work/flat" &&
    grep -qF '"packed":[{"format":"mxfp4","tensors":1,"parameters":256,"bytes":136,"bits_per_parameter":4.25},{"format":"fp8","tensors":1,"parameters":32768,"bytes":32776' "$work/flat"
said 'and as JSON' $?

# ---- layers that are alike ----
make "$work/l.safetensors" '{"h.0.w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"h.1.w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"h.10.w":{"dtype":"F32","shape":[3],"data_offsets":[16,28]}}' 256 28
run inspect "$work/l.safetensors"
[ $? -eq 0 ] && has 'h.*.w ×2 F32 [2] 16' && has 'h.10.w F32 [3] 12' && has '--all'
said 'two alike are a row, a third of another shape is not' $?
run inspect --all "$work/l.safetensors"
[ $? -eq 0 ] && has 'h.0.w F32 [2] 8' && has 'h.1.w F32 [2] 8' && ! has '×2'
said '--all lists each' $?

# ---- GGUF: a mark, version 3, 1 tensor, 1 pair; numbers are little-endian ----
n8() { printf "\\$(printf %03o $(($1 % 256)))\\$(printf %03o $(($1 / 256)))\0\0\0\0\0\0"; }
s8() { n8 "${#1}" && printf %s "$1"; }
{
    printf 'GGUF\3\0\0\0' && n8 1 && n8 1
    s8 general.architecture && printf '\10\0\0\0' && s8 mamba
    s8 w && printf '\1\0\0\0' && n8 256 && printf '\14\0\0\0' && n8 0
} >"$work/m.gguf"
size=$(wc -c <"$work/m.gguf")
head -c $((144 + (32 - size % 32) % 32)) /dev/zero >>"$work/m.gguf"
run inspect "$work/m.gguf"
[ $? -eq 0 ] && has '256 values in 1 tensors: a GGUF file, version 3' && has 'Q4_K: 1 tensor, 256 values, 144 B' && has 'general.architecture = mamba' && has 'w Q4_K [256] 144'
said 'a GGUF file' $?
gives 'which is no model of ours, by name' 2 'general.architecture is mamba' plan "$work/m.gguf"
head -c 100 "$work/m.gguf" >"$work/half.gguf"
gives 'half of it' 1 'half a download' inspect "$work/half.gguf"
gives 'weights without a description' 2 'no config.json beside them' plan "$work/a.safetensors"

# ---- shards ----
mkdir "$work/m"
make "$work/m/model-00001-of-00002.safetensors" '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 64 8
make "$work/m/model-00002-of-00002.safetensors" '{"b":{"dtype":"F16","shape":[4],"data_offsets":[0,8]}}' 64 8
cp "$work/m/model-00001-of-00002.safetensors" "$work/m/stray.safetensors"
printf '{"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}' >"$work/m/model.safetensors.index.json"
for path in "$work/m" "$work/m/model.safetensors.index.json"; do
    run inspect "$path"
    [ $? -eq 0 ] && has '6 values in 2 tensors: 2 safetensors files of one index' && has 'stray.safetensors'
    said "shards by $(basename "$path"): the index decides, the stray is named" $?
done
rm "$work/m/model-00002-of-00002.safetensors"
run inspect "$work/m"
[ $? -eq 1 ] && err 'model-00002-of-00002.safetensors, one of 2 files, which is not there'
said 'a missing shard is named' $?

# ---- a run ----
run train sums --out "$work/run" --model gpt2:N=1,D=16,H=2 --micro-batch 4 --threads 1 --steps 6 --save-every 3
said 'a run' $?
run inspect "$work/run"
[ $? -eq 0 ] && has 'step 6 of 6 a checkpoint of tally' && has 'model: 16 tensors, 3,712 values' && has 'optim.exp_avg: 16 tensors'
said 'its latest checkpoint' $?
run inspect --verify "$work/run/checkpoints"
[ $? -eq 0 ] && has "the header's and every tensor's agree"
said 'verified' $?
run --json inspect "$work/run/checkpoints/step-00000003.safetensors"
[ $? -eq 0 ] && grep -q '"step": *3' "$work/out" && grep -q '"kind": *"checkpoint"' "$work/out" && grep -q '"role": *"optim.exp_avg_sq"' "$work/out"
said 'an older one, as JSON' $?
size=$(wc -c <"$work/run/checkpoints/step-00000006.safetensors")
printf '\377' | dd of="$work/run/checkpoints/step-00000006.safetensors" bs=1 seek=$((size - 5)) conv=notrunc 2>/dev/null
run inspect "$work/run/checkpoints/step-00000006.safetensors"
said 'a damaged value: seen only by' $?
run inspect --verify "$work/run/checkpoints/step-00000006.safetensors"
[ $? -eq 1 ] && err 'do not match their checksum'
said '--verify' $?
run inspect --verify "$work/a.safetensors"
[ $? -eq 2 ] && err 'weights'
said '--verify of weights: exit 2' $?

# ---- what is no such file ----
head -c 290 "$work/a.safetensors" >"$work/half.safetensors"
run inspect "$work/half.safetensors"
[ $? -eq 1 ] && err 'its end is missing'
said 'half a download' $?
printf '<!DOCTYPE html><html><body>Sign in</body></html>' >"$work/page.safetensors"
run inspect "$work/page.safetensors"
[ $? -eq 1 ] && err 'an HTML page'
said 'a page of HTML' $?
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >"$work/lfs.safetensors"
run inspect "$work/lfs.safetensors"
[ $? -eq 1 ] && err 'git-LFS pointer'
said 'a git-LFS pointer' $?
make "$work/esc.safetensors" '{"a\u001b[31mb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 72 1
run inspect "$work/esc.safetensors"
[ $? -eq 0 ] && ! LC_ALL=C grep -q "$(printf '\033')" "$work/out"
said 'a name with an escape does not reach the terminal' $?
