/* bench/validate_table.c: comma-separated tables with a comment above the header. */
#include "validate.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool table_fail(const table *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%ld: ", t->path, t->line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return false;
}

/* One line into fields; quotes may hold commas and, doubled, quotes. */
static bool split(table *t, const char *at, char field[FIELDS][FIELD], int *count) {
    *count = 0;
    for (;;) {
        if (*count == FIELDS)
            return table_fail(t, "more than %d fields", FIELDS);
        char *to = field[(*count)++];
        size_t n = 0;
        bool quoted = *at == '"';
        at += quoted;
        for (; *at && (quoted || *at != ','); at++) {
            if (quoted && *at == '"' && *++at != '"')
                break;
            if (n + 1 == FIELD)
                return table_fail(t, "field %d is longer than %d bytes", *count, FIELD - 1);
            to[n++] = *at;
        }
        if (quoted && at[-1] != '"')
            return table_fail(t, "field %d has no closing quote", *count);
        to[n] = '\0';
        if (*at == '\0')
            return true;
        if (*at++ != ',')
            return table_fail(t, "field %d goes on behind its closing quote", *count);
    }
}

/* The next line that is neither empty nor a comment, without its end. */
static bool read_line(table *t, char line[LINE], bool *more) {
    while (fgets(line, LINE, t->file)) {
        t->line++;
        size_t n = strlen(line);
        if (n + 1 == LINE && line[n - 1] != '\n')
            return table_fail(t, "a line of more than %d bytes", LINE - 2);
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        if (n > 0 && line[0] != '#') {
            *more = true;
            return true;
        }
    }
    *more = false;
    return ferror(t->file) ? table_fail(t, "cannot be read on") : true;
}

bool table_open(table *t, const char *path) {
    char line[LINE];
    bool more = false;
    memset(t, 0, sizeof *t);
    t->path = path;
    t->file = fopen(path, "r");
    if (!t->file) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return false;
    }
    if (read_line(t, line, &more) && more && split(t, line, t->name, &t->columns))
        return true;
    if (!more)
        table_fail(t, "no header");
    table_close(t);
    return false;
}

bool table_next(table *t, bool *more) {
    char line[LINE];
    if (!read_line(t, line, more))
        return false;
    if (!*more)
        return true;
    if (!split(t, line, t->value, &t->fields))
        return false;
    if (t->fields != t->columns)
        return table_fail(t, "%d fields where the header has %d", t->fields, t->columns);
    return true;
}

void table_close(table *t) {
    if (t->file && fclose(t->file) != 0)
        table_fail(t, "cannot be closed");
    t->file = NULL;
}

static int column_of(const table *t, const char *column) {
    for (int i = 0; i < t->columns; i++)
        if (strcmp(t->name[i], column) == 0)
            return i;
    return -1;
}

const char *table_get(const table *t, const char *column) {
    int i = column_of(t, column);
    return i < 0 ? "" : t->value[i];
}

bool table_wants(const table *t, const char *const *columns, int n) {
    for (int i = 0; i < n; i++)
        if (column_of(t, columns[i]) < 0)
            return table_fail(t, "the header has no column \"%s\"", columns[i]);
    return true;
}

bool table_whole(const table *t, const char *column, int64_t *value) {
    const char *text = table_get(t, column);
    int digits = 0;
    *value = 0;
    for (const char *at = text; *at; at++) {
        if (*at == ',' && digits > 0)
            continue;
        if (*at < '0' || *at > '9' || ++digits > 15)
            return table_fail(t, "%s is \"%s\"; a whole number would work", column, text);
        *value = *value * 10 + (*at - '0');
    }
    return digits > 0 ? true : table_fail(t, "%s is \"%s\"; a whole number would work", column, text);
}

bool table_bytes(const table *t, const char *column, double unit, double *bytes) {
    const char *text = table_get(t, column);
    char *end = NULL;
    double number = strtod(text, &end);
    if (strcmp(end, " GB") == 0)
        unit = 1e9;
    else if (strcmp(end, " GiB") == 0)
        unit = 1024.0 * 1024 * 1024;
    else if (*end || unit == 0)
        return table_fail(t, "%s is \"%s\"; a number of GB or GiB would work", column, text);
    if (end == text || !(number > 0) || number > 1e6)
        return table_fail(t, "%s is \"%s\"; a number of GB or GiB would work", column, text);
    *bytes = number * unit;
    return true;
}
