#!/bin/sh
# What befalls a run from outside: kill -9 at random moments of training and saving (KILLS=200 for more than a few), a full
# disk (a small tmpfs), a limit on file sizes, a folder that cannot be written, SIGINT and SIGTERM, once and twice. Each time the
# error is said, a checkpoint loads, and `latest` is on a whole one. Root alone can mount; others skip that.
set -u
KILLS=${KILLS:-10}
IN_MEMORY=yes # flushing to a busy disk takes long
. tests/verb.inc
mounted=
cleanup() {
    for place in $mounted; do umount "$place" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT

small='--model gpt2:N=2,D=64,H=2,dropout=0.1 --micro-batch 2 --threads 1'
forever="$small --steps 100000000 --save-every 1 --log-every 1000"
wait_for() { # FILE: up to 30 s
    tries=0
    while [ ! -e "$1" ] && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}
# What `latest` names is whole, value for value, and nothing else in the folder is taken for a checkpoint.
whole() { run inspect --verify "$1/checkpoints/latest"; }

# ---- kill -9 ----
# shellcheck disable=SC2086 # options in a variable
"$TALLY" train sums --out "$work/k" $forever >"$work/out" 2>"$work/err" </dev/null &
pid=$!
wait_for "$work/k/checkpoints/latest"
bad=0
before=0
i=0
while [ $i -lt "$KILLS" ]; do
    sleep "0.$(awk -v seed="$i" 'BEGIN { srand(seed + 7); printf "%03d", int(rand() * 400) }')"
    kill -9 $pid
    wait $pid 2>/dev/null
    if ! whole "$work/k"; then
        bad=$((bad + 1))
        sed 's/^/# /' "$work/err"
    fi
    step=$(sed -n 's/^step \([0-9]*\) of.*/\1/p' "$work/out")
    [ "${step:-0}" -ge "$before" ] || bad=$((bad + 1))
    before=${step:-0}
    i=$((i + 1))
    "$TALLY" train sums --out "$work/k" --resume --save-every 1 --log-every 1000 >"$work/o2" 2>"$work/e2" </dev/null &
    pid=$!
    # Until it is at work again, or the kills would all hit its start.
    tries=0
    while [ "$(readlink "$work/k/checkpoints/latest")" = "step-$(printf %08d "$before").safetensors" ] && [ $tries -lt 300 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    if grep -q 'damaged\|its end is missing' "$work/e2"; then
        bad=$((bad + 1))
        sed 's/^/# /' "$work/e2"
    fi
done
kill -9 $pid
wait $pid 2>/dev/null
[ $bad -eq 0 ] && [ "$before" -gt 0 ]
said "killed $KILLS times: each time a whole checkpoint, and the run went on" $?
whole "$work/k"
before=$(sed -n 's/^step \([0-9]*\) of.*/\1/p' "$work/out")
run train sums --out "$work/k" --resume --stop-at $((before + 2))
said 'and ends as any other' $?
# shellcheck disable=SC2012 # names of our own making
[ "$(ls "$work/k/checkpoints" | grep -c tmp)" -eq 0 ] && [ "$(ls "$work/k/checkpoints" | wc -l)" -eq 3 ]
said 'what kills left behind is gone: two checkpoints and the link' $?

# ---- interrupts ----
for signal in INT TERM; do
    # A background job of a script has SIGINT ignored; a shell that traps it and one that is asked to by env have not.
    # shellcheck disable=SC2086
    (
        trap - INT
        exec env --default-signal=INT "$TALLY" train sums --out "$work/$signal" $forever
    ) >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    wait_for "$work/$signal/checkpoints/latest"
    kill -$signal $pid
    wait $pid
    code=$?
    [ $code -eq 130 ] && err 'interrupted and saved at step' && whole "$work/$signal"
    said "SIG$signal: the step is finished, saved, exit 130" $?
done
# shellcheck disable=SC2086
"$TALLY" train sums --out "$work/twice" $forever >"$work/out" 2>"$work/err" </dev/null &
pid=$!
wait_for "$work/twice/checkpoints/latest"
kill -STOP $pid # both are there when it goes on
kill -TERM $pid
kill -CONT $pid
n=0
while kill -TERM $pid 2>/dev/null && [ $n -lt 500 ]; do n=$((n + 1)); done
wait $pid
code=$?
[ $code -eq 130 ] && whole "$work/twice"
said 'signals without end: saved once, whole, exit 130' $?

# ---- a limit on file sizes ----
# shellcheck disable=SC2086
run train sums --out "$work/limit" $small --steps 40 --save-every 2 --stop-at 4
kept=$(readlink "$work/limit/checkpoints/latest")
mkfifo "$work/pipe"
for blocks in 0 1 64 400; do
    cat "$work/pipe" >"$work/err" & # outside the limit, which would hold for a file of messages too
    reader=$!
    (
        ulimit -f $blocks # of 512 bytes
        exec "$TALLY" train sums --out "$work/limit" --resume --save-every 2 --log-every 1000 >/dev/null 2>"$work/pipe"
    )
    code=$?
    wait $reader
    [ $code -eq 1 ] && err 'File too large' && [ "$(readlink "$work/limit/checkpoints/latest")" = "$kept" ] && whole "$work/limit" &&
        ! ls "$work/limit/checkpoints" | grep -q tmp
    said "a limit of $blocks blocks: exit 1, the old checkpoint whole, nothing left behind" $?
done

# ---- a full disk ----
skip_mounts=
if [ "$(id -u)" -ne 0 ]; then
    skip_mounts='only root may mount'
elif ! mkdir "$work/disk" || ! mount -t tmpfs -o size=4m none "$work/disk" 2>/dev/null; then
    skip_mounts='mounting a tmpfs is not allowed here'
fi
if [ -n "$skip_mounts" ]; then
    echo "skip a full disk: $skip_mounts"
    echo "skip a folder that is read only: $skip_mounts"
    exit 0
fi
mounted="$work/disk"
# shellcheck disable=SC2086
run train sums --out "$work/disk/run" $small --steps 40 --save-every 2 --stop-at 2
said 'a run on a small disk' $?
kept=$(readlink "$work/disk/run/checkpoints/latest")
head -c 5000000 /dev/zero >"$work/disk/full" 2>/dev/null
run train sums --out "$work/disk/run" --resume --save-every 2
code=$?
[ $code -eq 1 ] && err 'No space left on device'
said 'full: the error says so, exit 1' $?
[ "$(readlink "$work/disk/run/checkpoints/latest")" = "$kept" ] && whole "$work/disk/run" &&
    ! ls "$work/disk/run/checkpoints" | grep -q tmp
said 'the old checkpoint is whole, nothing is left behind' $?
rm "$work/disk/full"
run train sums --out "$work/disk/run" --resume --stop-at 4
said 'and with room again it goes on' $?

# ---- a folder that cannot be written ----
kept=$(readlink "$work/disk/run/checkpoints/latest")
mount -o remount,ro "$work/disk" 2>/dev/null
run train sums --out "$work/disk/run" --resume
code=$?
[ $code -eq 1 ] && err 'Read-only file system'
said 'a folder that is read only: the error says so, exit 1' $?
[ "$(readlink "$work/disk/run/checkpoints/latest")" = "$kept" ] && whole "$work/disk/run"
said 'and the checkpoint is whole' $?
