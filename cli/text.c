/* cli/text.c: what goes to stderr, nearest names, and numbers as text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "verb.h"

/* U+0080 to U+009F too: U+009B begins a sequence as ESC [ does. */
int tl_text_control(const char *text) {
    unsigned char first = (unsigned char)text[0], second = first ? (unsigned char)text[1] : 0;
    if (first == 0xC2 && second >= 0x80 && second < 0xA0)
        return 2;
    return (first > 0 && first < ' ' && first != '\n') || first == 127;
}

/* Bytes of the UTF-8 character at `s`, which is not at the text's end; 0: there is none (The Unicode Standard, table 3-7). */
static int character(const unsigned char *s) {
    int length = s[0] < 0x80                    ? 1
                 : s[0] >= 0xC2 && s[0] <= 0xDF ? 2
                 : s[0] >= 0xE0 && s[0] <= 0xEF ? 3
                 : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                                : 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    bool wrong = length > 2 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
                                (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F));
    return wrong ? 0 : length;
}

int tl_text_character(const char *text) {
    int length = *text ? character((const unsigned char *)text) : 1;
    return length ? length : 1;
}

int tl_text_hidden(const char *text, char written[8]) {
    const unsigned char *s = (const unsigned char *)text;
    int control = tl_text_control(text), length = *text ? character(s) : 1;
    if (control || length == 0) {
        snprintf(written, 8, "\\x%02x", s[control > 1]);
        return control ? control : 1;
    }
    if (length != 3 || s[0] != 0xE2)
        return 0;
    unsigned code = 0x2000u | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    bool turns =
        code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    snprintf(written, 8, "\\u%04x", code);
    return turns ? length : 0;
}

/* Arguments come from anyone: what would move the cursor or ring the bell is written out. */
static void put_safely(FILE *file, const char *text, size_t length) {
    char written[8];
    int step;
    for (const char *end = text + length; text < end; text += step) {
        step = tl_text_hidden(text, written);
        if (step) {
            fputs(written, file);
        } else {
            step = tl_text_character(text);
            fwrite(text, 1, (size_t)step, file);
        }
    }
}

/* Columns to keep to on stderr: a terminal's, so that it breaks no word; 0 into a file, where a message is one line. */
static int columns_to_keep(void) {
    struct winsize size;
    if (isatty(STDERR_FILENO) != 1 || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 40)
        return 0;
    return size.ws_col;
}

int tl_text_columns(const char *text, size_t length) {
    int n = 0;
    for (size_t i = 0; i < length; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Word by word from `column` on, later lines two in. */
static void put_words(const char *text, int column, int width) {
    while (*text) {
        size_t blanks = strspn(text, " "), length = strcspn(text + blanks, " ");
        int wide = tl_text_columns(text + blanks, length);
        if (width && column > 2 && column + (int)blanks + wide >= width) {
            fputs("\n  ", stderr);
            column = 2;
        } else {
            fprintf(stderr, "%*s", (int)blanks, "");
            column += (int)blanks;
        }
        put_safely(stderr, text + blanks, length);
        column += wide;
        text += blanks + length;
    }
}

static void say(const tl_cli *cli, const char *format, va_list args) {
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    if (cli->capture) {
        if (!cli->capture->said[0])
            snprintf(cli->capture->said, sizeof cli->capture->said, "%.1000s", text);
        return;
    }
    int column = fprintf(stderr, "%s%s%s: ", cli->program, cli->verb ? " " : "", cli->verb ? cli->verb->name : "");
    put_words(text, column, strchr(text, '\n') ? 0 : columns_to_keep()); /* a drawing keeps its lines */
    fputc('\n', stderr);
}

void tl_say(const tl_cli *cli, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(cli, format, args);
    va_end(args);
}

void tl_note(const tl_cli *cli, const char *format, ...) {
    if (cli->verbosity < 0 || cli->capture)
        return;
    va_list args;
    va_start(args, format);
    say(cli, format, args);
    va_end(args);
}

int tl_usage(const tl_cli *cli, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(cli, format, args);
    va_end(args);
    if (cli->verbosity >= 0 && !cli->capture)
        fprintf(stderr, "Try `%s%s%s --help'.\n", cli->program, cli->verb ? " " : "", cli->verb ? cli->verb->name : "");
    return TL_EXIT_USAGE;
}

int tl_failed(const tl_cli *cli, const tl_error *error) {
    tl_say(cli, "%s", error->message);
    switch (error->status) {
    case TL_ERR_ARGUMENT:
    case TL_ERR_NOT_FOUND:
    case TL_ERR_UNSUPPORTED:
        return TL_EXIT_USAGE;
    default:
        return TL_EXIT_FAILED;
    }
}

/* Edits (insert, delete, replace, swap of neighbours) between two short words; Damerau's optimal string alignment. */
#define WORD 40
static int distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    int d[WORD + 1][WORD + 1];
    if (n > WORD || m > WORD)
        return WORD;
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (int)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

static void consider(const char *name, const char *candidate, const char **best, int *least) {
    int edits = distance(name, candidate);
    if (strlen(name) >= 3 && strncmp(candidate, name, strlen(name)) == 0)
        edits = 1; /* the beginning of a name is near it */
    int allowed = (int)(strlen(name) + 2) / 3;
    if (edits <= allowed && edits < *least) {
        *least = edits;
        *best = candidate;
    }
}

const char *tl_nearest(const char *name, const char *(*at)(int index), int n) {
    const char *best = NULL;
    int least = WORD;
    for (int i = 0; i < n; i++)
        consider(name, at(i), &best, &least);
    return best;
}

const char *tl_nearest_of(const char *name, const char *const *names) {
    const char *best = NULL;
    int least = WORD;
    for (int i = 0; names[i]; i++)
        consider(name, names[i], &best, &least);
    return best;
}

char *tl_text_plain(double value, int digits, char *buffer) {
    snprintf(buffer, TL_TEXT, "%.*f", digits, value);
    if (strchr(buffer, '.')) {
        char *end = buffer + strlen(buffer);
        while (end[-1] == '0')
            *--end = '\0';
        if (end[-1] == '.')
            end[-1] = '\0';
    }
    return buffer;
}

char *tl_text_exact(double value, char *buffer) {
    buffer[0] = '\0';
    if (!isfinite(value))
        return buffer;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, TL_TEXT, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    return buffer;
}

char *tl_text_money(double amount, char *buffer) {
    char count[TL_TEXT];
    if (amount < 1000)
        snprintf(buffer, TL_TEXT, "$%.2f", amount);
    else
        snprintf(buffer, TL_TEXT, "$%.62s", tl_text_count(amount, count));
    return buffer;
}

void tl_notes_add(tl_notes *notes, const char *format, ...) {
    if (notes->n >= (int)(sizeof notes->text / sizeof notes->text[0]))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(notes->text[notes->n++], sizeof notes->text[0], format, args);
    va_end(args);
}

void tl_notes_json(tl_json *json, const char *key, const tl_notes *notes) {
    tl_json_key(json, key);
    tl_json_array(json);
    for (int i = 0; i < notes->n; i++)
        tl_json_string(json, notes->text[i]);
    tl_json_end(json);
}

void tl_notes_out(const tl_cli *cli, const char *label, const tl_notes *notes) {
    char text[12 * 226 + 1] = "";
    size_t at = 0;
    for (int i = 0; i < notes->n && at < sizeof text; i++) {
        int n = snprintf(text + at, sizeof text - at, "%s%s", i ? "; " : "", notes->text[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (notes->n)
        tl_out_item(cli, label, "%s", text);
}
