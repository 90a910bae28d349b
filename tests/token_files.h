/* token_files.h: small files of tokens in a folder of their own, for tests. */
#ifndef TALLY_TESTS_TOKEN_FILES_H
#define TALLY_TESTS_TOKEN_FILES_H

#include "tally/tokens.h"

extern char token_folder[64], token_paths[8][160];

/* Setup and teardown of a test. */
int token_folder_make(void **state);
int token_folder_clear(void **state);
#define TOKEN_TEST(f) cmocka_unit_test_setup_teardown(f, token_folder_make, token_folder_clear)

/* A file in the folder; its path, also at token_paths[slot]. */
const char *put(int slot, const char *name, const void *data, size_t bytes);
const char *put_text(int slot, const char *name, const char *text);
/* `n` ids that tell where they stand: 0, 1, 2, … as uint32. */
const char *counting(int slot, const char *name, int64_t n);

/* tl_tokens_open of one path, *error cleared before. */
tl_tokens *open_one(const char *path, tl_token_form form, int width, tl_error *error);
/* The same, and it must work. */
tl_tokens *opened(const char *path, int width);
/* The message holds these words. */
void says(const tl_error *error, const char *words);

#endif
