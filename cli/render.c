/* cli/render.c: results on the terminal and for machines.
 *
 * One grid of cells serves all forms: people get texts through libsmartcols (or as a Markdown table), csv and json get
 * raw values with every digit.
 */
#include <langinfo.h>
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "verb.h"

void tl_cli_prepare(tl_cli *cli) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM"), *columns = getenv("COLUMNS");
    struct winsize size;
    bool tty = isatty(STDOUT_FILENO) == 1;
    bool dumb = terminal && strcmp(terminal, "dumb") == 0;
    cli->paint =
        cli->color == TL_COLOR_ALWAYS || (cli->color == TL_COLOR_AUTO && tty && !dumb && !(no_color && no_color[0]));
    cli->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    cli->width = 80;
    if (tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        cli->width = size.ws_col;
    } else if (columns) {
        char *end;
        long wanted = strtol(columns, &end, 10);
        if (*columns && *end == '\0' && wanted > 0 && wanted < 10000)
            cli->width = (int)wanted;
    }
    if (cli->width < 40)
        cli->width = 40;
}

/* ---- json ----------------------------------------------------------------------------------------------------- */

tl_json *tl_cli_json_open(const tl_cli *cli) {
    tl_json *json = tl_json_new(tl_allocator_default(), 2);
    if (!json) {
        tl_say(cli, "out of memory");
        return NULL;
    }
    tl_json_object(json);
    tl_json_put_string(json, "schema", "tally/1");
    tl_json_put_string(json, "verb", cli->verb->name);
    return json;
}

int tl_cli_json_close(const tl_cli *cli, tl_json *json) {
    size_t length = 0;
    tl_json_end(json);
    if (cli->capture) {
        tl_json_free(cli->capture->json);
        cli->capture->json = json;
        return TL_EXIT_OK;
    }
    const char *text = tl_json_text(json, &length);
    if (text) {
        fwrite(text, 1, length, stdout);
        putchar('\n');
    } else {
        tl_say(cli, "out of memory while writing JSON");
    }
    int status = text ? TL_EXIT_OK : TL_EXIT_FAILED;
    tl_json_free(json);
    return status;
}

/* ---- grids ---------------------------------------------------------------------------------------------------- */

typedef enum cell_kind { CELL_NULL, CELL_STRING, CELL_INTEGER, CELL_UNSIGNED, CELL_REAL, CELL_BOOLEAN } cell_kind;

typedef struct tl_cell {
    cell_kind kind;
    int64_t integer;
    tl_u128 number;
    double real;
    bool boolean;
    char *text;  /* of strings */
    char *human; /* NULL: the raw value */
} tl_cell;

struct tl_grid {
    const tl_column *columns; /* borrowed */
    int n_columns;
    size_t n_cells, room;
    tl_cell *cells;
    bool failed; /* an allocation failed; printing says so */
};

tl_grid *tl_grid_new(const tl_column *columns, int n_columns) {
    tl_grid *grid = calloc(1, sizeof *grid);
    if (grid) {
        grid->columns = columns;
        grid->n_columns = n_columns;
    }
    return grid;
}

void tl_grid_free(tl_grid *grid) {
    if (!grid)
        return;
    for (size_t i = 0; i < grid->n_cells; i++) {
        free(grid->cells[i].text);
        free(grid->cells[i].human);
    }
    free(grid->cells);
    free(grid);
}

static void add(tl_grid *grid, tl_cell cell, const char *text, const char *human) {
    if (!grid || grid->failed)
        return;
    if (grid->n_cells == grid->room) {
        size_t room = grid->room ? grid->room * 2 : 64;
        tl_cell *cells = realloc(grid->cells, room * sizeof *cells);
        if (!cells) {
            grid->failed = true;
            return;
        }
        grid->cells = cells;
        grid->room = room;
    }
    cell.text = text ? strdup(text) : NULL;
    cell.human = human ? strdup(human) : NULL;
    if ((text && !cell.text) || (human && !cell.human))
        grid->failed = true;
    grid->cells[grid->n_cells++] = cell;
}

void tl_grid_string(tl_grid *grid, const char *text, const char *human) {
    add(grid, (tl_cell){.kind = text ? CELL_STRING : CELL_NULL}, text, human);
}
void tl_grid_integer(tl_grid *grid, int64_t value, const char *human) {
    add(grid, (tl_cell){.kind = CELL_INTEGER, .integer = value}, NULL, human);
}
void tl_grid_unsigned(tl_grid *grid, tl_u128 value, const char *human) {
    add(grid, (tl_cell){.kind = CELL_UNSIGNED, .number = value}, NULL, human);
}
void tl_grid_real(tl_grid *grid, double value, const char *human) {
    add(grid, (tl_cell){.kind = CELL_REAL, .real = value}, NULL, human);
}
void tl_grid_boolean(tl_grid *grid, bool value, const char *human) {
    add(grid, (tl_cell){.kind = CELL_BOOLEAN, .boolean = value}, NULL, human);
}
void tl_grid_null(tl_grid *grid) { add(grid, (tl_cell){.kind = CELL_NULL}, NULL, NULL); }

/* The raw value; for numbers in `buffer` (TL_TEXT bytes), for strings its own text. */
static const char *raw(const tl_cell *cell, char *buffer) {
    switch (cell->kind) {
    case CELL_NULL:
        return "";
    case CELL_STRING:
        return cell->text;
    case CELL_INTEGER:
        snprintf(buffer, TL_TEXT, "%lld", (long long)cell->integer);
        return buffer;
    case CELL_UNSIGNED:
        return tl_u128_text(cell->number, buffer);
    case CELL_REAL:
        return tl_text_exact(cell->real, buffer);
    case CELL_BOOLEAN:
        return cell->boolean ? "true" : "false";
    }
    return "";
}

static const char *human(const tl_cell *cell, char *buffer) {
    if (cell->human)
        return cell->human;
    return cell->kind == CELL_NULL ? "-" : raw(cell, buffer);
}

#define WIDE 100

static size_t n_rows(const tl_grid *grid) { return grid->n_cells / (size_t)grid->n_columns; }
static const tl_cell *cell_at(const tl_grid *grid, size_t row, int column) {
    return &grid->cells[row * (size_t)grid->n_columns + (size_t)column];
}

/* A column for people: it has a title, the terminal is wide enough, and something in it is known. */
static bool is_shown(const tl_cli *cli, const tl_grid *grid, int column) {
    const tl_column *c = &grid->columns[column];
    if (!c->title || (cli->format == TL_FORMAT_TABLE && c->wide && cli->width < WIDE))
        return false;
    for (size_t r = 0; r < n_rows(grid); r++)
        if (cell_at(grid, r, column)->kind != CELL_NULL)
            return true;
    return n_rows(grid) == 0;
}

/* RFC 4180. What a terminal would obey, or is no UTF-8, is written out as in tables: a csv is read there too. */
static void put_csv(const char *text) {
    const bool quote = text[strcspn(text, ",\"\n")] != '\0';
    char written[8];
    if (quote)
        putchar('"');
    for (int length; *text; text += length) {
        length = *text == '\t' ? 0 : tl_text_hidden(text, written);
        if (length) {
            fputs(written, stdout);
            continue;
        }
        length = tl_text_character(text);
        if (*text == '"')
            putchar('"');
        fwrite(text, 1, (size_t)length, stdout);
    }
    if (quote)
        putchar('"');
}

static void print_csv(const tl_grid *grid) {
    char buffer[TL_TEXT];
    for (int c = 0; c < grid->n_columns; c++)
        printf("%s%s", c ? "," : "", grid->columns[c].key);
    putchar('\n');
    for (size_t r = 0; r < n_rows(grid); r++) {
        for (int c = 0; c < grid->n_columns; c++) {
            if (c)
                putchar(',');
            put_csv(raw(cell_at(grid, r, c), buffer));
        }
        putchar('\n');
    }
}

static void put_md(const tl_cli *cli, const char *text) {
    char *safe = tl_text_shown(cli, text);
    for (const char *at = safe ? safe : text; *at; at++) {
        if (*at == '|')
            putchar('\\');
        putchar(*at == '\n' ? ' ' : *at);
    }
    free(safe);
}

static void print_md(const tl_cli *cli, const tl_grid *grid) {
    char buffer[TL_TEXT];
    for (int c = 0; c < grid->n_columns; c++)
        if (is_shown(cli, grid, c)) {
            fputs("| ", stdout);
            put_md(cli, grid->columns[c].title);
            putchar(' ');
        }
    fputs("|\n", stdout);
    for (int c = 0; c < grid->n_columns; c++)
        if (is_shown(cli, grid, c))
            fputs(grid->columns[c].right ? "|---:" : "|---", stdout);
    fputs("|\n", stdout);
    for (size_t r = 0; r < n_rows(grid); r++) {
        for (int c = 0; c < grid->n_columns; c++)
            if (is_shown(cli, grid, c)) {
                fputs("| ", stdout);
                put_md(cli, human(cell_at(grid, r, c), buffer));
                putchar(' ');
            }
        fputs("|\n", stdout);
    }
}

/* A cell has no lines: each newline is written out. Frees what it replaces; NULL when memory ran out. */
static char *in_one_line(char *text) {
    if (!strchr(text, '\n'))
        return text;
    char *line = malloc(4 * strlen(text) + 1), *to = line;
    for (const char *from = text; line && *from; from++) {
        const size_t n = *from == '\n' ? 4 : 1;
        memcpy(to, n == 1 ? from : "\\x0a", n);
        to += n;
    }
    if (line)
        *to = '\0';
    free(text);
    return line;
}

/* Adds the columns and rows to the smartcols table; false when memory ran out. */
static bool fill(const tl_cli *cli, const tl_grid *grid, struct libscols_table *table) {
    char buffer[TL_TEXT];
    int use[64], n = 0;
    for (int c = 0; c < grid->n_columns && n < 64; c++) {
        const tl_column *column = &grid->columns[c];
        if (!is_shown(cli, grid, c))
            continue;
        char *title = tl_text_shown(cli, column->title);
        int flags = (column->right ? SCOLS_FL_RIGHT : 0) | (column->wrap ? SCOLS_FL_WRAP : 0);
        struct libscols_column *made =
            title ? scols_table_new_column(table, title, column->wrap ? 0.1 : 0, flags) : NULL;
        if (made && cli->paint)
            scols_cell_set_color(scols_column_get_header(made), "\033[1m");
        free(title);
        if (!made)
            return false;
        use[n++] = c;
    }
    for (size_t r = 0; r < n_rows(grid); r++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        if (!line)
            return false;
        for (int i = 0; i < n; i++) {
            char *text = tl_text_shown(cli, human(cell_at(grid, r, use[i]), buffer));
            if (text)
                text = in_one_line(text);
            if (!text || scols_line_refer_data(line, (size_t)i, text) != 0) {
                free(text);
                return false;
            }
        }
    }
    return true;
}

static int print_table(const tl_cli *cli, const tl_grid *grid) {
    struct libscols_table *table = scols_new_table();
    char *text = NULL;
    bool done = table != NULL;
    if (done) {
        scols_table_set_termforce(table, SCOLS_TERMFORCE_ALWAYS);
        scols_table_set_termwidth(table, (size_t)cli->width);
        scols_table_enable_colors(table, cli->paint);
        scols_table_enable_ascii(table, !cli->utf8);
        scols_table_set_column_separator(table, "  ");
        scols_table_enable_noencoding(table, 1); /* tl_text_shown has: a second time would write out its backslashes */
        done = fill(cli, grid, table) && scols_print_table_to_string(table, &text) == 0;
    }
    for (char *line = text; done && line && *line;) { /* without the blanks at the ends of lines */
        size_t length = strcspn(line, "\n"), kept = length;
        while (kept && line[kept - 1] == ' ')
            kept--;
        fwrite(line, 1, kept, stdout);
        putchar('\n');
        line += length + (line[length] == '\n');
    }
    free(text);
    scols_unref_table(table);
    if (!done)
        tl_say(cli, "out of memory while drawing a table");
    return done ? TL_EXIT_OK : TL_EXIT_FAILED;
}

void tl_grid_json_row(const tl_grid *grid, int row, tl_json *json) {
    if (!grid || grid->failed || (size_t)row >= n_rows(grid))
        return;
    for (int c = 0; c < grid->n_columns; c++) {
        const tl_cell *cell = cell_at(grid, (size_t)row, c);
        tl_json_key(json, grid->columns[c].key);
        switch (cell->kind) {
        case CELL_NULL:
            tl_json_null(json);
            break;
        case CELL_STRING:
            tl_json_string(json, cell->text);
            break;
        case CELL_INTEGER:
            tl_json_integer(json, cell->integer);
            break;
        case CELL_UNSIGNED:
            tl_json_unsigned(json, cell->number);
            break;
        case CELL_REAL:
            tl_json_real(json, cell->real);
            break;
        case CELL_BOOLEAN:
            tl_json_boolean(json, cell->boolean);
            break;
        }
    }
}

static int print_json(const tl_cli *cli, const tl_grid *grid, const char *list_name) {
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_key(json, list_name);
    tl_json_array(json);
    for (size_t r = 0; r < n_rows(grid); r++) {
        tl_json_object(json);
        tl_grid_json_row(grid, (int)r, json);
        tl_json_end(json);
    }
    tl_json_end(json);
    return tl_cli_json_close(cli, json);
}

int tl_grid_print(const tl_cli *cli, const tl_grid *grid, const char *list_name) {
    if (!grid || grid->failed) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    switch (cli->format) {
    case TL_FORMAT_JSON:
        return print_json(cli, grid, list_name);
    case TL_FORMAT_CSV:
        print_csv(grid);
        return TL_EXIT_OK;
    case TL_FORMAT_MD:
        print_md(cli, grid);
        return TL_EXIT_OK;
    case TL_FORMAT_TABLE:
        break;
    }
    return print_table(cli, grid);
}

int tl_grid_print_record(const tl_cli *cli, const tl_grid *grid) {
    char buffer[TL_TEXT];
    if (!grid || grid->failed) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    if (cli->format != TL_FORMAT_MD)
        return tl_grid_print(cli, grid, "record");
    fputs("| what | value |\n|---|---:|\n", stdout);
    for (int c = 0; c < grid->n_columns; c++)
        if (grid->columns[c].title) {
            fputs("| ", stdout);
            put_md(cli, grid->columns[c].title);
            fputs(" | ", stdout);
            put_md(cli, human(cell_at(grid, 0, c), buffer));
            fputs(" |\n", stdout);
        }
    return TL_EXIT_OK;
}
