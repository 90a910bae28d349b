/* cli/lines.c: lines for people, broken at the width of their terminal. Texts are written in UTF-8 and put into ASCII where the
 * locale has nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "verb.h"

/* What stands in for the few characters we use beyond ASCII. */
static const struct {
    const char *utf8, *ascii;
} stand_ins[] = {{"·", "*"},  {"×", "x"},  {"→", "->"},  {"≥", ">="},    {"≤", "<="}, {"…", "..."}, {"²", "^2"},
                 {"³", "^3"}, {"—", "-"},  {"–", "-"},   {"±", "+-"},    {"≈", "~"},  {"÷", "/"},   {"µ", "u"},
                 {"−", "-"},  {"ᵀ", "^T"}, {"½", "1/2"}, {"σ", "sigma"}, {"ö", "o"},  {"é", "e"},   {"⊙", "*"}};

char *tl_text_shown(const tl_cli *cli, const char *text) {
    size_t size = strlen(text) * 4 + 1, at = 0;
    char *result = malloc(size);
    if (!result)
        return NULL;
    while (*text) {
        unsigned char first = (unsigned char)*text;
        char written[8];
        int hidden = tl_text_hidden(text, written);
        if (hidden) {
            text += hidden;
            at += (size_t)snprintf(result + at, size - at, "%s", written);
            continue;
        }
        if (first < 128) {
            result[at++] = *text++;
            continue;
        }
        if (cli->utf8) { /* the whole of it: what follows its first byte is no character of its own */
            for (int length = tl_text_character(text); length > 0; length--)
                result[at++] = *text++;
            continue;
        }
        const char *ascii = "?";
        size_t length = 1;
        while (((unsigned char)text[length] & 0xC0) == 0x80)
            length++;
        for (size_t i = 0; i < sizeof stand_ins / sizeof stand_ins[0]; i++)
            if (strlen(stand_ins[i].utf8) == length && memcmp(stand_ins[i].utf8, text, length) == 0)
                ascii = stand_ins[i].ascii;
        memcpy(result + at, ascii, strlen(ascii)); /* at most 5 for 2 bytes: within three times the text */
        at += strlen(ascii);
        text += length;
    }
    result[at] = '\0';
    return result;
}

static void put(const tl_cli *cli, const char *text) {
    char *safe = tl_text_shown(cli, text);
    fputs(safe ? safe : text, stdout);
    free(safe);
}

void tl_out(const tl_cli *cli, const char *format, ...) {
    char text[4608];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(cli, text);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* May the line break at the space before `at`? Not between a number and its unit, nor around a stroke of a formula. */
static bool may_break(const char *text, const char *at) {
    if (at - text < 2)
        return false;
    char before = at[-2];
    bool unit = is_digit(before) && (strcspn(at, " ") <= 7) && !is_digit(*at) && *at != '(' && *at != '=';
    bool colon = before == ':' && at - text > 2 && is_digit(at[-3]);
    return !unit && !colon && before != '/' && !(at[0] == '/' && at[1] == ' ');
}

/* Breaks `text` at spaces so that lines end before the width; later lines begin at `indent`. A newline in the text is a
 * space where all of it fits on the line, else the break wanted most. */
static void put_wrapped(const tl_cli *cli, const char *text, int column, int indent) {
    char *safe = tl_text_shown(cli, text);
    const char *all = safe ? safe : text, *at = all;
    bool fits = column + tl_text_columns(all, strlen(all)) < cli->width;
    while (*at) {
        size_t spaces = strspn(at, " "), length = strcspn(at + spaces, " \n");
        const char *end = at + spaces + length;
        while (*end == ' ' && end[1] && end[1] != ' ' && !may_break(all, end + 1)) /* what must stay together */
            end += 1 + strcspn(end + 1, " \n");
        int wide = tl_text_columns(at + spaces, (size_t)(end - at) - spaces);
        if (column > indent && column + (int)spaces + wide > cli->width - 1) {
            printf("\n%*s", indent, "");
            column = indent;
        } else {
            printf("%*s", (int)spaces, "");
            column += (int)spaces;
        }
        fwrite(at + spaces, 1, (size_t)(end - at) - spaces, stdout);
        column += wide;
        at = end;
        if (*at == '\n') {
            at++;
            if (fits)
                putchar(' ');
            else
                printf("\n%*s", indent, "");
            column = fits ? column + 1 : indent;
        }
    }
    putchar('\n');
    free(safe);
}

void tl_out_wrapped(const tl_cli *cli, int indent, const char *left, const char *text) {
    put(cli, left);
    int column = tl_text_columns(left, strlen(left));
    if (column && column >= indent) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", indent - column, "");
    put_wrapped(cli, text, indent, indent);
}

void tl_out_answer(const tl_cli *cli, const char *answer, const char *rest) {
    char *safe = tl_text_shown(cli, answer);
    printf("%s%s%s", cli->paint ? "\033[1m" : "", safe ? safe : answer, cli->paint ? "\033[0m" : "");
    free(safe);
    if (rest) {
        fputs("   ", stdout);
        put_wrapped(cli, rest, tl_text_columns(answer, strlen(answer)) + 3, 3);
    } else {
        putchar('\n');
    }
}

#define LABEL 10 /* the widest of our labels */

void tl_out_item(const tl_cli *cli, const char *label, const char *format, ...) {
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int length = tl_text_columns(label, strlen(label)), pad = length < LABEL ? LABEL - length : 0;
    printf("  %s", cli->paint ? "\033[2m" : "");
    put(cli, label);
    printf("%s%*s ", cli->paint ? "\033[0m" : "", pad, "");
    put_wrapped(cli, text, 2 + length + pad + 1, 2 + LABEL + 1);
}
