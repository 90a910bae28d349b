#!/bin/sh
# Recorded PyTorch is what PyTorch says: the scripts of the families' models and of what is kept for backward run again, and the
# page that lists it is what its script prints. They need Debian's PyTorch 1.13, whose saved tensors they record.
set -u
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=/usr/bin/python3
if ! "$python" -c 'import torch; assert torch.__version__.startswith("1.13")' 2>/dev/null; then
    echo "skip recorded PyTorch: no PyTorch 1.13 for $python (python3-torch)"
    exit 0
fi
said() { # NAME STATUS: of the command before
    if [ "$2" -eq 0 ]; then echo "ok $1"; else
        sed 's/^/# /' "$work/out" | head -20
        echo "not ok $1"
    fi
}
fixtures=$here/tests/fixtures
"$python" "$fixtures/make_family_fixtures.py" check "$fixtures/family_fixtures.h" >"$work/out" 2>&1
said "family_fixtures.h is its script's" $?
"$python" "$fixtures/make_rope_fixtures.py" check "$fixtures/rope_fixtures.h" >"$work/out" 2>&1
said "rope_fixtures.h is its script's" $?
"$python" "$fixtures/make_saved_bytes.py" >"$work/saved.h" 2>"$work/out" &&
    diff "$work/saved.h" "$fixtures/saved_bytes_fixtures.h" >"$work/out" 2>&1
said "saved_bytes_fixtures.h is its script's" $?
"$python" "$fixtures/make_saved_bytes.py" table >"$work/table" 2>"$work/out" &&
    sed -n '/^| op | saved |$/,/^$/p' "$here/docs/torch-saves.md" | sed '/^$/d' | diff "$work/table" - >"$work/out" 2>&1
said "docs/torch-saves.md lists what its script prints" $?
# a changed number or name is seen
sed 's/0, 2},$/0, 3},/' "$fixtures/family_fixtures.h" >"$work/changed.h"
! "$python" "$fixtures/make_family_fixtures.py" check "$work/changed.h" >"$work/out" 2>&1
said "a changed fixture is seen" $?
