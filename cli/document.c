/* cli/document.c: accounts by path. */
#include "document.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WORDS = 64, LINE = 4096, PATH = 160, DEPTH = 6 };

void tl_document_close(tl_document *d) {
    tl_run_file_free(d->file);
    memset(d, 0, sizeof *d);
}

int tl_document_make(const tl_cli *cli, int argc, char **argv, tl_document *d, char said[1024]) {
    tl_capture capture = {NULL, ""};
    tl_error error = {TL_OK, ""};
    tl_cli *inner = calloc(1, sizeof *inner); /* too large for the stack */
    size_t length = 0;
    int status = TL_EXIT_FAILED;
    memset(d, 0, sizeof *d);
    if (!inner) {
        tl_say(cli, "out of memory");
        return TL_EXIT_FAILED;
    }
    *inner = (tl_cli){.program = cli->program,
                      .verb = tl_verb_find(argv[0]),
                      .format = TL_FORMAT_JSON,
                      .units = cli->units,
                      .verbosity = -1,
                      .width = cli->width,
                      .capture = &capture};
    status = tl_cli_parse(inner, argc, argv);
    if (status == TL_EXIT_OK && !inner->help)
        status = inner->verb->run(inner);
    const char *text = capture.json ? tl_json_text(capture.json, &length) : NULL;
    if ((status == TL_EXIT_OK || status == TL_EXIT_VIOLATED) && text) {
        char *copy = malloc(length + 1);
        if (copy) {
            memcpy(copy, text, length + 1);
            d->file = tl_run_file_parse(copy, length, argv[0], &error);
            free(copy);
        }
        d->status = status;
        if (!d->file) {
            status = TL_EXIT_FAILED;
            snprintf(capture.said, sizeof capture.said, "%.900s", error.message[0] ? error.message : "out of memory");
        }
    } else if (status == TL_EXIT_OK || status == TL_EXIT_VIOLATED)
        status = TL_EXIT_FAILED;
    if (!d->file && said)
        snprintf(said, 1024, "%s", capture.said);
    else if (!d->file)
        tl_say(cli, "%s", capture.said[0] ? capture.said : "it gave no account");
    tl_json_free(capture.json);
    free(inner);
    return status;
}

/* ---- a command line in one word ---- */

/* Splits as a shell would: blanks part words, quotes and \ keep them. False: a quote is open. */
static bool split(char *line, char **argv, int most, int *argc) {
    char *from = line, *to = line;
    while (*from) {
        while (*from == ' ' || *from == '\t' || *from == '\n')
            from++;
        if (!*from)
            break;
        if (*argc == most)
            return false;
        argv[(*argc)++] = to;
        char quote = '\0';
        for (; *from && (quote || !strchr(" \t\n", *from)); from++) {
            if (quote && *from == quote)
                quote = '\0';
            else if (!quote && (*from == '\'' || *from == '"'))
                quote = *from;
            else if (*from == '\\' && quote != '\'' && from[1])
                *to++ = *++from;
            else
                *to++ = *from;
        }
        if (quote)
            return false;
        bool more = *from != '\0';
        *to++ = '\0';
        from += more;
    }
    return true;
}

static int make_plan(const tl_cli *cli, const char *what, tl_document *d) {
    static char verb[] = "plan";
    char *words[WORDS], *line = malloc(LINE), **argv = words;
    int argc = 1, status;
    words[0] = verb;
    if (!line || strlen(what) >= LINE) {
        free(line);
        return tl_usage(cli, "a command line of more than %d bytes", LINE - 1);
    }
    snprintf(line, LINE, "%s", what);
    if (!split(line, words, WORDS, &argc)) {
        free(line);
        return tl_usage(cli, "\"%.200s\": a quote is open, or there are more than %d words", what, WORDS - 1);
    }
    if (argc > 1 && strcmp(argv[1], "tally") == 0)
        argv++, argc--;
    if (argc > 1 && strcmp(argv[1], "plan") == 0)
        argv++, argc--;
    argv[0] = verb;
    status = argc > 1 ? tl_document_make(cli, argc, argv, d, NULL)
                      : tl_usage(cli,
                                 "\"%.200s\" names no plan: a run's folder, a file of `tally --json plan', or a plan's "
                                 "command line in quotes would do",
                                 what);
    free(line);
    snprintf(d->title, sizeof d->title, "%.199s", what);
    return status;
}

/* ---- files ---- */

static bool is_json_object(const char *path) {
    char head[64];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(head, 1, sizeof head, f) : 0, i = 0;
    if (f)
        (void)fclose(f);
    if (n > 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0) /* some editors put the byte order mark there */
        i = 3;
    while (i < n && strchr(" \t\r\n", head[i]))
        i++;
    return i < n && head[i] == '{';
}

static int open_file(const tl_cli *cli, const char *path, const char *title, bool is_run, tl_document *d) {
    tl_error error = {TL_OK, ""};
    d->file = tl_run_file_read(path, &error);
    if (!d->file)
        return tl_failed(cli, &error);
    d->is_run = is_run;
    snprintf(d->title, sizeof d->title, "%.199s", title);
    return TL_EXIT_OK;
}

/* Of what a later version or another verb wrote, a path that is missing would say nothing. */
static bool is_plan(const tl_cli *cli, tl_document *d) {
    char schema[64] = "", verb[64] = "";
    tl_error error = {TL_OK, ""};
    bool ok = tl_run_file_typed(d->file, "schema", schema, sizeof schema, &error) == TL_OK &&
              tl_run_file_typed(d->file, "verb", verb, sizeof verb, &error) == TL_OK;
    if (ok && strcmp(schema, "tally/1") == 0 && strcmp(verb, "plan") == 0)
        return true;
    if (!ok)
        tl_say(cli, "%s", error.message);
    else
        tl_say(
            cli,
            "%.200s: is of schema \"%s\" and verb \"%s\"; \"tally/1\" and \"plan\" are what `tally --json plan' writes",
            d->title, schema, verb);
    tl_document_close(d);
    return false;
}

int tl_document_open(const tl_cli *cli, const char *what, tl_document *d) {
    struct stat about;
    char path[LINE];
    memset(d, 0, sizeof *d);
    if (stat(what, &about) != 0)
        return make_plan(cli, what, d);
    if (S_ISDIR(about.st_mode)) {
        if (snprintf(path, sizeof path, "%s/ledger.json", what) < (int)sizeof path && stat(path, &about) == 0)
            return open_file(cli, path, what, true, d);
        return make_plan(cli, what, d); /* a model's folder */
    }
    if (!S_ISREG(about.st_mode) || !is_json_object(what))
        return make_plan(cli, what, d);
    int status = open_file(cli, what, what, false, d);
    if (status == TL_EXIT_OK && tl_run_file_has(d->file, "schema"))
        return is_plan(cli, d) ? status : TL_EXIT_FAILED;
    if (status != TL_EXIT_OK)
        return status;
    if (tl_run_file_has(d->file, "peak_bytes.planned")) {
        d->is_run = true;
        return status;
    }
    tl_document_close(d); /* a config.json, it may be */
    return make_plan(cli, what, d);
}

/* ---- values ---- */

static bool walk(const tl_document *d, char path[PATH], int depth, tl_document_each_leaf *each, void *user) {
    tl_run_value kind = tl_run_file_kind(d->file, path);
    size_t n = strlen(path);
    if (kind == TL_RUN_NUMBER || kind == TL_RUN_FLAG || kind == TL_RUN_TEXT)
        return each(user, path, kind);
    if (kind != TL_RUN_OBJECT || depth == DEPTH)
        return true;
    const char *key;
    for (int64_t i = 0; (key = tl_run_file_key(d->file, path, i)) != NULL; i++) {
        if (n + strlen(key) + 2 > PATH || strchr(key, '.'))
            continue;
        snprintf(path + n, PATH - n, "%s%s", n ? "." : "", key);
        bool on = walk(d, path, depth + 1, each, user);
        path[n] = '\0';
        if (!on)
            return false;
    }
    return true;
}

bool tl_document_each(const tl_document *d, tl_document_each_leaf *each, void *user) {
    char path[PATH] = "";
    return walk(d, path, 0, each, user);
}

typedef struct seeker {
    const char *wanted;
    const char *list[512];
    int n;
    char pool[512 * 48];
    size_t used;
} seeker;

static bool gather(void *user, const char *path, tl_run_value kind) {
    seeker *s = user;
    size_t n = strlen(path) + 1;
    (void)kind;
    if (s->n < 511 && s->used + n <= sizeof s->pool) {
        memcpy(s->pool + s->used, path, n);
        s->list[s->n++] = s->pool + s->used;
        s->used += n;
    }
    return true;
}

const char *tl_document_nearest(const tl_document *d, const char *path, char buffer[160]) {
    seeker *s = calloc(1, sizeof *s);
    const char *found = NULL, *last = strrchr(path, '.');
    if (!s)
        return NULL;
    tl_document_each(d, gather, s);
    last = last ? last + 1 : path;
    for (int i = 0; i < s->n && !found; i++) { /* the right name in another place is likelier than a slip of a letter */
        const char *own = strrchr(s->list[i], '.');
        if (strcmp(own ? own + 1 : s->list[i], last) == 0)
            found = s->list[i];
    }
    const char *whole = found ? NULL : tl_nearest_of(path, s->list);
    for (int i = 0; i < s->n && !found && !whole; i++) {
        const char *own = strrchr(s->list[i], '.'), *one[] = {own ? own + 1 : s->list[i], NULL};
        if (tl_nearest_of(last, one))
            found = s->list[i];
    }
    if (!found)
        found = whole;
    if (found)
        snprintf(buffer, 160, "%s", found);
    free(s);
    return found ? buffer : NULL;
}

static bool ends(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* "memory.by_category.param" and "memory.by_phase.loss" hold bytes, as does all that ends so. */
bool tl_document_is_bytes(const char *path) {
    return strstr(path, "bytes") || strstr(path, "by_category.") || strstr(path, "by_phase.") ||
           strstr(path, "moments.") || strstr(path, ".outside.");
}

const char *tl_document_text(const tl_cli *cli, const char *path, double value, char text[TL_TEXT]) {
    const char *sign = value < 0 ? "-" : "";
    char plain[TL_TEXT];
    double size = fabs(value);
    if (isnan(value))
        return "-";
    if (tl_document_is_bytes(path))
        snprintf(text, TL_TEXT, "%s%.50s", sign, tl_text_bytes(size, cli->units, plain));
    else if (strstr(path, "flop") && size >= 1e3) {
        static const char letters[] = " kMGTPEZY";
        int k = 0;
        while (size >= 1e3 && k < 8)
            size /= 1e3, k++;
        snprintf(text, TL_TEXT, "%s%.4g %c", sign, size, letters[k]);
    } else if (ends(path, "seconds") || strstr(path, "time.parts."))
        snprintf(text, TL_TEXT, "%s%.50s", sign, tl_text_duration(size, plain));
    else if (ends(path, "mfu") || ends(path, "hfu"))
        snprintf(text, TL_TEXT, "%.1f %%", 100 * value);
    else if (size < 1e5 && size == floor(size))
        snprintf(text, TL_TEXT, "%.0f", value);
    else if (size >= 1e4)
        snprintf(text, TL_TEXT, "%s%.50s", sign, tl_text_count(size, plain));
    else
        snprintf(text, TL_TEXT, "%.4g", value);
    return text;
}
