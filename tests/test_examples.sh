#!/bin/sh
# The examples print what they promise. Figures: CS336 lecture 2 (4, 8, 16 bytes per parameter; 2·B·D·K FLOPs a product).
set -u
dir=${BUILD:-build}/examples
out=$("$dir/linear_layer" 2>&1)
code=$?
check() {
    if printf '%s\n' "$out" | grep -qF -- "$2"; then echo "ok example: $1"; else
        echo "not ok example: $1"
        printf '%s\n' "$out"
    fi
}
if [ $code -eq 0 ]; then echo "ok example: linear_layer runs"; else echo "not ok example: linear_layer exits $code"; fi
check "4 bytes per parameter" "made           param   16  grad    0  optim    0 MiB"
check "8 after backward" "after backward param   16  grad   16  optim    0 MiB"
check "16 after the step" "after the step param   16  grad   16  optim   32 MiB"
check "FLOPs of forward and weight gradient" "4294967296"
planned=$(printf '%s\n' "$out" | sed -n '/^on meta/,/^on [^m]/p' | grep '^  ')
measured=$(printf '%s\n' "$out" | sed -n '/^on [^m]/,$p' | grep '^  ')
if [ -n "$planned" ] && [ "$planned" = "$measured" ]; then echo "ok example: both devices keep the same account"; else echo "not ok example: both devices keep the same account"; fi
