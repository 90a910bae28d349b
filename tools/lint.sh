#!/bin/sh
# lint.sh: every check of the sources below the current folder, one `ok NAME` or `not ok NAME` line each after what it found.
# lint.sh NAME... runs those alone: format, vla, cppcheck, layers, source, shell.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
failed=0
result() {
    if [ "$2" -eq 0 ]; then
        echo "ok lint $1"
    else
        echo "not ok lint $1"
        failed=$((failed + 1))
    fi
}
sources() {
    find "$@" -name '*.[ch]' 2>/dev/null | LC_ALL=C sort
}

check_format() {
    files=$(sources src cli include tests fuzz bench examples)
    [ -n "$files" ] || return 0
    # shellcheck disable=SC2086 # a list of files
    if ! found=$(clang-format-14 --dry-run -Werror --style=file $files 2>&1); then
        echo "$found" | grep -a ' error: ' | sort -t: -u -k1,2 | head -30
        echo 'to format: clang-format-14 -i FILE'
        return 1
    fi
}

# -Wvla is in every build; here it also covers what no build compiles (benchmarks, fuzzers, examples).
check_vla() {
    bad=0
    smartcols=$(pkg-config --cflags smartcols 2>/dev/null)
    for file in $(sources src cli tests fuzz bench examples | grep '\.c$'); do
        case $file in
        src/dist/*) continue ;; # needs MPI's headers
        esac
        # shellcheck disable=SC2086 # a list of options
        ${CC:-gcc} -std=c11 -D_GNU_SOURCE -DTL_ISA=portable -fsyntax-only -Werror=vla -Iinclude -Isrc -I. -Itests $smartcols "$file" || bad=1
    done
    return $bad
}

# Suppressed, and why:
#   missingIncludeSystem     system headers are not read: slow, and not ours
#   normalCheckLevelMaxBranches, checkersReport  remarks about cppcheck itself
#   unmatchedSuppression     a file may have stopped needing one of these
#   unknownMacro             TL_OP(…) and cmocka's macros at file level; the compiler reads those
#   preprocessorErrorDirective  #error in branches for other machines, which cppcheck tries all
#   invalidPointerCast (kernels and what tests them)  an array is bytes with a dtype; reading it as that type is the job
#   uninitvar (kernel bodies)  two loops share a bound that cppcheck takes for two values; gcc at -O3 warns of real ones
#   nullPointer (tests)      assert_non_null ends the test, which cppcheck cannot see
check_cppcheck() {
    files=$(sources src cli tests fuzz bench examples | grep '\.c$') || return 0
    # shellcheck disable=SC2086 # a list of files
    cppcheck --quiet --std=c11 --language=c -j 2 --enable=warning,portability,performance --inline-suppr --error-exitcode=1 \
        --platform=unix64 -D_GNU_SOURCE -D__GNUC__=12 -D__x86_64__ -DTL_ISA=portable -Iinclude -Isrc -I. -Itests \
        --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --suppress=checkersReport \
        --suppress=unmatchedSuppression --suppress=unknownMacro --suppress=preprocessorErrorDirective \
        --suppress='invalidPointerCast:src/kernel/*' --suppress='invalidPointerCast:tests/*' \
        --suppress='uninitvar:src/kernel/body/*' \
        --suppress='nullPointer:tests/*' --suppress='nullPointerOutOfMemory:tests/*' $files
}

check_layers() {
    sh "$tools/check-layers.sh"
}

check_source() {
    sh "$tools/check-source.sh"
}

# Our scripts run under dash: `sh -n` under it is the check.
check_shell() {
    bad=0
    for file in tools/*.sh tests/*.sh; do
        [ -f "$file" ] || continue
        case $(head -n 1 "$file") in
        *bash*) bash -n "$file" || bad=1 ;;
        *) sh -n "$file" || bad=1 ;;
        esac
    done
    return $bad
}

[ $# -gt 0 ] || set -- format vla cppcheck layers source shell
for name in "$@"; do
    "check_$name"
    result "$name" $?
done
[ "$failed" -eq 0 ]
