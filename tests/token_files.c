/* token_files.c: small files of tokens in a folder of their own, for tests. */
#include "token_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char token_folder[64], token_paths[8][160];

int token_folder_make(void **state) {
    (void)state;
    snprintf(token_folder, sizeof token_folder, "/tmp/tally-tokens-XXXXXX");
    return mkdtemp(token_folder) ? 0 : -1;
}

static int take_away(const char *path, const struct stat *about, int kind, struct FTW *where) {
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

int token_folder_clear(void **state) {
    (void)state;
    return nftw(token_folder, take_away, 8, FTW_DEPTH | FTW_PHYS);
}

const char *put(int slot, const char *name, const void *data, size_t bytes) {
    snprintf(token_paths[slot], sizeof token_paths[slot], "%s/%s", token_folder, name);
    FILE *file = fopen(token_paths[slot], "wb");
    assert_non_null(file);
    assert_true(bytes == 0 || fwrite(data, 1, bytes, file) == bytes);
    assert_int_equal(fclose(file), 0);
    return token_paths[slot];
}

const char *put_text(int slot, const char *name, const char *text) { return put(slot, name, text, strlen(text)); }

tl_tokens *open_one(const char *path, tl_token_form form, int width, tl_error *error) {
    tl_tokens_options options = {form, width};
    *error = (tl_error){TL_OK, ""};
    return tl_tokens_open(&path, 1, &options, NULL, error);
}

tl_tokens *opened(const char *path, int width) {
    tl_error error;
    tl_tokens *t = open_one(path, TL_TOKENS_ANY, width, &error);
    if (!t)
        print_error("%s\n", error.message);
    assert_non_null(t);
    return t;
}

void says(const tl_error *error, const char *words) {
    if (!strstr(error->message, words))
        print_error("\"%s\" does not say \"%s\"\n", error->message, words);
    assert_non_null(strstr(error->message, words));
}

const char *counting(int slot, const char *name, int64_t n) {
    uint32_t *ids = malloc((size_t)(n ? n : 1) * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (uint32_t)i;
    put(slot, name, ids, (size_t)n * 4);
    free(ids);
    return token_paths[slot];
}
