/* tokenizer/split.h: cutting a text into words by the patterns of a tokenizer. PCRE2 lives here alone. Internal.
 *
 * A text that is still growing gives the words that nothing behind them can change: PCRE2 says when a match looked at the end
 * of what is there (PCRE2_PARTIAL_HARD), and then more is waited for. The same serves to bound the work: a match first sees a
 * window of the text, twice as much each time it looked at the window's end, and what is looked at again and again is
 * charged against the length of the words found. So no pattern can make a long text take time without end.
 */
#ifndef TL_TOKENIZER_SPLIT_H
#define TL_TOKENIZER_SPLIT_H

#include "tokenizer/tokenizer.h"

#include "config/tokenizer_file.h"

/* *splitter is to be freed whether this succeeds or not. */
tl_status tl_splitter_new(const tl_tokenizer_stage *stages, int count, const char *name, const tl_allocator *allocator,
                          tl_splitter **splitter, tl_error *error) TL_MUST_CHECK;
void tl_splitter_free(tl_splitter *splitter);

/* What one thread needs to split. */
typedef struct tl_split_state tl_split_state;
tl_split_state *tl_split_state_new(const tl_splitter *splitter, const tl_allocator *allocator, tl_error *error);
void tl_split_state_free(tl_split_state *state);
/* Allowance as for a new text. */
void tl_split_state_reset(tl_split_state *state);

/* Takes a word, all of it, in order. */
typedef tl_status tl_split_word(void *self, const char *word, size_t length);

/* Splits `text`, which is valid UTF-8 and starts where a word starts. *used: how far words were certain; all if `final`.
 * `at` is the text's place, for messages. */
tl_status tl_split(const tl_splitter *splitter, tl_split_state *state, const char *text, size_t length, bool final,
                   uint64_t at, tl_split_word *word, void *self, size_t *used, tl_error *error) TL_MUST_CHECK;

#endif
