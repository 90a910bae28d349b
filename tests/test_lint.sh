#!/bin/sh
# Every check of tools/lint.sh finds what it is for, and is silent about its honest neighbour. Each case is a folder with one
# planted file; the checks run there as they run here.
set -u
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# case_of NAME CHECK EXPECTED FILE: the text on stdin is FILE. EXPECTED is `clean` or a word of the complaint.
case_of() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$4")"
    cp "$here/.clang-format" "$work/tree/"
    cat >"$work/tree/$4"
    if (cd "$work/tree" && sh "$here/tools/lint.sh" "$2") >"$work/log" 2>&1; then found=clean; else found=bad; fi
    # A check must complain in the right words, not merely fail.
    expected=bad
    [ "$3" != clean ] || expected=clean
    if [ $found = $expected ] && { [ $found = clean ] || grep -q -- "$3" "$work/log"; }; then
        echo "ok $1"
    else
        sed 's/^/# /' "$work/log"
        echo "not ok $1"
    fi
}
includes() {
    case_of "$1" layers "$2" "$3" <<TEXT
#include $4
TEXT
}
# lines N: a file of N lines; function_of N: a function of N lines.
lines() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) print "extern int tl_line_" i ";" }'
}
function_of() {
    echo 'int tl_long(int x) {'
    awk -v n="$1" 'BEGIN { for (i = 2; i < n; i++) print "    x += 1;" }'
    echo '}'
}
missing() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || return 0
    done
    return 1
}

includes 'layers: down is allowed' clean src/op/add.c '"tensor/tensor.h"'
includes 'layers: own folder is allowed' clean src/op/add.c '"op/op.h"'
includes 'layers: kernel/table.h is open to all' clean src/tensor/x.c '"kernel/table.h"'
includes 'layers: up is found' 'runs up the layers' src/tensor/x.c '"op/op.h"'
includes 'layers: up through a public header is found' 'runs up the layers' src/op/x.c '"tally/plan.h"'
includes 'layers: down through a public header is allowed' clean src/plan/x.c '"tally/hw.h"'
includes 'layers: a public header above another is found' 'runs up the layers' include/tally/nn.h '"tally/train.h"'
includes 'layers: neighbours are found' 'runs up the layers' src/optim/x.c '"data/data.h"'
includes 'layers: a kernel body outside kernel is found' 'runs up the layers' src/tensor/x.c '"kernel/product.h"'
includes 'layers: an include without its layer is found' 'layer/file.h' src/op/add.c '"op.h"'
includes 'layers: an unknown layer is found' 'no layer known' src/helpers/x.c '"base/x.h"'
includes 'layers: a way instead of a name is found' 'not the way' src/op/add.c '"op/../plan/plan.h"'
includes 'layers: cli with public headers is allowed' clean cli/plan.c '"tally/plan.h"'
includes 'layers: cli with its own headers is allowed' clean cli/plan.c '"cli/verb.h"'
includes 'layers: cli with a header beside it is allowed' clean cli/verb.h '"verb.h"'
includes 'layers: cli with a header that is not beside it is found' 'cli includes' cli/plan.c '"verb.h"'
includes 'layers: cli with an internal header is found' 'cli includes' cli/plan.c '"plan/plan.h"'
includes 'layers: a public header with an internal one is found' 'public headers only' include/tally/x.h '"op/op.h"'
includes 'layers: jansson in src/config is allowed' clean src/config/x.c '<jansson.h>'
includes 'layers: jansson elsewhere is found' 'src/config alone' src/plan/x.c '<jansson.h>'
includes 'layers: pthread in src/base is allowed' clean src/base/pool.c '<pthread.h>'
includes 'layers: pthread elsewhere is found' 'src/base alone' src/kernel/x.c '<pthread.h>'
includes 'layers: Random123 in src/base is allowed' clean src/base/random.c '<Random123/philox.h>'
includes 'layers: Random123 elsewhere is found' 'src/base alone' src/op/x.c '<Random123/philox.h>'
includes 'layers: oneDNN in src/kernel is allowed' clean src/kernel/product.c '<oneapi/dnnl/dnnl.h>'
includes 'layers: oneDNN elsewhere is found' 'one file in src/kernel' src/op/x.c '<dnnl.h>'
rm -rf "$work/tree" && mkdir -p "$work/tree/src/kernel"
echo '#include <dnnl.h>' | tee "$work/tree/src/kernel/a.c" >"$work/tree/src/kernel/b.c"
if (cd "$work/tree" && sh "$here/tools/check-layers.sh") | grep -q 'one file owns oneDNN'; then
    echo 'ok layers: oneDNN in a second file is found'
else
    echo 'not ok layers: oneDNN in a second file is found'
fi

for call in strcpy strcat sprintf vsprintf gets strtok atoi atof alloca system rand; do
    echo "void tl_f(void) { $call(0); }" | case_of "source: $call is found" source "banned call: $call" src/base/x.c
done
case_of 'source: a longer name is not a banned call' source clean src/base/x.c <<'TEXT'
void tl_f(char *s) { snprintf(s, 3, "x"); tl_rand(s); s->rand(s); strtok_r(0, s, 0); }
TEXT
case_of 'source: words in comments and strings are words' source clean src/base/x.c <<'TEXT'
/* strcpy(a, b) is what we do
 * not call; nor system("x"). */
const char *tl_text = "system(\"rm\")"; // gets(x)
TEXT
case_of 'source: a call after a comment is found' source 'banned call: strcpy' src/base/x.c <<'TEXT'
void tl_f(void) { /* a */ strcpy(0, "/*"); }
TEXT
case_of 'source: an OpenMP pragma is found' source 'OpenMP' src/kernel/body/x.c <<'TEXT'
void tl_f(void);
#pragma omp simd
TEXT
lines 800 | case_of 'source: a file of 800 lines is allowed' source clean src/base/x.c
lines 801 | case_of 'source: a file of 801 lines is found' source 'file of 801 lines' src/base/x.c
lines 400 | case_of 'source: a public header of 400 lines is allowed' source clean include/tally/x.h
lines 401 | case_of 'source: a public header of 401 lines is found' source 'file of 401 lines' include/tally/x.h
function_of 80 | case_of 'source: a function of 80 lines is allowed' source clean src/base/x.c
function_of 81 | case_of 'source: a function of 81 lines is found' source 'function of 81 lines' src/base/x.c

if missing "${CC:-gcc}"; then
    echo 'skip vla: no compiler'
else
    echo 'int tl_f(int n); int tl_f(int n) { int x[n]; x[0] = n; return x[0]; }' |
        case_of 'vla: an array of variable length is found' vla 'vla' bench/bench_x.c
    echo 'int tl_f(void); int tl_f(void) { int x[3] = {0}; return x[0]; }' |
        case_of 'vla: an array of constant length is allowed' vla clean bench/bench_x.c
fi
if missing clang-format-14; then
    echo 'skip format: no clang-format-14 (make lint installs it)'
else
    echo 'int   tl_f( void );' | case_of 'format: a stray space is found' format 'clang-format' src/base/x.c
    echo 'int tl_f(void);' | case_of 'format: the house style is allowed' format clean src/base/x.c
fi
if missing cppcheck; then
    echo 'skip cppcheck: not installed (make lint installs it)'
else
    case_of 'cppcheck: an index past the end is found' cppcheck 'arrayIndexOutOfBounds' src/base/x.c <<'TEXT'
int tl_f(void) {
    int x[3] = {0};
    return x[3];
}
TEXT
    case_of 'cppcheck: an index inside is allowed' cppcheck clean src/base/x.c <<'TEXT'
int tl_f(void) {
    int x[3] = {0};
    return x[2];
}
TEXT
fi
echo 'if true; then' | case_of 'shell: a script that does not parse is found' shell 'tools/x.sh' tools/x.sh
echo 'if true; then echo; fi' | case_of 'shell: a script that parses is allowed' shell clean tools/x.sh
