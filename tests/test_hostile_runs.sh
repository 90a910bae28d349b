#!/bin/sh
# What is left of a run whose newest checkpoint is cut or gone; a ledger with a wrong value; and what is said of files that
# hold nothing, or names that a terminal would obey.
. tests/verb.inc
cd "$work" || exit 1

silent() { # NAME: nothing on standard output
    [ ! -s "$work/out" ]
    said "$1: nothing on standard output" $?
}

# ---- runs: steps 2, 4 and 6 are saved ----
gives 'a run of six steps' 0 'planned = measured' train sums --out a --model gpt2:N=1,D=16,H=2 --micro-batch 4 --threads 1 --steps 6 --save-every 2 --keep 5
last=step-00000006.safetensors
for copy in cut gone unlinked; do cp -R a $copy; done
head -c 3000 a/checkpoints/$last >cut/checkpoints/$last
rm gone/checkpoints/$last unlinked/checkpoints/$last unlinked/checkpoints/latest
touch -t 202001010000 unlinked/metrics.jsonl # no run of the last two minutes
taken='step-00000004.safetensors is whole and taken in its place'
run runs
grep -q '^a .*finished$' out && grep -q '^cut .*damaged$' out && grep -q '^gone .*damaged$' out &&
    grep -q '^unlinked .*interrupted$' out
said 'runs: finished is a run whose last step is saved' $?
for copy in cut gone; do
    gives "runs: the checkpoint of $copy is named" 0 "$copy/checkpoints/$last" runs
    gives "sample: of $copy an older one, said" 0 "$taken" sample $copy --prompt 1
    gives "export: of $copy an older one, said" 0 "$taken" export $copy --out out-$copy
    gives "train: weights of $copy from an older one, said" 0 "$taken" train sums --out with-$copy --weights $copy --model gpt2:N=1,D=16,H=2 --micro-batch 4 --threads 1 --steps 1
done
run sample a --prompt 1
! grep -q 'in its place' err
said 'sample: of a whole run nothing of that' $?

# ---- ledgers: the last value that the table shows is wrong ----
for key in unplanned_bytes unaccounted_flops; do
    cp -R a ledger
    sed "s/\"$key\": *[0-9]*/\"$key\": \"many\"/" a/ledger.json >ledger/ledger.json
    ! cmp -s a/ledger.json ledger/ledger.json
    said "a ledger whose $key is no number" $?
    for form in table json; do # csv and md are the categories alone
        gives "ledger: $key, $form" 1 "$key" ledger ledger --format $form
        silent "ledger: $key, $form"
    done
    rm -r ledger
done
gives 'ledger: of a whole one' 0 'unaccounted' ledger a

# ---- a file of no tokens: the header of an .npy of shape (0,), uint16 (NEP 1) ----
printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (0,), }" >none.npy
gives 'verify of 0 tokens is not ok' 0 'empty 0 tokens: there is no id to verify' data verify none.npy

# ---- csv: names written out as in a table, and whole characters ----
# a header's length in 8 bytes, little-endian (https://github.com/huggingface/safetensors#format)
header='{"a\u001b[31m\u202e\u00e9\t\"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
{
    printf "\\$(printf %03o ${#header})\\000\\000\\000\\000\\000\\000\\000"
    printf %s "$header"
    head -c 8 /dev/zero
} >names.safetensors
run inspect names.safetensors --format csv
grep -qF "\"a\\x1b[31m\\u202eé$(printf '\t')\"\"q\"" out
said 'csv: what a terminal would obey is written out, quotes are doubled, the rest is as it is' $?
LC_ALL=C grep -q "$(printf '\033')\\|$(printf '\342\200\256')" out
[ $? -eq 1 ]
said 'csv: and nothing of it reaches the terminal' $?

# ---- errors: characters beyond ASCII are whole; what is no UTF-8 is written out ----
gives 'an error says é as é' 2 'no model "é·x"' plan 'é·x'
gives 'and a byte that ends no character' 2 'no model "é?"' plan "$(printf '\303\251\251')"

# ---- a GGUF of version 9: one status, whoever reads it ----
printf 'GGUF\011\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000' >nine.gguf
for verb in inspect plan models; do gives "$verb: a GGUF of another version" 2 'is GGUF version 9; 2 and 3 are read' $verb ./nine.gguf; done
printf '{"model_type":"nope"}' >nope.json
for verb in inspect plan models; do gives "$verb: a family that is not known" 2 'nope' $verb ./nope.json; done

# ---- MFU of figures far from those that one knows ----
gives 'mfu: one power of ten a number' 3 '= 1e+18 / 989.4e12 = 1010.7136' mfu --achieved 1e18 -g H100
gives 'mfu: and in the known one where that is near' 0 '= 420e12 / 989.4e12 = 0.4245' mfu --achieved 420e12 -g H100

# ---- a run that never starts leaves no folder; one of a single step promises no ledger ----
tiny='--model gpt2:N=1,D=16,H=2 --micro-batch 4 --threads 1'
# shellcheck disable=SC2086
{
    gives 'groups that match nothing' 2 'matches none' train sums --out new/deep/run $tiny --steps 2 --groups 'zz*:frozen'
    [ ! -e new ]
    said 'leave no folder' $?
    mkdir -p kept/mine
    gives 'nor in one that was there' 2 'matches none' train sums --out kept/mine/run $tiny --steps 2 --groups 'zz*:frozen'
    [ -d kept/mine ] && [ ! -e kept/mine/run ]
    said 'which stays' $?
    printf '{"task":"sums","model":"gpt2:N=1,D=16,H=2","steps":2,"groups":[{"match":"zz*","lr":1}]}' >task.json
    gives 'groups of a file that match nothing are a wrong value of the file' 1 'task.json: "groups": parameter group "zz*"' train task.json --out new/run
    printf '{"task":"sums","steps":2,"groups":[{"match":"%02000d","lr":1}]}' 0 >task.json
    gives 'and those that are too long' 1 '"groups" is too long' train task.json --out new/run
    gives 'a run of one step says that nothing was measured' 0 'from the second on they are measured' train sums --out once $tiny --steps 1
    ! grep -q 'tally ledger' out
    said 'and names no ledger' $?
}
