/* tokenizer/encode.h: the words that an encoder would encode. Internal. */
#ifndef TL_TOKENIZER_ENCODE_H
#define TL_TOKENIZER_ENCODE_H

#include "tokenizer/split.h"

/* Hands the words of a text to `word` instead of encoding them; special tokens cut and are no words. */
tl_status tl_encoder_words(const tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_split_word *word,
                           void *self, const tl_allocator *allocator, tl_error *error) TL_MUST_CHECK;

#endif
