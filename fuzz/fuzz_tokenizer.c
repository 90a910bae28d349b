/* Any bytes at all as a tokenizer's files, and any bytes at all as a text for it.
 *
 * The input: one byte that says which files (bit 0: vocab.json + merges.txt, else tokenizer.json; bits 1 and 2: what special
 * tokens are; bits 3 to 7: where pieces are cut), then the files and the text with a byte 0x00 0x01 0x00 between them. Opening
 * reads or refuses with a message; encoding gives ids below the size, in pieces the same ids as whole; byte-level tokenizers
 * that drop nothing give the text back.
 */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(tl_status status, const tl_error *error) {
    if (error->status != status || error->message[0] == '\0')
        abort();
    for (const char *c = error->message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

/* The part up to the next separator, or the end. */
static const char *part(const char **at, size_t *left, size_t *length) {
    const char *start = *at, *found = *left >= 3 ? memmem(*at, *left, "\0\1", 3) : NULL;
    *length = found ? (size_t)(found - start) : *left;
    const size_t used = *length + (found ? 3 : 0);
    *at += used;
    *left -= used;
    return start;
}

static bool drops_nothing(const tl_tokenizer_file *file) {
    bool drops = !file->byte_level || file->prefix_space || file->unk;
    for (int i = 0; i < file->n_stages; i++)
        drops |= !file->stages[i].keep_matches || !file->stages[i].keep_gaps;
    for (size_t i = 0; i < file->n_added; i++)
        drops |= file->added[i].lstrip || file->added[i].rstrip;
    return !drops;
}

static void check_text(const tl_tokenizer *t, const char *text, size_t length, unsigned how, bool exact) {
    const tl_special special = (how >> 1 & 3) % 3 == 0   ? TL_SPECIAL_TEXT
                               : (how >> 1 & 3) % 3 == 1 ? TL_SPECIAL_ENCODE
                                                         : TL_SPECIAL_REFUSE;
    tl_error error = {0}, other = {0};
    tl_token_list whole = {0}, pieces = {0};
    tl_token_text back = {0};
    const tl_status status = tl_tokenizer_encode(t, text, length, special, &whole, &error);
    if (status != TL_OK)
        check_message(status, &error);
    tl_encoder *encoder = tl_encoder_new(t, special, NULL, &other);
    if (!encoder)
        abort();
    tl_status fed = TL_OK;
    const size_t step = (how >> 3) + 1;
    for (size_t i = 0; i < length && fed == TL_OK; i += step)
        fed = tl_encoder_feed(encoder, text + i, length - i < step ? length - i : step, &pieces, &other);
    if (fed == TL_OK)
        fed = tl_encoder_finish(encoder, &pieces, &other);
    tl_encoder_free(encoder);
    /* Where work is bounded, pieces may be stopped and the whole not, or the other way round. */
    if (fed != status && fed != TL_ERR_UNSUPPORTED && status != TL_ERR_UNSUPPORTED)
        abort();
    if (status == TL_OK && fed == TL_OK &&
        (whole.count != pieces.count ||
         (whole.count > 0 && memcmp(whole.ids, pieces.ids, whole.count * sizeof *whole.ids) != 0)))
        abort();
    if (status == TL_OK) {
        for (size_t i = 0; i < whole.count; i++)
            if (whole.ids[i] < 0 || whole.ids[i] >= tl_tokenizer_size(t))
                abort();
        if (tl_tokenizer_decode(t, whole.ids, whole.count, &back, &other) != TL_OK)
            abort();
        if (exact && (back.count != length || (length > 0 && memcmp(back.bytes, text, length) != 0)))
            abort();
    }
    tl_token_list_free(&whole);
    tl_token_list_free(&pieces);
    tl_token_text_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tl_tokenizer_file file;
    tl_error error = {0};
    if (size < 1)
        return 0;
    const unsigned how = data[0];
    const char *at = (const char *)data + 1;
    size_t left = size - 1, first_length, second_length = 0;
    const char *first = part(&at, &left, &first_length);
    const char *second = how & 1 ? part(&at, &left, &second_length) : NULL;
    tl_status status = how & 1 ? tl_tokenizer_file_parse_pair(first, first_length, second, second_length,
                                                              "fuzz/merges.txt", &file, &error)
                               : tl_tokenizer_file_parse(first, first_length, "fuzz/tokenizer.json", &file, &error);
    tl_tokenizer *t = status == TL_OK ? tl_tokenizer_build(&file, NULL, &error) : NULL;
    if (!t) {
        check_message(error.status, &error);
        if (status == TL_OK && error.status == TL_OK)
            abort();
    } else {
        if (tl_tokenizer_entries(t) > tl_tokenizer_size(t))
            abort();
        check_text(t, at, left, how, drops_nothing(&file));
        tl_tokenizer_free(t);
    }
    tl_tokenizer_file_free(&file);
    return 0;
}
