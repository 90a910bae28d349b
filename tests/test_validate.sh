#!/bin/sh
# tests/test_validate.sh: the planner beside memory that others measured (docs/validation.md). The bar is bench/validate.c's: median
# error at most 6 %, nine tenths of the rows within 12 %, every row that was out of memory said to be so.
validate=${BUILD:-build}/bench/validate
make -s "BUILD=${BUILD:-build}" "${BUILD:-build}/bench/validate" >/dev/null || { echo "not ok validate builds"; exit 1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/tally-test-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
said() { if [ "$2" -eq 0 ]; then echo "ok $1"; else sed 's/^/# /' "$work/all"; echo "not ok $1"; fi; }

if [ -n "${TALLY_SHARED:-}" ] && [ -d "$TALLY_SHARED/data/measured" ]; then
    "$validate" "$TALLY_SHARED/data/measured" >"$work/all" 2>&1
    said "the bar holds over the measured rows" $?
    grep -q 'rows planned [3-9][0-9]:' "$work/all"
    said "thirty rows and more are planned" $?
    ! grep -q 'NOT SAID' "$work/all"
    said "out of memory is said" $?
    # The counts that LitGPT prints of its trainable parameters are each row's to check: a recipe that has others is not planned.
    ! grep -q "the row's" "$work/all"
    said "trainable parameters are the rows'" $?
else
    echo "ok the measured rows # SKIP: no \$TALLY_SHARED/data/measured"
fi

litgpt='section,Size,Model,Quantization,Microbatch size,Trainable parameters,Max GPU RAM'
row='x / Finetuning with LoRA on 1 GPU,7 B,Llama 2,None'
# What a made-up table says is wrong: NAME, TEXT of the message, LINE, rows
refuses() {
    mkdir -p "$work/in"
    { echo "# made up"; printf '%b\n' "$4"; } >"$work/in/litgpt_memory_tables.csv"
    "$validate" "$work/in" >"$work/all" 2>&1
    [ $? -eq 1 ] && grep -qF "litgpt_memory_tables.csv:$3: " "$work/all" && grep -qF "$2" "$work/all"
    said "$1" $?
}
refuses "no header" "no header" 2 "# nothing"
refuses "a column is missing" 'no column "Max GPU RAM"' 2 "section,Size,Model,Quantization,Microbatch size,Trainable parameters\na,b,c,d,e,f"
refuses "too few fields" "6 fields where the header has 7" 3 "$litgpt\n$row,1,1"
refuses "no number" 'Microbatch size is "two"' 3 "$litgpt\n$row,two,1,1 GB"
refuses "no memory" 'Max GPU RAM is "21.3 apples"' 4 "$litgpt\n\n$row,1,1,21.3 apples"
refuses "a negative memory" 'Max GPU RAM is "-3 GB"' 3 "$litgpt\n$row,1,1,-3 GB"
refuses "an open quote" "no closing quote" 3 "$litgpt\n$row,1,\"4,194,1 GB"
refuses "text behind a quote" "behind its closing quote" 3 "$litgpt\n$row,1,\"4\"5,1 GB"

one() { # NAME STATUS TEXT ROW
    { echo "$litgpt"; echo "$4"; } >"$work/in/litgpt_memory_tables.csv"
    "$validate" "$work/in" >"$work/all" 2>&1
    [ $? -eq "$2" ] && grep -qF "$3" "$work/all"
    said "$1" $?
}
one "a row as it should be" 0 "within 12 %: 1 of 1" "$row,1,\"4,194,304\",21.30 GB"
one "beyond the bar" 3 "within 12 %: 0 of 1" "$row,1,\"4,194,304\",30.00 GB"
one "fits, though the row says not" 3 "NOT SAID" "$row,1,\"4,194,304\",OOM
$row,1,\"4,194,304\",21.30 GB"
one "other adapters than the recipe's" 1 "the row's 4194305" "$row,1,\"4,194,305\",21.30 GB"
rm "$work/in/litgpt_memory_tables.csv"
"$validate" "$work/in" >"$work/all" 2>&1
[ $? -eq 1 ]
said "a folder without tables is an error" $?
