/* tally/tokenizer.h: text to token ids and back.
 *
 * A tokenizer never changes once open: any number of threads may use one. An encoder is one thread's state (pending bytes,
 * a cache of words); many encoders may share a tokenizer.
 *
 * Ids are int32_t from 0. Text is bytes with a length; a NUL is a byte like any other. Text need not be UTF-8: a stretch of
 * bytes that is none stands by itself (the text before it ends there, the text behind it starts anew) and is encoded byte
 * by byte, then merged like any word. decode(encode(text)) gives the same bytes for "bytes" and for byte-level BPE,
 * whatever they are.
 */
#ifndef TALLY_TOKENIZER_H
#define TALLY_TOKENIZER_H

#include "tally/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_tokenizer tl_tokenizer;
typedef struct tl_encoder tl_encoder;

/* `path`:
 *   "bytes"       every byte is its own id, 0 … 255; no end-of-text id
 *   "bytes+eot"   the same and the special token "<|endoftext|>", id 256
 *   a folder      that holds tokenizer.json, or vocab.json + merges.txt (or gpt2_vocab.json + gpt2_merges.txt)
 *   a file        tokenizer.json, or vocab.json or merges.txt with the other beside it
 * Returns NULL with *error filled. What a file asks for and this build does not do is refused by name. */
tl_tokenizer *tl_tokenizer_open(const char *path, const tl_allocator *allocator, tl_error *error) TL_MUST_CHECK;
void tl_tokenizer_free(tl_tokenizer *tokenizer); /* NULL is fine; no encoder may outlive it */

/* Largest id + 1: what a model's embedding needs at least, and what ids are smaller than. */
int64_t tl_tokenizer_size(const tl_tokenizer *tokenizer);
/* How many ids stand for a token, added tokens included; below the size where the file leaves holes. */
int64_t tl_tokenizer_entries(const tl_tokenizer *tokenizer);
/* The id that ends a document, −1 without one: the first that is there of <|endoftext|>, <|end_of_text|>, </s>, <eos>,
 * <｜end▁of▁sentence｜>. */
int32_t tl_tokenizer_end_of_text(const tl_tokenizer *tokenizer);
/* One line: "byte-level BPE, 50257 tokens, 50000 merges". */
const char *tl_tokenizer_describe(const tl_tokenizer *tokenizer);

/* The bytes an id stands for, not NUL-ended; they live as long as the tokenizer. NULL with *length 0 where no token has this
 * id. A special token's bytes are its text. */
const char *tl_tokenizer_bytes(const tl_tokenizer *tokenizer, int32_t id, size_t *length);
bool tl_tokenizer_is_special(const tl_tokenizer *tokenizer, int32_t id);
/* The id whose token is exactly these bytes (a special token by its text), or −1. */
int32_t tl_tokenizer_find(const tl_tokenizer *tokenizer, const char *bytes, size_t length);
/* What the file wants put before a text (BOS) or behind it. Encoding never adds them: the caller does, once a document. */
const int32_t *tl_tokenizer_prefix(const tl_tokenizer *tokenizer, size_t *count);
const int32_t *tl_tokenizer_suffix(const tl_tokenizer *tokenizer, size_t *count);

/* A list of ids that grows. {0} is an empty one for the default allocator. */
typedef struct tl_token_list {
    int32_t *ids;
    size_t count, capacity;
    const tl_allocator *allocator; /* NULL: tl_allocator_default() */
} tl_token_list;
void tl_token_list_free(tl_token_list *list); /* empty again, and usable */
tl_status tl_token_list_add(tl_token_list *list, const int32_t *ids, size_t count, tl_error *error) TL_MUST_CHECK;

/* Bytes that grow. {0} is empty. Not NUL-ended. */
typedef struct tl_token_text {
    char *bytes;
    size_t count, capacity;
    const tl_allocator *allocator;
} tl_token_text;
void tl_token_text_free(tl_token_text *text);
tl_status tl_token_text_add(tl_token_text *text, const char *bytes, size_t count, tl_error *error) TL_MUST_CHECK;

/* What a special token's text ("<|endoftext|>") in the input means. Text from others must never become a control token by
 * accident, so the choice is always the caller's. (tiktoken: allowed_special=set() with disallowed_special=(), "all", and
 * the default.) Added tokens that are not special are found in the text in all three. */
typedef enum tl_special {
    TL_SPECIAL_TEXT,   /* letters like any others */
    TL_SPECIAL_ENCODE, /* the token's id */
    TL_SPECIAL_REFUSE  /* an error that names the token and its place */
} tl_special;

/* Appends the ids of a whole text to *out. On failure *out is as before. */
tl_status tl_tokenizer_encode(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_special special,
                              tl_token_list *out, tl_error *error) TL_MUST_CHECK;

/* The same in pieces, for files larger than memory: the ids are those of the whole text, wherever it was cut. Ids come when
 * nothing that may follow can change them, so a feed may add none; finish adds the rest and starts a new text. Memory
 * holds the pending bytes: a word, or a feed. After a failure the text is lost, and the next feed starts a new one. */
tl_encoder *tl_encoder_new(const tl_tokenizer *tokenizer, tl_special special, const tl_allocator *allocator,
                           tl_error *error) TL_MUST_CHECK;
void tl_encoder_free(tl_encoder *encoder);
tl_status tl_encoder_feed(tl_encoder *encoder, const char *text, size_t bytes, tl_token_list *out,
                          tl_error *error) TL_MUST_CHECK;
tl_status tl_encoder_finish(tl_encoder *encoder, tl_token_list *out, tl_error *error) TL_MUST_CHECK;

/* Appends the bytes of ids. An id without a token is TL_ERR_ARGUMENT naming it and its position; *out is then as before. */
tl_status tl_tokenizer_decode(const tl_tokenizer *tokenizer, const int32_t *ids, size_t count, tl_token_text *out,
                              tl_error *error) TL_MUST_CHECK;
/* The same piece by piece: `first` says that ids[0] starts the text (a SentencePiece-style tokenizer drops a blank there). */
tl_status tl_tokenizer_decode_more(const tl_tokenizer *tokenizer, bool first, const int32_t *ids, size_t count,
                                   tl_token_text *out, tl_error *error) TL_MUST_CHECK;

/* Learns byte-level BPE from a text (Sennrich, Haddow, Birch 2016; on bytes: Radford et al. 2019; the rules below are those of
 * Stanford's CS336, assignment 1). Special tokens, of the form <|name|>, cut the text and are not counted; between them it is
 * split by GPT-2's pattern. Of the pairs counted most often the lexicographically greater merges: by the bytes of its
 * left token, then of its right. Ids: 0 … 255 the bytes by value, then the tokens in the order they were made, then the
 * special tokens, `vocab_size` in all, or fewer where the text has no pair left. */
tl_tokenizer *tl_tokenizer_train(const char *text, size_t bytes, int64_t vocab_size, const char *const *specials,
                                 size_t n_specials, const tl_allocator *allocator, tl_error *error) TL_MUST_CHECK;
/* Writes vocab.json and merges.txt into a folder that is there, each whole or not at all. For tokenizers that were learned or
 * read from these two files; others are refused. */
tl_status tl_tokenizer_save(const tl_tokenizer *tokenizer, const char *folder, tl_error *error) TL_MUST_CHECK;

/* How many of these bytes can be shown now: all but a character at the end that is begun and not whole. */
size_t tl_token_text_whole(const char *bytes, size_t count);

#ifdef __cplusplus
}
#endif
#endif
