/* cli/infer_text.c: characters of tokens and back, and lists of ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "infer.h"
#include "tally/data.h"

int tl_speller_open(tl_speller *s, const tl_opened *opened, const char *tokenizer) {
    *s = (tl_speller){TL_SPELL_NONE};
    if (tokenizer)
        return tl_usage(opened->cli, "--tokenizer %.80s: none is read in this build; --ids works", tokenizer);
    if (strcmp(opened->task, "sums") == 0)
        s->kind = TL_SPELL_SUMS;
    return TL_EXIT_OK;
}

void tl_speller_close(tl_speller *s) { *s = (tl_speller){TL_SPELL_NONE}; }

const char *tl_speller_name(const tl_speller *s) {
    return s->kind == TL_SPELL_SUMS ? "the 13 characters of sums" : "none";
}

int32_t tl_speller_end(const tl_speller *s) {
    (void)s;
    return -1;
}

static int32_t sums_id(char c) {
    for (int32_t id = 0; id < TL_SUMS_VOCAB; id++)
        if (tl_sums_character(id) == c)
            return id;
    return -1;
}

static int32_t *encode_sums(const char *text, int64_t *count, tl_error *error) {
    size_t length = strlen(text);
    int32_t *ids = malloc((length + 1) * sizeof *ids);
    if (!ids) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a prompt of %zu bytes", length);
        return NULL;
    }
    for (size_t i = 0; i < length; i++)
        if ((ids[i] = sums_id(text[i])) < 0) {
            tl_fail(error, TL_ERR_ARGUMENT,
                    "byte %zu of the prompt is none of the 13 characters of sums: digits, +, = and a blank would work",
                    i);
            free(ids);
            return NULL;
        }
    *count = (int64_t)length;
    return ids;
}

int32_t *tl_speller_encode(const tl_speller *s, const char *text, int64_t *count, tl_error *error) {
    if (s->kind == TL_SPELL_SUMS)
        return encode_sums(text, count, error);
    tl_fail(error, TL_ERR_ARGUMENT, "no tokenizer is known for this model: --tokenizer names one, --ids needs none");
    return NULL;
}

size_t tl_speller_bytes(const tl_speller *s, int32_t id, char *buffer, size_t size) {
    char number[16];
    if (s->kind == TL_SPELL_SUMS && id < TL_SUMS_VOCAB)
        snprintf(number, sizeof number, "%c", tl_sums_character(id));
    else
        snprintf(number, sizeof number, s->kind == TL_SPELL_SUMS ? "<%d>" : "%d ", (int)id);
    size_t length = strlen(number);
    memcpy(buffer, number, length < size ? length : size);
    return length;
}

int32_t *tl_ids_parse(const char *text, int64_t *count, tl_error *error) {
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof *ids);
    if (!ids) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a list of ids");
        return NULL;
    }
    *count = 0;
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        while (*end == ' ')
            end++;
        if (end == at || errno || value < 0 || value > INT32_MAX || (*end != ',' && *end != '\0')) {
            tl_fail(error, TL_ERR_ARGUMENT, "--ids: \"%.20s\" is no token id; \"1,2,3\" would work", at);
            free(ids);
            return NULL;
        }
        ids[(*count)++] = (int32_t)value;
        if (*end == '\0')
            return ids;
        at = end + 1;
    }
}
