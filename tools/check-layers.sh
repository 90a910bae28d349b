#!/bin/sh
# check-layers.sh: an include never runs up the layers, and each outside library stays behind the file or folder that owns
# it. Reads src/, include/, cli/ below the current folder. Prints `file:line: what` and fails where it finds something.
set -u

# Lower number, lower layer. A layer includes itself and what is below it; equal numbers are neighbours that do not know
# each other. kernel/table.h alone is open to every layer: it is types, no kernel is linked by it.
sources=$(find src cli include examples -name '*.[ch]' 2>/dev/null | LC_ALL=C sort)
[ -n "$sources" ] || exit 0
# shellcheck disable=SC2086 # a list of files
awk '
BEGIN {
    split("base=0 kernel=1 tensor=1 account=2 op=3 axes=4 grad=5 nn=6 optim=7 data=7 config=7 ckpt=8 tokenizer=8 hw=8 infer=8 train=9 plan=10 dist=10", pairs, " ")
    for (i in pairs) { split(pairs[i], pair, "="); level[pair[1]] = pair[2] }
    level["ledger"] = level["account"] # tally/ledger.h
}
# The command is one folder, so its files may name each other plainly.
function beside(name,   line, path) {
    path = "cli/" name
    if (name ~ /\// || (getline line < path) < 0) return 0
    close(path)
    return 1
}
FNR == 1 { split(FILENAME, path, "/"); top = path[1]; layer = path[2]; file_name = FILENAME }
function complain(what) { print file_name ":" FNR ": " what; bad = 1 }
/^[ \t]*#[ \t]*include/ {
    name = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    quoted = (name ~ /^"/)
    sub(/^["<]/, "", name); sub(/[">].*/, "", name)

    if (name ~ /^jansson/ && !(top == "src" && layer == "config")) complain(name " belongs to src/config alone")
    if (name ~ /(^|\/)dnnl[^\/]*$/) {
        if (!(top == "src" && layer == "kernel")) complain(name " belongs to one file in src/kernel")
        else if (dnnl_file == "") dnnl_file = file_name
        else if (dnnl_file != file_name) complain(name " is already included by " dnnl_file ": one file owns oneDNN")
    }
    if (name ~ /^(pthread|threads)\.h$/ && !(top == "src" && layer == "base")) complain(name " belongs to src/base alone")
    if (name ~ /^(Random123|random123)\// && !(top == "src" && layer == "base")) complain(name " belongs to src/base alone")
    if (name ~ /^hwloc/ && !(top == "src" && (layer == "base" || layer == "hw"))) complain(name " belongs to src/base and src/hw")
    if (name ~ /^zlib\.h$/ && !(top == "src" && layer == "data")) complain(name " belongs to src/data alone")
    if (name ~ /^xxhash\.h$/ && !(top == "src" && layer == "ckpt")) complain(name " belongs to src/ckpt alone")
    if (name ~ /^pcre2/ && !(top == "src" && layer == "tokenizer")) complain(name " belongs to src/tokenizer alone")
    if (name ~ /^libsmartcols/ && top != "cli") complain(name " belongs to cli alone")
    if (name ~ /^mpi\.h$/ && layer != "dist") complain(name " belongs to src/dist alone")
    if (name ~ /(^|\/)\.\.\//) complain(name ": name the layer, not the way to it")

    if (!quoted) next
    split(name, part, "/")
    # A public header that carries the name of a layer is part of it; the others belong to base.
    if (part[1] == "tally" && (top == "src" || top == "include")) {
        self = (top == "src") ? layer : path[3]; sub(/\.h$/, "", self)
        other = part[2]; sub(/\.h$/, "", other)
        if ((self in level) && (other in level) && self != other && level[other] >= level[self])
            complain((top == "src" ? "src/" : "tally/") self " must not include " name ": that runs up the layers")
    }
    if (top == "cli" && part[1] != "tally" && part[1] != "cli" && !beside(name)) complain("cli includes tally/*.h and cli/*.h only, not " name)
    else if (top == "examples" && part[1] != "tally") complain("examples include tally/*.h only, not " name)
    else if (top == "include" && part[1] != "tally") complain("a public header includes public headers only, not " name)
    else if (top == "src") {
        if (part[1] == "tally") next
        if (!(layer in level)) complain("src/" layer " is no layer known to tools/check-layers.sh")
        else if (part[1] == layer || name == "kernel/table.h") next
        else if (!(part[1] in level)) complain("write \"layer/file.h\" or \"tally/file.h\", not " name)
        else if (level[part[1]] >= level[layer]) complain("src/" layer " must not include " name ": that runs up the layers")
    }
}
END { exit bad + 0 }
' $sources
