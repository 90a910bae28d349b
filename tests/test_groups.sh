#!/bin/sh
# --groups of tally train and tally plan: what each rule does to bytes, FLOPs and weights, where it is said, what is refused.
# Expected numbers are worked out from the shapes of gpt2:N=1,D=16,H=2,F=64 with 13 ids and 12 positions (GPT-2's layout):
#   wte 13·16 = 208, wpe 12·16 = 192; of the block: c_attn 16·48, c_proj 16·16, c_fc 16·64, c_proj 64·16 = 3072 in four matrices,
#   their biases 48 + 16 + 64 + 16 = 144; three layer norms of 16 + 16 = 96: 3712 in all, 400 + 3072 of them with decay.
set -u
. tests/verb.inc

small='--model gpt2:N=1,D=16,H=2 --micro-batch 4 --threads 1 --clip 0'
train() { # FOLDER ARGUMENT...
    folder=$work/$1
    shift
    # shellcheck disable=SC2086
    run train sums --out "$folder" $small "$@"
}
value() { # FILE GROUP KEY, of the list "groups"
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["groups"][int(sys.argv[2])][sys.argv[3]])' "$@"
}

# ---- the default rule, said ----
train plain --steps 4
said 'groups: without any' $?
grep -q 'group default: 6 tensors, 3,472 parameters: decay 0.1$' "$work/err" &&
    grep -q 'group default: 10 tensors, 240 parameters: no decay$' "$work/err"
said 'groups: norms and biases have no decay, and the header says so' $?
[ "$(value "$work/plain/run.json" 1 parameters)" = 240 ] && [ "$(value "$work/plain/plan.json" 0 weight_decay)" = 0.1 ]
said 'groups: so do run.json and plan.json' $?

# ---- frozen ----
train frozen --steps 4 --groups 'wte.*:frozen;*.bias:lr-factor=0.5,weight-decay=0.2'
grep -q 'group 1 "wte.\*": 1 tensor, 208 parameters: frozen$' "$work/err" &&
    grep -q 'group 2 "\*.bias": 7 tensors, 192 parameters: lr times 0.5, decay 0.2$' "$work/err" &&
    grep -q 'planned = measured in each of 3 steps' "$work/out"
said 'groups: frozen ones and slow ones, planned = measured' $?
python3 - "$work" <<'P'
import json, struct, sys
def tensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    return {k: data[slice(*v["data_offsets"])] for k, v in head.items() if k != "__metadata__"}
w = sys.argv[1]
plain, frozen = (tensors(f"{w}/{r}/checkpoints/latest") for r in ("plain", "frozen"))
plans = [json.load(open(f"{w}/{r}/plan.json")) for r in ("plain", "frozen")]
missing = sorted(set(plain) - set(frozen))
checks = {
    "no states of a frozen parameter": missing == ["optim.exp_avg.wte.weight", "optim.exp_avg_sq.wte.weight"],
    "its gradient and states are not planned": all(
        plans[0]["memory"]["by_category"][c] - plans[1]["memory"]["by_category"][c] == n * 208 * 4
        for c, n in (("optim", 2),)),
    # the table is the head too: 2·B·T·V·D of its weight gradient is not computed
    "nor its FLOPs": plans[0]["flops"]["per_step"] - plans[1]["flops"]["per_step"] == 2 * 4 * 11 * 208,
    "parameters_trainable": plans[1]["model"]["parameters_trainable"] == 3712 - 208,
}
for name, ok in checks.items():
    print("ok" if ok else "not ok", "groups:", name)
if not checks["no states of a frozen parameter"]:
    print("#", missing)
P
train start --steps 4 --stop-at 1 --groups 'wte.*:frozen'
cp "$work/start/checkpoints/latest" "$work/first"
run train --out "$work/start" --resume
python3 - "$work/first" "$work/start/checkpoints/latest" <<'P'
import json, struct, sys
def tensor(path, name):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        a, b = json.loads(f.read(n))[name]["data_offsets"]
        f.seek(8 + n + a)
        return f.read(b - a)
a, b = sys.argv[1:]
print("ok" if tensor(a, "model.wte.weight") == tensor(b, "model.wte.weight") else "not ok", "groups: a frozen parameter stays, bit for bit")
print("ok" if tensor(a, "model.wpe.weight") != tensor(b, "model.wpe.weight") else "not ok", "groups: and the others move")
P

# ---- the same in a file, and gone on with ----
cat >"$work/task.json" <<'J'
{"task": "sums", "model": "gpt2:N=1,D=16,H=2", "micro-batch": 4, "clip": 0, "threads": 1, "steps": 4,
 "groups": [{"match": "wte.*", "frozen": true}, {"match": "*.bias", "lr-factor": 0.5, "weight-decay": 0.2, "frozen": false}]}
J
run train "$work/task.json" --out "$work/file"
cmp -s "$work/file/checkpoints/latest" "$work/frozen/checkpoints/latest"
said 'groups: a list in a file is what the text says, bit for bit' $?
train half --steps 4 --stop-at 2 --groups 'wte.*:frozen;*.bias:lr-factor=0.5,weight-decay=0.2'
run train --out "$work/half" --resume
cmp -s "$work/half/checkpoints/latest" "$work/frozen/checkpoints/latest"
said 'groups: resumed they hold, bit for bit' $?
gives 'groups: others are refused on resuming' 2 'was started with wte.*:frozen;*.bias' train --out "$work/half" --resume --groups 'wpe.*:frozen'
train edited --steps 4 --stop-at 2 --groups 'wte.*:frozen'
sed 's/wte\.\*:frozen/wpe.*:frozen/' "$work/edited/run.json" >"$work/run.json" && mv "$work/run.json" "$work/edited/run.json"
gives 'groups: and a run.json that was changed' 1 'was saved with the groups wte.*:frozen; the run' train --out "$work/edited" --resume
sed 's/wpe\.\*:frozen//' "$work/edited/run.json" >"$work/run.json" && mv "$work/run.json" "$work/edited/run.json"
gives 'groups: or lost them' 1 'now has none' train --out "$work/edited" --resume
for optim in sgd momentum adagrad rmsprop adam adamw8bit; do
    train "$optim" --steps 3 --optim $optim --groups 'h.*:lr-factor=0.1;*.weight:weight-decay=0.3;wpe*:frozen' &&
        grep -q 'planned = measured in each of 2 steps' "$work/out"
    said "groups: with $optim, planned = measured" $?
done

# ---- refused, each with its place ----
refused() { # GROUPS TEXT
    gives "groups: \"$1\" is refused" 2 "$2" train sums --dry-run --groups "$1"
    gives "groups: \"$1\" is refused by plan" 2 "$2" plan gpt2 -g H100 --groups "$1"
}
refused 'nothing.*:frozen' '"nothing.*" matches none of the'
refused 'bias:frozen' '"*bias*" would match'
refused 'h.0.*:frozen;h.*:lr-factor=2' '"h.0.*" holds nothing: later groups, "h.*" among them'
refused '*:frozen' 'nothing is left to train'
refused 'wte*:lr=-1' 'group 1 "wte*", character 6: lr:'
refused 'h.*:frozen;wte*:beta1=1' 'group 2 "wte*", character 17: beta1 is 1'
refused 'wte*:frozen,lr=1' 'its other rules change nothing'
refused 'wte*:lr-factor=1e400' 'lr-factor:'
refused 'wte*' 'is not PATTERN:RULE'
refused '' '--groups is empty'
gives 'groups: betas of what has none' 2 'sgd has no betas' train sums --dry-run --optim sgd --groups 'h.*:beta1=0.5'
gives 'groups: serving has no optimizer' 2 'changes nothing about serving' plan gpt2 -g H100 --infer --groups 'h.*:frozen'
gives 'groups: nor has --optim none' 2 'changes nothing' plan gpt2 -g H100 --optim none --groups 'h.*:frozen'
gives 'groups: frozen without them' 2 'are frozen without it' plan gpt2 -g H100 --lora 4 --groups 'wte*:weight-decay=0'
wrong() { # JSON TEXT
    printf '{"task": "sums", "groups": %s}' "$1" >"$work/wrong.json"
    run train "$work/wrong.json" --dry-run
    code=$?
    tr -s '\n ' '  ' <"$work/err" >"$work/flat"
    [ $code -ne 0 ] && [ $code -le 2 ] && grep -qF "$work/wrong.json" "$work/flat" && grep -qF -- "$2" "$work/flat"
    said "groups: $1 in a file is refused with its place" $?
}
wrong '[{"match": "h.*"}]' '"groups.0" has no rule'
wrong '[{"match": "h.*", "frozen": false}]' '"groups.0" has no rule'
wrong '[{"match": "wte*", "frozen": true}, {"frozen": true}]' '"groups.1.match" is missing'
wrong '[{"match": 3, "frozen": true}]' '"groups.0.match" is a whole number'
wrong '[{"match": "h.*", "frozen": 1}]' '"groups.0.frozen" is true or false'
wrong '[{"match": "h.*", "weight-decay": "0"}]' '"groups.0.weight-decay" is no number'
wrong '[{"match": "h.*", "decay": 0}]' '"decay=0" is no rule'
wrong '[{"match": "h.*:frozen;x", "lr": 1}]' 'a pattern of names'
wrong '[{"match": "", "lr": 1}]' 'a pattern of names'
wrong '[3]' '"groups.0.match" is missing'
wrong '[{"match": "nothing", "frozen": true}]' 'matches none of the'
wrong '[{"match": "h.*", "lr": -1}]' 'lr:'
wrong '{"match": "h.*"}' 'groups'
exit 0
