#!/bin/sh
# check-source.sh: banned calls, OpenMP pragmas, variable-length arrays, long files and long functions, in the C sources
# below the current folder. Prints `file:line: what` and fails where it finds something.
set -u
sources=$(find src cli include tests fuzz bench examples -name '*.[ch]' 2>/dev/null | LC_ALL=C sort)
[ -n "$sources" ] || exit 0

# Comments, strings and character constants are blanked first: words in them are words.
# shellcheck disable=SC2086 # a list of files
awk '
BEGIN {
    # No bound (strcpy …), no error (atoi …), hidden state (strtok, rand), a shell (system), a stack (alloca).
    banned = "strcpy|strcat|stpcpy|sprintf|vsprintf|gets|strtok|atoi|atol|atoll|atof|alloca|system|rand|srand"
    call = "(^|[^A-Za-z0-9_.>])(" banned ")[ \t]*\\("
}
function complain(line, what) { print file_name ":" line ": " what; bad = 1 }
function finish_file(   limit) {
    if (file_name == "") return
    limit = (file_name ~ /^include\//) ? 400 : 800
    if (lines > limit) complain(lines, "file of " lines " lines; at most " limit)
}
function strip(text,   out, c, two, i, n) {
    out = ""; n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1); two = substr(text, i, 2)
        if (in_comment) { if (two == "*/") { in_comment = 0; i++ } ; continue }
        if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
            continue
        }
        if (two == "/*") { in_comment = 1; i++; out = out " "; continue }
        if (two == "//") break
        if (c == "\"" || c == "\047") quote = c
        out = out c
    }
    quote = "" # neither runs over a line
    return out
}
FNR == 1 { finish_file(); file_name = FILENAME; in_comment = 0; quote = ""; start = 0; in_macro = 0 }
{
    lines = FNR
    code = strip($0)
    if (match(code, call)) {
        word = substr(code, RSTART, RLENGTH); gsub(/[^A-Za-z0-9_]/, "", word)
        complain(FNR, "banned call: " word)
    }
    if (code ~ /^[ \t]*#[ \t]*pragma[ \t]+omp/ || code ~ /_Pragma/ && $0 ~ /omp/) complain(FNR, "OpenMP pragma: threads come from our own pool")
    # A function is the stretch from a line that starts with `{` or ends a declaration with `{` to the next `}` at column 1,
    # which clang-format guarantees. Macros that hold a body are measured the same way, by their own lines.
    if (!start && code ~ /^[A-Za-z_].*\)[ \t]*\{[ \t]*$/) { start = FNR; title = code }
    else if (!start && code ~ /^\{[ \t]*$/) { start = FNR; title = before }
    else if (start && code ~ /^\}/) {
        if (FNR - start + 1 > 80) {
            sub(/[ \t]*\{[ \t]*$/, "", title)
            complain(start, "function of " (FNR - start + 1) " lines; at most 80: " title)
        }
        start = 0
    }
    if (code ~ /[^ \t]/) before = code
    if ($0 ~ /[ \t]$/) complain(FNR, "white space at the end of the line")
}
END { finish_file(); exit bad + 0 }
' $sources
