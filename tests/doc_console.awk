# doc_console.awk: runs the commands of a page's ```console blocks and compares what they print with what the page says.
#
#   awk -v mode=check -v work=DIR -f doc_console.awk PAGE      one "ok" or "not ok" line a command
#   awk -v mode=update -v work=DIR -f doc_console.awk PAGE     the page with what the commands print now
#
# In a block a line "$ COMMAND" is a command (a backslash at its end joins the next line); the lines up to the next one are
# what it prints on both streams, and "[exit N]" after them where it does not succeed. A line "…" stands for any lines: such
# an answer is checked around it and left alone by an update. A block "```console once" is not run: measured figures in it
# are another machine's.
function run(   line, status) {
    printf "%s\n", command >(work "/command")
    close(work "/command")
    system("sh " work "/command >" work "/out 2>&1 </dev/null; echo $? >" work "/status")
    n_got = 0
    while ((getline line < (work "/out")) > 0) got[++n_got] = line
    close(work "/out")
    getline status < (work "/status")
    close(work "/status")
    if (status != 0) got[++n_got] = "[exit " status "]"
}
# Expected lines from..to stand at got[at]?
function stands(from, to, at,   i) {
    for (i = from; i <= to; i++)
        if (at + i - from > n_got || want[i] != got[at + i - from]) return 0
    return 1
}
function agrees(   at, from, to, first) {
    at = 1
    from = 1
    first = 1
    while (1) {
        to = from
        while (to <= n_want && want[to] != "…") to++
        # want[from .. to-1] is one run of lines; the last one stands at the end.
        if (to > n_want) at = first ? 1 : n_got - (n_want - from)
        if (first || to > n_want) {
            if (!stands(from, to - 1, at)) return 0
            if (to > n_want) return at + to - from == n_got + 1
        } else {
            while (at <= n_got && !stands(from, to - 1, at)) at++
            if (at > n_got) return 0
        }
        at += to - from
        from = to + 1
        first = 0
        if (from > n_want) return 1
    }
}
function finish(   i, elided) {
    if (command == "") return
    for (i = 1; i <= n_want; i++) elided = elided || want[i] == "…"
    if (mode == "update") {
        print shown
        if (elided)
            for (i = 1; i <= n_want; i++) print want[i]
        # Later commands may need what this one leaves behind.
        run()
        if (!elided)
            for (i = 1; i <= n_got; i++) print got[i]
    } else {
        run()
        if (agrees()) print "ok " page ": " title
        else {
            for (i = 1; i <= n_got; i++) print "# " got[i]
            print "not ok " page ":" line_of ": " title
        }
    }
    command = ""
}
FNR == 1 { page = FILENAME; sub(/.*\//, "", page) }
/^```/ {
    if (inside) finish()
    inside = !inside && $0 == "```console"
    if (mode == "update") print
    continued = 0
    next
}
inside && continued {
    command = command "\n" $0
    shown = shown "\n" $0
    continued = /\\$/
    next
}
inside && /^\$ / {
    finish()
    command = substr($0, 3)
    shown = $0
    title = command
    line_of = FNR
    n_want = 0
    continued = /\\$/
    next
}
inside && command != "" { want[++n_want] = $0; next }
mode == "update" { print }
