#!/bin/sh
# link-wasm.sh OUTPUT OBJECT...: link the planner core for a page, exporting what tools/wasm-exports.txt names.
# Fails where the core calls libm (results must agree with the native build bit for bit, and libm differs between the two),
# where a symbol is missing (a kernel, a thread, jansson), or where it would import anything but WASI.
set -eu
output=$1
shift
WASM_CC=${WASM_CC:-clang-14}
list=$(dirname "$0")/wasm-exports.txt
version=${WASM_CC##*clang}
NM=llvm-nm$version
command -v "$NM" >/dev/null 2>&1 || NM=llvm-nm

exports=
# shellcheck disable=SC2013 # words are wanted
for name in $(sed 's/#.*//' "$list"); do
    exports="$exports -Wl,--export=$name"
done

# wasi-libc holds its libm in libc, so the link alone would not notice.
libm='pow|exp|exp2|exp10|expm1|log|log2|log10|log1p|sin|cos|tan|sinh|cosh|tanh|erf|erfc|lgamma|tgamma|cbrt|hypot|fmod|remainder'
if calls=$("$NM" -A --undefined-only "$@" | grep -E " U ($libm)[fl]?\$"); then
    echo "link-wasm: the planner core must not call libm:" >&2
    echo "$calls" >&2
    exit 1
fi

# Twice: first with everything kept, so that a kernel called from a function nobody exports yet is found; then for use.
link() {
    "$WASM_CC" --target=wasm32-wasi --sysroot=/usr -mexec-model=reactor -O2 -Wl,--no-entry -Wl,--fatal-warnings \
        -Wl,-z,stack-size=1048576 "$@"
}
trap 'rm -f "$output.check"' EXIT
link -Wl,--no-gc-sections -Wl,--error-limit=0 -o "$output.check" "$@"
foreign=$("obj2yaml$version" "$output.check" | awk '
    $1 == "-" && $2 == "Module:" { module = $3 }
    $1 == "Field:" && module != "" { if (module != "wasi_snapshot_preview1") print module "." $2; module = "" }')
if [ -n "$foreign" ]; then
    echo "link-wasm: imports that a page does not offer: $foreign" >&2
    exit 1
fi

# shellcheck disable=SC2086 # a list of options
link -Wl,--strip-all $exports -o "$output" "$@"
echo "$output: $(wc -c <"$output") bytes"
