#!/bin/sh
# demo.sh: the whole idea on real input. A napkin, a plan for real accelerators, then a model trained here by the code that
# was planned, with planned and measured laid side by side. Ends with an error if they are not equal or the model cannot add.
set -u
TALLY=${TALLY:-build/tally}
folder=${DEMO_FOLDER:-$(dirname "$TALLY")/demo}/sums
start=$(date +%s)
failed=

show() { # the command as typed, then what it says
    echo
    echo "\$ tally $*"
    "$TALLY" "$@"
}
title() {
    echo
    echo "==== $*"
}
wrong() {
    echo "demo: $*" >&2
    failed=yes
}

title 'How long would 70B parameters and 15T tokens take on 1024 H100?'
show time --params 70B --tokens 15T --gpus 1024xH100 --mfu 0.5 || wrong 'tally time failed'

title 'What does Llama 3 8B need for training on one H100? (Each number is from running the model without data.)'
show plan llama-3-8b -g 1xH100 --seq 4096
code=$?
[ $code -eq 3 ] || wrong "tally plan should end with 3 (does not fit), it ended with $code"

title 'Where does a number come from?'
show explain gpt2-xl params || wrong 'tally explain failed'

title 'Now a small model, planned by the same code, then trained here to add numbers of three digits'
rm -rf "$folder"
show train sums --out "$folder" --micro-batch 128 --lr 3e-3 --steps 800 --minutes 2 || wrong 'training failed'

title 'Planned before the run, measured during it by a second instrument'
show ledger "$folder" || wrong 'planned and measured are not equal'

title 'Can it add? Sums it was never shown'
exact=$(sed -n 's/.*"exact": *\([0-9.e+-]*\).*/\1/p' "$folder/evaluation.json" 2>/dev/null)
sed -n 's/^ *"\([0-9]*+[0-9]*=[^"]*\)".*/  \1/p' "$folder/evaluation.json" 2>/dev/null
awk -v exact="${exact:-0}" 'BEGIN { printf "%.2f %% of the held-out sums exact\n", 100 * exact; exit !(exact >= 0.99) }' ||
    wrong 'less than 99 % of the held-out sums are right'

echo
if [ -n "$failed" ]; then
    echo 'The demo failed; what went wrong is said above.'
    exit 1
fi
echo "planned = measured, and it adds. $(($(date +%s) - start)) seconds; the run is in $folder."
