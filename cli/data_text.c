/* cli/data_text.c: tally data learn, encode and decode: a tokenizer from texts, and texts through one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"

enum { BLOCK = 1 << 16, SPECIALS = 32, FIRST_MERGES = 12 };

/* ---- reading ---- */

/* "-" is standard input. */
static tl_status read_text(const char *path, tl_token_text *text, tl_error *error) {
    static char block[BLOCK];
    const bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file)
        return tl_fail(error, TL_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    tl_status status = TL_OK;
    size_t n;
    while (status == TL_OK && (n = fread(block, 1, sizeof block, file)) > 0)
        status = tl_token_text_add(text, block, n, error);
    const int reason = errno;
    if (status == TL_OK && ferror(file))
        status = tl_fail(error, TL_ERR_IO, "cannot read %s: %s", standard ? "standard input" : path, strerror(reason));
    if (!standard)
        fclose(file);
    return status;
}

static int no_use(const tl_cli *cli, const char *action, int own, const char *name) {
    return cli->own[own] ? tl_usage(cli, "--%s changes nothing about %s", name, action) : TL_EXIT_OK;
}

/* ---- learn ----------------------------------------------------------------------------------------------------- */

typedef struct learning {
    const tl_cli *cli;
    const char *folder;
    int64_t vocab;
    char words[512];
    const char *specials[SPECIALS];
    size_t n_specials;
    tl_token_text text;
    tl_tokenizer *tokenizer;
} learning;

/* "<|endoftext|>,<|pad|>" */
static int read_specials(learning *l) {
    const char *text = l->cli->own[TL_DATA_SPECIAL];
    char *save = NULL;
    if (!text)
        text = "<|endoftext|>";
    if (strlen(text) >= sizeof l->words)
        return tl_usage(l->cli, "--special: %zu bytes of names are too many", strlen(text));
    snprintf(l->words, sizeof l->words, "%s", strcmp(text, "none") == 0 ? "" : text);
    for (char *word = strtok_r(l->words, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (l->n_specials == SPECIALS)
            return tl_usage(l->cli, "--special: %d of them at most", SPECIALS);
        l->specials[l->n_specials++] = word;
    }
    return TL_EXIT_OK;
}

/* One after the other; what separates documents stands between them, so that no token is learned across two files. */
static tl_status read_texts(learning *l, tl_error *error) {
    tl_status status = TL_OK;
    for (int i = 1; i < l->cli->n_arguments && status == TL_OK; i++) {
        if (i > 1 && l->n_specials)
            status = tl_token_text_add(&l->text, l->specials[0], strlen(l->specials[0]), error);
        if (status == TL_OK)
            status = read_text(l->cli->arguments[i], &l->text, error);
    }
    return status;
}

static void learned_json(const learning *l, tl_json *json) {
    const int64_t size = tl_tokenizer_size(l->tokenizer);
    char hash[TL_HASH_TEXT];
    tl_json_put_string(json, "action", "learn");
    tl_json_put_string(json, "path", l->folder);
    tl_json_put_integer(json, "vocab", size);
    tl_json_put_integer(json, "merges", size - 256 - (int64_t)l->n_specials);
    tl_json_key(json, "special");
    tl_json_array(json);
    for (size_t i = 0; i < l->n_specials; i++)
        tl_json_string(json, l->specials[i]);
    tl_json_end(json);
    tl_json_put_integer(json, "text_bytes", (int64_t)l->text.count);
    tl_json_put_string(json, "tokenizer_hash", tl_tokenizer_hash(l->tokenizer, hash));
}

/* Tokens as one would read them: "·the" for " the". */
static size_t put_token(const tl_cli *cli, const tl_tokenizer *tokenizer, int64_t id, char *text, size_t size) {
    size_t length = 0, at = 0;
    const char *bytes = tl_tokenizer_bytes(tokenizer, (int32_t)id, &length);
    const char *blank = cli->utf8 ? "\u00b7" : "_";
    for (size_t i = 0; bytes && i < length && at + 5 < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const int n = snprintf(text + at, size - at,
                               c == ' '             ? "%s"
                               : c > ' ' && c < 127 ? "%.0s%c"
                                                    : "%.0s\\x%02x",
                               blank, c);
        at += n > 0 ? (size_t)n : 0;
    }
    return at;
}

static int report_learned(const learning *l, double seconds) {
    const tl_cli *cli = l->cli;
    const int64_t size = tl_tokenizer_size(l->tokenizer), merges = size - 256 - (int64_t)l->n_specials;
    char digits[TL_TEXT], a[TL_TEXT], b[TL_TEXT], first[FIRST_MERGES * 24] = "", token[2048] = "";
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json)
            learned_json(l, json);
        return json ? tl_cli_json_close(cli, json) : TL_EXIT_FAILED;
    }
    char answer[64];
    snprintf(answer, sizeof answer, "%s tokens", tl_text_grouped((tl_u128)size, digits));
    tl_out_answer(cli, answer, "(byte-level BPE: 256 bytes, what was merged, special tokens)");
    tl_out_item(cli, "folder", "%s: vocab.json, merges.txt", l->folder);
    tl_out_item(cli, "text", "%s in %s", tl_text_bytes((double)l->text.count, cli->units, a),
                tl_text_duration(seconds, b));
    size_t at = 0, longest = 0;
    int64_t longest_id = 256;
    for (int64_t id = 256; id < 256 + merges; id++) {
        size_t length = 0;
        (void)tl_tokenizer_bytes(l->tokenizer, (int32_t)id, &length);
        if (length > longest) {
            longest = length;
            longest_id = id;
        }
        if (id < 256 + FIRST_MERGES && at + 24 < sizeof first) {
            at += (size_t)snprintf(first + at, sizeof first - at, at ? " " : "");
            at += put_token(cli, l->tokenizer, id, first + at, 20);
        }
    }
    if (merges) {
        tl_out_item(cli, "merges", "%lld, the first: %s", (long long)merges, first);
        (void)put_token(cli, l->tokenizer, longest_id, token, longest > 60 ? 64 : sizeof token);
        tl_out_item(cli, "longest", "%s%s, %zu bytes", token, longest > 60 ? "\xe2\x80\xa6" : "", longest);
    }
    if (l->n_specials)
        tl_out_item(cli, "special", "%s%s, id %lld%s", l->specials[0], l->n_specials > 1 ? " and others" : "",
                    (long long)(256 + merges), l->n_specials > 1 ? " and up" : "");
    if (size < l->vocab)
        tl_out_item(cli, "note", "%lld were asked for; the text has no pair left to merge", (long long)l->vocab);
    return TL_EXIT_OK;
}

static int learn(learning *l) {
    const tl_cli *cli = l->cli;
    tl_error error = {TL_OK, ""};
    int status = read_specials(l);
    if (status != TL_EXIT_OK)
        return status;
    if (read_texts(l, &error) != TL_OK)
        return tl_failed(cli, &error);
    const double begin = tl_seconds();
    l->tokenizer = tl_tokenizer_train(l->text.bytes, l->text.count, l->vocab, l->specials, l->n_specials, NULL, &error);
    const double seconds = tl_seconds() - begin;
    if (!l->tokenizer)
        return tl_failed(cli, &error);
    if (mkdir(l->folder, 0777) != 0 && errno != EEXIST) {
        tl_say(cli, "cannot make the folder %s: %s", l->folder, strerror(errno));
        return TL_EXIT_FAILED;
    }
    return tl_tokenizer_save(l->tokenizer, l->folder, &error) == TL_OK ? report_learned(l, seconds)
                                                                       : tl_failed(cli, &error);
}

int tl_data_learn(tl_cli *cli) {
    static learning l; /* zeroed */
    tl_error error = {TL_OK, ""};
    l.cli = cli;
    l.folder = cli->own[TL_DATA_OUTPUT];
    if (!l.folder || !l.folder[0])
        return tl_usage(cli, "learn needs -o FOLDER, where vocab.json and merges.txt go");
    if (!cli->own[TL_DATA_VOCAB])
        return tl_usage(cli, "learn needs --vocab N: how many tokens there are to be, 256 bytes among them");
    if (tl_parse_size(cli->own[TL_DATA_VOCAB], &l.vocab, &error) != TL_OK)
        return tl_usage(cli, "--vocab: %s", error.message);
    int status = no_use(cli, "learn", TL_DATA_TOKENIZER, "tokenizer");
    status = status ? status : no_use(cli, "learn", TL_DATA_SEPARATOR, "separator");
    status = status ? status : no_use(cli, "learn", TL_DATA_FORM, "form");
    status = status ? status : no_use(cli, "learn", TL_DATA_DTYPE, "dtype");
    status = status ? status : learn(&l);
    tl_token_text_free(&l.text);
    tl_tokenizer_free(l.tokenizer);
    return status;
}

/* ---- encode ---------------------------------------------------------------------------------------------------- */

static tl_grid *encoded_grid(const tl_tokenizer *tokenizer, const tl_token_list *ids) {
    static const tl_column columns[] = {{"position", "position", true, false, false},
                                        {"id", "id", true, false, false},
                                        {"token", "token", false, false, false}};
    tl_grid *grid = tl_grid_new(columns, 3);
    for (size_t i = 0; i < ids->count; i++) {
        char text[1024];
        size_t length = 0;
        const char *bytes = tl_tokenizer_bytes(tokenizer, ids->ids[i], &length);
        snprintf(text, sizeof text, "%.*s", (int)(length < 1023 ? length : 1023), bytes ? bytes : "");
        tl_grid_integer(grid, (int64_t)i, NULL);
        tl_grid_integer(grid, ids->ids[i], NULL);
        tl_grid_string(grid, text, NULL);
    }
    return grid;
}

/* Blanks between, lines of 80 columns at most. */
static void print_ids(const tl_token_list *ids) {
    int column = 0;
    for (size_t i = 0; i < ids->count; i++) {
        char text[16];
        const int n = snprintf(text, sizeof text, "%d", (int)ids->ids[i]);
        const bool turn = column && column + 1 + n > 80;
        printf("%s%s", column == 0 ? "" : turn ? "\n" : " ", text);
        column = turn || column == 0 ? n : column + 1 + n;
    }
    if (column)
        putchar('\n');
}

static int print_encoded(const tl_cli *cli, const tl_tokenizer *tokenizer, const tl_token_list *ids, size_t bytes) {
    if (cli->format == TL_FORMAT_TABLE) {
        print_ids(ids);
        if (fflush(stdout) == 0)
            return TL_EXIT_OK;
        tl_say(cli, "cannot write the ids: %s", strerror(errno));
        return TL_EXIT_FAILED;
    }
    if (cli->format != TL_FORMAT_JSON) {
        tl_grid *grid = encoded_grid(tokenizer, ids);
        const int status = tl_grid_print(cli, grid, "tokens");
        tl_grid_free(grid);
        return status;
    }
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "action", "encode");
    tl_json_put_integer(json, "tokens", (int64_t)ids->count);
    tl_json_put_integer(json, "text_bytes", (int64_t)bytes);
    tl_json_put_integer(json, "vocab", tl_tokenizer_size(tokenizer));
    tl_json_key(json, "ids");
    tl_json_array(json);
    for (size_t i = 0; i < ids->count; i++)
        tl_json_integer(json, ids->ids[i]);
    tl_json_end(json);
    return tl_cli_json_close(cli, json);
}

static int open_for(const tl_cli *cli, const char *action, tl_tokenizer **tokenizer) {
    tl_error error = {TL_OK, ""};
    int status = TL_EXIT_OK;
    if (cli->n_arguments != 2)
        return tl_usage(cli, "%s takes one argument, %d were given", action, cli->n_arguments - 1);
    if (!cli->own[TL_DATA_TOKENIZER])
        return tl_usage(cli, "%s needs --tokenizer PATH: a folder that learn made, a tokenizer.json, bytes", action);
    status = no_use(cli, action, TL_DATA_OUTPUT, "output");
    status = status ? status : no_use(cli, action, TL_DATA_SEPARATOR, "separator");
    status = status ? status : no_use(cli, action, TL_DATA_VOCAB, "vocab");
    if (status != TL_EXIT_OK)
        return status;
    *tokenizer = tl_tokenizer_open(cli->own[TL_DATA_TOKENIZER], NULL, &error);
    return *tokenizer ? TL_EXIT_OK : tl_failed(cli, &error);
}

int tl_data_encode(tl_cli *cli) {
    tl_error error = {TL_OK, ""};
    tl_special special = TL_SPECIAL_TEXT;
    tl_tokenizer *tokenizer = NULL;
    tl_token_text text = {0};
    tl_token_list ids = {0};
    int status = open_for(cli, "encode", &tokenizer);
    status = status ? status : no_use(cli, "encode", TL_DATA_FORM, "form");
    status = status ? status : no_use(cli, "encode", TL_DATA_DTYPE, "dtype");
    status = status ? status : tl_data_special(cli, &special);
    if (status == TL_EXIT_OK)
        status = read_text(cli->arguments[1], &text, &error) == TL_OK &&
                         tl_tokenizer_encode(tokenizer, text.bytes ? text.bytes : "", text.count, special, &ids,
                                             &error) == TL_OK
                     ? print_encoded(cli, tokenizer, &ids, text.count)
                     : tl_failed(cli, &error);
    tl_token_list_free(&ids);
    tl_token_text_free(&text);
    tl_tokenizer_free(tokenizer);
    return status;
}

/* ---- decode ---------------------------------------------------------------------------------------------------- */

static bool is_gap(char c) { return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r'; }

/* Numbers with blanks, commas or new lines between. */
static tl_status parse_ids(const tl_token_text *text, tl_token_list *ids, tl_error *error) {
    tl_status status = TL_OK;
    for (size_t i = 0; i < text->count && status == TL_OK;) {
        int64_t value = 0;
        size_t begin = i;
        if (is_gap(text->bytes[i])) {
            i++;
            continue;
        }
        for (; i < text->count && text->bytes[i] >= '0' && text->bytes[i] <= '9' && value <= INT32_MAX; i++)
            value = 10 * value + (text->bytes[i] - '0');
        if (i == begin || value > INT32_MAX || (i < text->count && !is_gap(text->bytes[i])))
            return tl_fail(error, TL_ERR_ARGUMENT, "\"%.*s\" is no token id (the one after %zu); \"1,2,3\" would work",
                           (int)(text->count - begin < 20 ? text->count - begin : 20), text->bytes + begin, ids->count);
        const int32_t id = (int32_t)value;
        status = tl_token_list_add(ids, &id, 1, error);
    }
    return status;
}

static tl_status read_token_file(const tl_cli *cli, const char *path, tl_token_list *ids, tl_error *error) {
    enum { PIECE = 4096 };
    int32_t piece[PIECE];
    tl_tokens_options options = {TL_TOKENS_ANY, 0};
    if (tl_data_options(cli, cli->own[TL_DATA_FORM], cli->own[TL_DATA_DTYPE], &options) != TL_EXIT_OK)
        return tl_fail(error, TL_ERR_ARGUMENT, "%s was not read", path);
    tl_tokens *tokens = tl_tokens_open(&path, 1, &options, NULL, error);
    tl_status status = tokens ? TL_OK : error->status;
    for (int64_t at = 0, n; status == TL_OK && at < tl_tokens_count(tokens); at += n) {
        n = tl_tokens_count(tokens) - at < PIECE ? tl_tokens_count(tokens) - at : PIECE;
        status = tl_tokens_read(tokens, at, n, 0, piece, error);
        if (status == TL_OK)
            status = tl_token_list_add(ids, piece, (size_t)n, error);
    }
    tl_tokens_close(tokens);
    return status;
}

/* "-", a file of tokens, a file of numbers, or the numbers themselves. */
static tl_status read_ids(const tl_cli *cli, const char *argument, tl_token_list *ids, tl_error *error) {
    struct stat st;
    const size_t n = strlen(argument);
    const bool standard = strcmp(argument, "-") == 0, file = !standard && stat(argument, &st) == 0;
    tl_token_text text = {0};
    if (file && n > 4 && (strcmp(argument + n - 4, ".bin") == 0 || strcmp(argument + n - 4, ".npy") == 0))
        return read_token_file(cli, argument, ids, error);
    tl_status status =
        standard || file ? read_text(argument, &text, error) : tl_token_text_add(&text, argument, n, error);
    if (status == TL_OK)
        status = parse_ids(&text, ids, error);
    tl_token_text_free(&text);
    return status;
}

static int print_decoded(const tl_cli *cli, const tl_token_list *ids, tl_token_text *text) {
    tl_error error = {TL_OK, ""};
    if (cli->format != TL_FORMAT_JSON) {
        if (fwrite(text->bytes ? text->bytes : "", 1, text->count, stdout) == text->count && fflush(stdout) == 0)
            return TL_EXIT_OK;
        tl_say(cli, "cannot write the text: %s", strerror(errno));
        return TL_EXIT_FAILED;
    }
    const size_t count = text->count;
    if (tl_token_text_add(text, "", 1, &error) != TL_OK) /* its end, for JSON */
        return tl_failed(cli, &error);
    if (memchr(text->bytes, '\0', count)) {
        tl_say(cli, "a text with a NUL byte is no JSON string here; without --json it is printed as it is");
        return TL_EXIT_FAILED;
    }
    tl_json *json = tl_cli_json_open(cli);
    if (!json)
        return TL_EXIT_FAILED;
    tl_json_put_string(json, "action", "decode");
    tl_json_put_integer(json, "tokens", (int64_t)ids->count);
    tl_json_put_integer(json, "text_bytes", (int64_t)count);
    tl_json_put_string(json, "text", text->bytes);
    return tl_cli_json_close(cli, json);
}

int tl_data_decode(tl_cli *cli) {
    tl_error error = {TL_OK, ""};
    tl_tokenizer *tokenizer = NULL;
    tl_token_list ids = {0};
    tl_token_text text = {0};
    int status = open_for(cli, "decode", &tokenizer);
    status = status ? status : no_use(cli, "decode", TL_DATA_SPECIAL, "special");
    if (status == TL_EXIT_OK && (cli->format == TL_FORMAT_MD || cli->format == TL_FORMAT_CSV))
        status = tl_usage(cli, "decode prints a text: --json or no format would work");
    if (status == TL_EXIT_OK)
        status = read_ids(cli, cli->arguments[1], &ids, &error) == TL_OK &&
                         tl_tokenizer_decode(tokenizer, ids.ids, ids.count, &text, &error) == TL_OK
                     ? print_decoded(cli, &ids, &text)
                     : tl_failed(cli, &error);
    tl_token_list_free(&ids);
    tl_token_text_free(&text);
    tl_tokenizer_free(tokenizer);
    return status;
}
