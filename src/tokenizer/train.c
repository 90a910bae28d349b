/* tokenizer/train.c: learning merges from a text.
 *
 * The text becomes words with their counts, once. Every pair of neighbours knows its count and the words it was seen in, so a
 * merge rewrites these words alone. The best pair comes from a heap whose entries may be too high: one that is goes back in
 * with what it counts now. Only pairs with the newest token can gain, and those are put in when they are found.
 */
#include "tokenizer/bpe.h"
#include "tokenizer/encode.h"
#include "tokenizer/split.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

typedef struct word {
    uint64_t hash;
    int32_t *symbols; /* `room` of them; as bytes at first */
    uint32_t count;   /* of symbols */
    int64_t times;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t times;
    uint32_t *words;
    size_t n_words, capacity;
} pair;

typedef struct candidate {
    int64_t times;
    uint32_t pair;
} candidate;

typedef struct trainer {
    const tl_allocator *allocator;
    tl_arena arena;
    tl_error *error;
    word *words;
    size_t n_words, words_room;
    uint32_t *word_slots; /* index + 1 of words by hash */
    size_t n_word_slots;
    pair *pairs;
    size_t n_pairs, pairs_room;
    uint32_t *pair_slots;
    size_t n_pair_slots;
    candidate *heap;
    size_t n_heap, heap_room;
    tl_token *tokens; /* bytes, then what merges made */
    size_t n_tokens, tokens_room;
    uint32_t *token_slots;
    size_t n_token_slots;
    int32_t (*merges)[2];
    size_t n_merges, merges_room;
} trainer;

static tl_status no_memory(const trainer *t) {
    return tl_fail(t->error, TL_ERR_MEMORY, "no memory to learn merges: %zu words, %zu pairs", t->n_words, t->n_pairs);
}

/* Room for one more of an array. */
#define GROW(t, array, room, count)                                                                                    \
    grow_array((t), (void **)(void *)&(t)->array, &(t)->room, (count) + 1, sizeof *(t)->array)
static bool grow_array(const trainer *t, void **array, size_t *room, size_t want, size_t size) {
    void *pointer;
    memcpy(&pointer, array, sizeof pointer);
    const bool fits = tl_tokenizer_grow(t->allocator, &pointer, room, want, size);
    memcpy(array, &pointer, sizeof pointer);
    return fits;
}

static void give_back(const trainer *t, void *array, size_t room, size_t size) {
    if (array)
        t->allocator->release(t->allocator->self, array, room * size, TL_ALLOC_HOST);
}

/* A table of slots at most half full. `hash_of` gives the hash of entry i. */
static bool rehash(const trainer *t, uint32_t **slots, size_t *n_slots, size_t count,
                   uint64_t (*hash_of)(const trainer *t, size_t i)) {
    if (count * 2 < *n_slots)
        return true;
    const size_t wanted = *n_slots == 0 ? 1024 : *n_slots * 2;
    uint32_t *larger = t->allocator->alloc(t->allocator->self, wanted * sizeof **slots, 16, TL_ALLOC_HOST);
    if (!larger)
        return false;
    memset(larger, 0, wanted * sizeof **slots);
    for (size_t i = 0; i < count; i++) {
        size_t slot = (size_t)hash_of(t, i) & (wanted - 1);
        while (larger[slot])
            slot = (slot + 1) & (wanted - 1);
        larger[slot] = (uint32_t)i + 1;
    }
    give_back(t, *slots, *n_slots, sizeof **slots);
    *slots = larger;
    *n_slots = wanted;
    return true;
}

/* ---- words ---- */

static uint64_t word_hash(const trainer *t, size_t i) { return t->words[i].hash; }

static bool is_word(const word *w, const char *text, size_t length) {
    if (w->count != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (w->symbols[i] != (unsigned char)text[i])
            return false;
    return true;
}

static tl_status count_word(void *self, const char *text, size_t length) {
    trainer *t = self;
    const uint64_t hash = tl_bpe_hash(text, length);
    if (length >= INT32_MAX || t->n_words >= INT32_MAX)
        return tl_fail(t->error, TL_ERR_OVERFLOW, "more than 2147483646 words, or a word of as many bytes");
    if (!rehash(t, &t->word_slots, &t->n_word_slots, t->n_words, word_hash))
        return no_memory(t);
    size_t slot = (size_t)hash & (t->n_word_slots - 1);
    for (; t->word_slots[slot]; slot = (slot + 1) & (t->n_word_slots - 1)) {
        word *w = &t->words[t->word_slots[slot] - 1];
        if (w->hash == hash && is_word(w, text, length)) {
            w->times++;
            return TL_OK;
        }
    }
    int32_t *symbols = tl_arena_alloc(&t->arena, length * sizeof *symbols);
    if (!symbols || !GROW(t, words, words_room, t->n_words))
        return no_memory(t);
    for (size_t i = 0; i < length; i++)
        symbols[i] = (unsigned char)text[i];
    t->words[t->n_words++] = (word){.hash = hash, .symbols = symbols, .count = (uint32_t)length, .times = 1};
    t->word_slots[slot] = (uint32_t)t->n_words;
    return TL_OK;
}

/* ---- pairs ---- */

static uint64_t key_hash(int32_t left, int32_t right) {
    return tl_bpe_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

static uint64_t pair_hash(const trainer *t, size_t i) { return key_hash(t->pairs[i].left, t->pairs[i].right); }

/* The pair, made where it is new; NULL without memory. */
static pair *find_pair(trainer *t, int32_t left, int32_t right) {
    if (t->n_pairs >= UINT32_MAX - 1 || !rehash(t, &t->pair_slots, &t->n_pair_slots, t->n_pairs, pair_hash))
        return NULL;
    size_t slot = (size_t)key_hash(left, right) & (t->n_pair_slots - 1);
    for (; t->pair_slots[slot]; slot = (slot + 1) & (t->n_pair_slots - 1)) {
        pair *p = &t->pairs[t->pair_slots[slot] - 1];
        if (p->left == left && p->right == right)
            return p;
    }
    if (!GROW(t, pairs, pairs_room, t->n_pairs))
        return NULL;
    t->pairs[t->n_pairs++] = (pair){.left = left, .right = right};
    t->pair_slots[slot] = (uint32_t)t->n_pairs;
    return &t->pairs[t->n_pairs - 1];
}

/* Adds (or, with a negative sign, takes away) what word i counts for its pairs. Where `newest` ≥ 0 the word is noted with the
 * pairs of that token alone: the others know it. */
static tl_status count_pairs(trainer *t, uint32_t i, int sign, int32_t newest) {
    const word *w = &t->words[i];
    for (uint32_t k = 0; k + 1 < w->count; k++) {
        pair *p = find_pair(t, w->symbols[k], w->symbols[k + 1]);
        if (!p)
            return no_memory(t);
        p->times += sign * w->times;
        if (sign < 0 || (newest >= 0 && p->left != newest && p->right != newest))
            continue;
        if (p->n_words > 0 && p->words[p->n_words - 1] == i)
            continue;
        if (!grow_array(t, (void **)(void *)&p->words, &p->capacity, p->n_words + 1, sizeof *p->words))
            return no_memory(t);
        p->words[p->n_words++] = i;
    }
    return TL_OK;
}

/* ---- the heap ---- */

static int compare_tokens(const trainer *t, int32_t a, int32_t b) {
    const tl_token *x = &t->tokens[a], *y = &t->tokens[b];
    const int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

/* Counted more often, or as often and lexicographically greater: first the left tokens, then the right ones. */
static bool is_better(const trainer *t, candidate a, candidate b) {
    if (a.times != b.times)
        return a.times > b.times;
    const pair *x = &t->pairs[a.pair], *y = &t->pairs[b.pair];
    const int order = compare_tokens(t, x->left, y->left);
    return order != 0 ? order > 0 : compare_tokens(t, x->right, y->right) > 0;
}

static bool push(trainer *t, uint32_t index) {
    const candidate new = {.times = t->pairs[index].times, .pair = index};
    if (new.times <= 0)
        return true;
    if (!GROW(t, heap, heap_room, t->n_heap))
        return false;
    size_t at = t->n_heap++;
    while (at > 0 && is_better(t, new, t->heap[(at - 1) / 2])) {
        t->heap[at] = t->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->heap[at] = new;
    return true;
}

static candidate pop(trainer *t) {
    const candidate best = t->heap[0];
    const candidate last = t->heap[--t->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= t->n_heap)
            break;
        if (child + 1 < t->n_heap && is_better(t, t->heap[child + 1], t->heap[child]))
            child++;
        if (!is_better(t, t->heap[child], last))
            break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    if (t->n_heap > 0)
        t->heap[at] = last;
    return best;
}

/* ---- merging ---- */

static uint64_t token_hash(const trainer *t, size_t i) { return tl_bpe_hash(t->tokens[i].bytes, t->tokens[i].length); }

/* The token of these bytes, made where it is new: two ways of merging may end in the same one. */
static tl_status put_token(trainer *t, const tl_token *left, const tl_token *right, int32_t *id) {
    const size_t length = (size_t)left->length + right->length;
    char *bytes = length < UINT32_MAX / 4 ? tl_arena_alloc(&t->arena, length + 1) : NULL;
    if (!bytes || !GROW(t, tokens, tokens_room, t->n_tokens) ||
        !rehash(t, &t->token_slots, &t->n_token_slots, t->n_tokens, token_hash))
        return no_memory(t);
    memcpy(bytes, left->bytes, left->length);
    memcpy(bytes + left->length, right->bytes, right->length);
    size_t slot = (size_t)tl_bpe_hash(bytes, length) & (t->n_token_slots - 1);
    for (; t->token_slots[slot]; slot = (slot + 1) & (t->n_token_slots - 1)) {
        const tl_token *token = &t->tokens[t->token_slots[slot] - 1];
        if (token->length == length && memcmp(token->bytes, bytes, length) == 0) {
            *id = (int32_t)(t->token_slots[slot] - 1);
            return TL_OK;
        }
    }
    *id = (int32_t)t->n_tokens;
    t->tokens[t->n_tokens++] = (tl_token){.bytes = bytes, .length = (uint32_t)length};
    t->token_slots[slot] = (uint32_t)t->n_tokens;
    return TL_OK;
}

static void rewrite(word *w, int32_t left, int32_t right, int32_t id) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const bool here = i + 1 < w->count && w->symbols[i] == left && w->symbols[i + 1] == right;
        w->symbols[n++] = here ? id : w->symbols[i];
        i += here;
    }
    w->count = n;
}

static tl_status merge(trainer *t, uint32_t best) {
    const int32_t left = t->pairs[best].left, right = t->pairs[best].right;
    const tl_token a = t->tokens[left], b = t->tokens[right];
    const size_t known = t->n_tokens;
    size_t first = t->n_pairs;
    int32_t id = -1;
    tl_status status = put_token(t, &a, &b, &id);
    if (status == TL_OK && !GROW(t, merges, merges_room, t->n_merges))
        status = no_memory(t);
    if (status != TL_OK)
        return status;
    t->merges[t->n_merges][0] = left;
    t->merges[t->n_merges++][1] = right;
    /* The list of this pair never grows meanwhile (the new token is longer than its parts), but the pairs may move. */
    for (size_t i = 0; i < t->pairs[best].n_words && status == TL_OK; i++) {
        const uint32_t index = t->pairs[best].words[i];
        status = count_pairs(t, index, -1, -1);
        rewrite(&t->words[index], left, right, id);
        if (status == TL_OK)
            status = count_pairs(t, index, 1, id);
    }
    /* A token that was there has pairs from before. */
    if ((size_t)id < known)
        first = 0;
    for (size_t i = first; i < t->n_pairs && status == TL_OK; i++)
        if ((t->pairs[i].left == id || t->pairs[i].right == id) && !push(t, (uint32_t)i))
            status = no_memory(t);
    return status;
}

static tl_status learn(trainer *t, int64_t tokens) {
    tl_status status = TL_OK;
    for (size_t i = 0; i < t->n_words && status == TL_OK; i++)
        status = count_pairs(t, (uint32_t)i, 1, -1);
    for (size_t i = 0; i < t->n_pairs && status == TL_OK; i++)
        if (!push(t, (uint32_t)i))
            status = no_memory(t);
    while (status == TL_OK && t->n_heap > 0 && (int64_t)t->n_tokens < tokens) {
        const candidate best = pop(t);
        const int64_t times = t->pairs[best.pair].times;
        if (times == best.times)
            status = merge(t, best.pair);
        else if (!push(t, best.pair))
            status = no_memory(t);
    }
    return status;
}

/* ---- from words to a tokenizer ---- */

static const char *spell(trainer *t, const tl_token *token, size_t *length) {
    char *letters = tl_arena_alloc(&t->arena, (size_t)token->length * 2 + 1);
    *length = 0;
    for (size_t i = 0; letters && i < token->length; i++)
        *length += (size_t)tl_bpe_letter((unsigned char)token->bytes[i], letters + *length);
    return letters;
}

/* What is learned is handed on as a file would be, so that there is one way to build a tokenizer. */
static tl_tokenizer *build(trainer *t, const char *const *specials, size_t n_specials) {
    tl_tokenizer_file file = {.name = "learned merges", .byte_level = true};
    file.entries = tl_arena_alloc(&t->arena, (t->n_tokens + n_specials) * sizeof *file.entries);
    file.merges = tl_arena_alloc(&t->arena, (t->n_merges + 1) * sizeof *file.merges);
    if (!file.entries || !file.merges) {
        (void)no_memory(t);
        return NULL;
    }
    for (size_t i = 0; i < t->n_tokens + n_specials; i++) {
        tl_tokenizer_entry *entry = &file.entries[file.n_entries++];
        entry->id = (int64_t)i;
        if (i < t->n_tokens)
            entry->text = spell(t, &t->tokens[i], &entry->length);
        else {
            entry->text = specials[i - t->n_tokens];
            entry->length = strlen(entry->text);
        }
        if (!entry->text) {
            (void)no_memory(t);
            return NULL;
        }
    }
    for (size_t i = 0; i < t->n_merges; i++) {
        const tl_tokenizer_entry *left = &file.entries[t->merges[i][0]], *right = &file.entries[t->merges[i][1]];
        file.merges[file.n_merges++] = (tl_tokenizer_merge){.left = left->text,
                                                            .left_length = left->length,
                                                            .right = right->text,
                                                            .right_length = right->length,
                                                            .place = i + 1};
    }
    tl_tokenizer_gpt2_stage(&file.stages[file.n_stages++], "GPT-2's pattern");
    return tl_tokenizer_build(&file, t->allocator, t->error);
}

static tl_status check_specials(int64_t vocab_size, const char *const *specials, size_t n_specials, tl_error *error) {
    char quoted[96];
    for (size_t i = 0; i < n_specials; i++) {
        const size_t length = strlen(specials[i]);
        if (length <= 4 || strncmp(specials[i], "<|", 2) != 0 || strcmp(specials[i] + length - 2, "|>") != 0)
            return tl_fail(
                error, TL_ERR_ARGUMENT,
                "the special token \"%s\": one of the form <|name|> would work, since vocab.json does not say "
                "which tokens are special",
                tl_quotable(specials[i], length, quoted, sizeof quoted));
    }
    const int64_t least = 256 + (int64_t)n_specials;
    if (vocab_size < least || vocab_size > TL_TOKENIZER_MOST_IDS)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "a vocabulary of %lld: %lld (bytes and special tokens) to %lld would work",
                       (long long)vocab_size, (long long)least, (long long)TL_TOKENIZER_MOST_IDS);
    return TL_OK;
}

static tl_status start(trainer *t) {
    static const tl_token nothing = {.bytes = ""};
    char *bytes = tl_arena_alloc(&t->arena, 256);
    tl_status status = bytes ? TL_OK : no_memory(t);
    for (int i = 0; i < 256 && status == TL_OK; i++) {
        const tl_token byte = {.bytes = bytes + i, .length = 1};
        int32_t id;
        bytes[i] = (char)i;
        status = put_token(t, &byte, &nothing, &id);
    }
    return status;
}

static void stop(trainer *t) {
    for (size_t i = 0; i < t->n_pairs; i++)
        give_back(t, t->pairs[i].words, t->pairs[i].capacity, sizeof *t->pairs[i].words);
    give_back(t, t->words, t->words_room, sizeof *t->words);
    give_back(t, t->word_slots, t->n_word_slots, sizeof *t->word_slots);
    give_back(t, t->pairs, t->pairs_room, sizeof *t->pairs);
    give_back(t, t->pair_slots, t->n_pair_slots, sizeof *t->pair_slots);
    give_back(t, t->heap, t->heap_room, sizeof *t->heap);
    give_back(t, t->tokens, t->tokens_room, sizeof *t->tokens);
    give_back(t, t->token_slots, t->n_token_slots, sizeof *t->token_slots);
    give_back(t, t->merges, t->merges_room, sizeof *t->merges);
    tl_arena_close(&t->arena);
}

tl_tokenizer *tl_tokenizer_train(const char *text, size_t bytes, int64_t vocab_size, const char *const *specials,
                                 size_t n_specials, const tl_allocator *allocator, tl_error *error) {
    trainer t = {.allocator = allocator ? allocator : tl_allocator_default(), .error = error};
    tl_tokenizer *plain = NULL, *learned = NULL;
    if (check_specials(vocab_size, specials, n_specials, error) != TL_OK)
        return NULL;
    tl_arena_open(&t.arena, t.allocator);
    if (start(&t) == TL_OK)
        plain = build(&t, specials, n_specials);
    if (plain && tl_encoder_words(plain, text, bytes, count_word, &t, t.allocator, error) == TL_OK &&
        learn(&t, vocab_size - (int64_t)n_specials) == TL_OK)
        learned = build(&t, specials, n_specials);
    tl_tokenizer_free(plain);
    stop(&t);
    return learned;
}
