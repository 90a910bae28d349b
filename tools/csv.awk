# csv.awk: the part that every generator shares. Reads RFC 4180 records of one line each; # starts a comment line, and the first
# record names the columns. Sets field[] and count; column[] maps a name to its place. Any oddity ends the build with file:line.

function die(message) {
    printf "%s:%d: %s\n", FILENAME, FNR, message > "/dev/stderr"
    failed = 1
    exit 1
}

function split_record(line,    position, length_, character, quoted, text, was_quoted) {
    for (count in field) delete field[count]
    count = 0; position = 1; length_ = length(line)
    while (1) {
        text = ""; was_quoted = 0
        if (substr(line, position, 1) == "\"") {
            was_quoted = 1
            position++
            while (1) {
                if (position > length_) die("a quote is not closed")
                character = substr(line, position, 1)
                if (character == "\"") {
                    if (substr(line, position + 1, 1) == "\"") { text = text "\""; position += 2; continue }
                    position++
                    break
                }
                text = text character
                position++
            }
        } else {
            while (position <= length_ && (character = substr(line, position, 1)) != ",") {
                if (character == "\"") die("a quote inside a plain field")
                text = text character
                position++
            }
        }
        field[++count] = text
        if (position > length_) break
        if (substr(line, position, 1) != ",") die("text after a closing quote")
        position++
        if (position > length_) { field[++count] = ""; break }
    }
}

# 1 when the record holds data, 0 for comments, blank lines and the record that names the columns.
function read_record(    i) {
    sub(/\r$/, "")
    if (FNR == 1) columns = 0
    if ($0 ~ /^#/ || $0 == "") return 0
    split_record($0)
    if (columns == 0) {
        for (i in column) delete column[i]
        for (i = 1; i <= count; i++) column[field[i]] = i
        columns = count
        return 0
    }
    if (count != columns) die(count " fields where the header names " columns)
    return 1
}

function get(name) {
    if (!(name in column)) die("no column \"" name "\"")
    return field[column[name]]
}

# A C string literal. Control characters and backslashes have no business in these tables.
function literal(text) {
    if (text ~ /[\001-\037\177\\]/) die("a control character or a backslash in \"" text "\"")
    gsub(/"/, "\\\"", text)
    gsub(/\?\?/, "?\" \"?", text)
    return "\"" text "\""
}

# A decimal number with a power of ten put behind it as text, so that no digit passes through awk's doubles.
function scaled(name, exponent,    text) {
    text = get(name)
    if (text == "") return "0"
    if (text !~ /^[0-9]+(\.[0-9]+)?$/) die("\"" name "\" is \"" text "\", not a decimal number")
    return text exponent
}

function whole(name, suffix,    text) {
    text = get(name)
    if (text == "") return "0"
    if (text !~ /^(0|[1-9][0-9]*)$/ || length(text) > 18) die("\"" name "\" is \"" text "\", not a whole number")
    return "INT64_C(" text ")" suffix
}

function truth(name,    text) {
    text = get(name)
    if (text != "yes" && text != "no") die("\"" name "\" is \"" text "\"; it takes yes or no")
    return text == "yes" ? "true" : "false"
}
