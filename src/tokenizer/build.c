/* tokenizer/build.c: the tables of an open tokenizer, from what its files hold. */
#include "tokenizer/bpe.h"

#include "base/nearest.h"

#include <stdio.h>
#include <string.h>

static const char BLOCK[] = "\xE2\x96\x81";
enum { BLOCK_BYTES = 3 };

typedef struct builder {
    tl_tokenizer *t;
    tl_bpe *bpe;
    const tl_tokenizer_file *file;
    tl_error *error;
} builder;

static tl_status no_memory(const builder *b) {
    return tl_fail(b->error, TL_ERR_MEMORY, "%s: no memory for its tables", b->file->name);
}

static void *zeroed(const builder *b, size_t count, size_t size) {
    void *pointer = count <= SIZE_MAX / size / 2 ? tl_arena_alloc(&b->t->arena, count * size + 1) : NULL;
    if (pointer)
        memset(pointer, 0, count * size);
    return pointer;
}

static size_t power_of_two(size_t at_least) {
    size_t n = 16;
    while (n < at_least)
        n *= 2;
    return n;
}

/* Quotes for a message; two at a time. */
#define QUOTED(text, length) tl_quotable(text, length, (char[64]){0}, 64)

/* ---- tokens ---- */

/* The table by id is as long as the largest id says, so that must be in proportion to what is there. */
static tl_status measure(builder *b) {
    const tl_tokenizer_file *f = b->file;
    const int64_t count = (int64_t)(f->n_entries + f->n_added), most = count * 16 + 65536;
    int64_t largest = -1;
    for (size_t i = 0; i < f->n_entries; i++)
        largest = f->entries[i].id > largest ? f->entries[i].id : largest;
    for (size_t i = 0; i < f->n_added; i++)
        largest = f->added[i].id > largest ? f->added[i].id : largest;
    if (largest >= TL_TOKENIZER_MOST_IDS || largest > most)
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: id %lld among %lld tokens; ids up to %lld would work", f->name,
                       (long long)largest, (long long)count,
                       (long long)(most < TL_TOKENIZER_MOST_IDS ? most : TL_TOKENIZER_MOST_IDS - 1));
    b->t->size = largest + 1;
    b->bpe->n_slots = power_of_two((size_t)count * 2 + 1);
    b->t->tokens = zeroed(b, (size_t)b->t->size, sizeof *b->t->tokens);
    b->bpe->names = zeroed(b, (size_t)b->t->size, sizeof *b->bpe->names);
    b->bpe->slots = zeroed(b, b->bpe->n_slots, sizeof *b->bpe->slots);
    if (!b->t->tokens || !b->bpe->names || !b->bpe->slots)
        return no_memory(b);
    for (size_t i = 0; i < b->bpe->n_slots; i++)
        b->bpe->slots[i] = -1;
    return TL_OK;
}

/* "<0x1F>" → 31, −1 for anything else. */
static int fallback_byte(const char *text, size_t length) {
    int value = 0;
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        const char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'F')))
            return -1;
        value = value * 16 + (c <= '9' ? c - '0' : c - 'A' + 10);
    }
    return value;
}

/* The bytes a name stands for, into `out` (as long as the name). A name with a letter that stands for no byte is its text,
 * as in Hugging Face's decoder. */
static size_t spell(const builder *b, const char *text, size_t length, char *out) {
    size_t n = 0;
    if (b->bpe->byte_level) {
        for (size_t i = 0; i < length;) {
            int used, byte = tl_bpe_byte(text + i, length - i, &used);
            if (byte < 0) {
                memcpy(out, text, length);
                return length;
            }
            out[n++] = (char)byte;
            i += (size_t)used;
        }
        return n;
    }
    if (b->bpe->byte_fallback && fallback_byte(text, length) >= 0) {
        out[0] = (char)fallback_byte(text, length);
        return 1;
    }
    for (size_t i = 0; i < length;) {
        if (length - i >= BLOCK_BYTES && memcmp(text + i, BLOCK, BLOCK_BYTES) == 0) {
            /* A blank behind another letter: words cannot be cut before blanks. */
            b->bpe->block_inside |= i > 0 && out[n - 1] != ' ';
            out[n++] = ' ';
            i += BLOCK_BYTES;
        } else
            out[n++] = text[i++];
    }
    return n;
}

static tl_status put(builder *b, const char *text, size_t length, int64_t id, bool added) {
    const int32_t there = tl_bpe_find(b->bpe, text, length);
    tl_bpe_name *name = &b->bpe->names[id];
    if (there == id)
        return TL_OK;
    if (length > UINT32_MAX / 4)
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: a token of %zu bytes", b->file->name, length);
    if (there >= 0)
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: \"%s\" has the ids %d and %lld", b->file->name,
                       QUOTED(text, length), (int)there, (long long)id);
    if (name->text)
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: id %lld is both \"%s\" and \"%s\"", b->file->name, (long long)id,
                       QUOTED(name->text, name->length), QUOTED(text, length));
    char *copy = tl_arena_text(&b->t->arena, text, length), *bytes = copy;
    if (copy && !added) {
        bytes = tl_arena_alloc(&b->t->arena, length + 1);
        if (bytes)
            b->t->tokens[id].length = (uint32_t)spell(b, text, length, bytes);
    } else
        b->t->tokens[id].length = (uint32_t)length;
    if (!copy || !bytes)
        return no_memory(b);
    b->t->tokens[id].bytes = bytes;
    name->text = copy;
    name->length = (uint32_t)length;
    size_t slot = (size_t)tl_bpe_hash(text, length) & (b->bpe->n_slots - 1);
    while (b->bpe->slots[slot] >= 0)
        slot = (slot + 1) & (b->bpe->n_slots - 1);
    b->bpe->slots[slot] = (int32_t)id;
    b->t->entries++;
    return TL_OK;
}

static tl_status put_all(builder *b) {
    const tl_tokenizer_file *f = b->file;
    tl_status status = TL_OK;
    for (size_t i = 0; i < f->n_entries && status == TL_OK; i++) {
        if (f->entries[i].length == 0)
            return tl_fail(b->error, TL_ERR_FORMAT, "%s: id %lld is a token of no bytes", f->name,
                           (long long)f->entries[i].id);
        status = put(b, f->entries[i].text, f->entries[i].length, f->entries[i].id, false);
    }
    for (size_t i = 0; i < f->n_added && status == TL_OK; i++) {
        const tl_tokenizer_added *added = &f->added[i];
        status = put(b, added->text, added->length, added->id, true);
        if (status != TL_OK)
            break;
        tl_token *token = &b->t->tokens[added->id];
        token->bytes = b->bpe->names[added->id].text; /* as it stands in texts */
        token->length = b->bpe->names[added->id].length;
        token->added = true;
        token->special = added->special;
        token->lstrip = added->lstrip;
        token->rstrip = added->rstrip;
        if (added->normalized && f->normalized_blocks)
            status =
                tl_fail(b->error, TL_ERR_UNSUPPORTED,
                        "%s: the added token \"%s\" is \"normalized\", which with SentencePiece's normalizer is not "
                        "done here; false would work",
                        f->name, QUOTED(added->text, added->length));
    }
    return status;
}

/* ---- merges ---- */

static tl_status merge_fails(const builder *b, const tl_tokenizer_merge *merge, const char *why, const char *text,
                             size_t length) {
    const bool json = b->file->json;
    return tl_fail(b->error, TL_ERR_FORMAT, "%s%s%zu%s: the merge of \"%s\" and \"%s\"%s\"%s\"", b->file->name,
                   json ? ": model.merges[" : ":", json ? merge->place - 1 : merge->place, json ? "]" : "",
                   QUOTED(merge->left, merge->left_length), QUOTED(merge->right, merge->right_length), why,
                   QUOTED(text, length));
}

static tl_status put_merge(builder *b, const tl_tokenizer_merge *merge, uint32_t rank, char *joined) {
    const int32_t left = tl_bpe_find(b->bpe, merge->left, merge->left_length);
    const int32_t right = tl_bpe_find(b->bpe, merge->right, merge->right_length);
    const size_t length = merge->left_length + merge->right_length;
    if (left < 0)
        return merge_fails(b, merge, ": the vocabulary has no ", merge->left, merge->left_length);
    if (right < 0)
        return merge_fails(b, merge, ": the vocabulary has no ", merge->right, merge->right_length);
    memcpy(joined, merge->left, merge->left_length);
    memcpy(joined + merge->left_length, merge->right, merge->right_length);
    const int32_t id = tl_bpe_find(b->bpe, joined, length);
    if (id < 0)
        return merge_fails(b, merge, ": the vocabulary has no ", joined, length);
    if (tl_bpe_find_pair(b->bpe, left, right))
        return merge_fails(b, merge, " is there twice; it makes ", joined, length);
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t slot = (size_t)tl_bpe_mix(key) & (b->bpe->n_pairs - 1);
    while (b->bpe->pairs[slot].key != TL_BPE_NO_PAIR)
        slot = (slot + 1) & (b->bpe->n_pairs - 1);
    b->bpe->pairs[slot] = (tl_bpe_pair){.key = key, .rank = rank, .id = id};
    return TL_OK;
}

static tl_status put_merges(builder *b) {
    const tl_tokenizer_file *f = b->file;
    size_t longest = 0;
    tl_status status = TL_OK;
    b->bpe->n_pairs = power_of_two(f->n_merges * 2 + 1);
    b->bpe->pairs = zeroed(b, b->bpe->n_pairs, sizeof *b->bpe->pairs);
    for (size_t i = 0; i < f->n_merges; i++) {
        const size_t length = f->merges[i].left_length + f->merges[i].right_length;
        longest = length > longest ? length : longest;
    }
    char *joined = zeroed(b, longest, 1);
    if (!b->bpe->pairs || !joined)
        return no_memory(b);
    for (size_t i = 0; i < b->bpe->n_pairs; i++)
        b->bpe->pairs[i].key = TL_BPE_NO_PAIR;
    for (size_t i = 0; i < f->n_merges && status == TL_OK; i++)
        status = put_merge(b, &f->merges[i], (uint32_t)i, joined);
    b->bpe->n_merges = f->n_merges;
    return status;
}

/* vocab.json does not say which tokens are special: those of the form <|…|> that no merge makes. */
static tl_status mark_special(builder *b) {
    bool *made = zeroed(b, (size_t)b->t->size, sizeof *made);
    if (!made)
        return no_memory(b);
    for (size_t i = 0; i < b->bpe->n_pairs; i++)
        if (b->bpe->pairs[i].key != TL_BPE_NO_PAIR)
            made[b->bpe->pairs[i].id] = true;
    for (int64_t id = 0; id < b->t->size; id++) {
        const tl_bpe_name *name = &b->bpe->names[id];
        if (name->text && !made[id] && name->length > 4 && memcmp(name->text, "<|", 2) == 0 &&
            memcmp(name->text + name->length - 2, "|>", 2) == 0)
            b->t->tokens[id].added = b->t->tokens[id].special = true;
    }
    return TL_OK;
}

static tl_status ends(builder *b, const char texts[][64], int count, int32_t **ids, size_t *n, const char *where) {
    *ids = zeroed(b, (size_t)count, sizeof **ids);
    if (!*ids)
        return no_memory(b);
    for (int i = 0; i < count; i++) {
        const int32_t id = tl_bpe_find(b->bpe, texts[i], strlen(texts[i]));
        if (id < 0)
            return tl_fail(b->error, TL_ERR_FORMAT,
                           "%s: post_processor puts \"%s\" %s a text, and no token is called so", b->file->name,
                           QUOTED(texts[i], strlen(texts[i])), where);
        (*ids)[(*n)++] = id;
    }
    return TL_OK;
}

static tl_status find_bytes(builder *b) {
    char letter[8];
    for (int byte = 0; byte < 256; byte++) {
        size_t length;
        if (b->bpe->byte_level)
            length = (size_t)tl_bpe_letter((unsigned char)byte, letter);
        else
            length = (size_t)snprintf(letter, sizeof letter, "<0x%02X>", (unsigned)byte);
        b->bpe->byte_ids[byte] = tl_bpe_find(b->bpe, letter, length);
    }
    b->bpe->unk = b->file->unk ? tl_bpe_find(b->bpe, b->file->unk, b->file->unk_length) : -1;
    if (b->file->unk && b->bpe->unk < 0)
        return tl_fail(b->error, TL_ERR_FORMAT, "%s: model.unk_token is \"%s\", and no token is called so",
                       b->file->name, QUOTED(b->file->unk, b->file->unk_length));
    return TL_OK;
}

tl_status tl_bpe_build(tl_tokenizer *t, const tl_tokenizer_file *f, tl_error *error) {
    builder b = {.t = t, .file = f, .error = error};
    b.bpe = t->bpe = zeroed(&b, 1, sizeof *t->bpe);
    if (!b.bpe)
        return no_memory(&b);
    b.bpe->byte_level = f->byte_level;
    b.bpe->ignore_merges = f->ignore_merges;
    b.bpe->byte_fallback = f->byte_fallback;
    b.bpe->fuse_unk = f->fuse_unk;
    b.bpe->plain = !f->json;
    b.bpe->nfc = f->nfc;
    b.bpe->prefix_space = f->prefix_space;
    b.bpe->blocks = f->blocks;
    b.bpe->split_blocks = f->split_blocks;
    b.bpe->prepend = f->prepend;
    b.bpe->prepend_always = f->prepend_always;
    b.bpe->strip_first = f->strip_first;
    tl_status status = measure(&b);
    status = status == TL_OK ? put_all(&b) : status;
    status = status == TL_OK ? put_merges(&b) : status;
    status = status == TL_OK ? find_bytes(&b) : status;
    status = status == TL_OK && !f->json ? mark_special(&b) : status;
    status = status == TL_OK ? ends(&b, f->prefix, f->n_prefix, &t->prefix, &t->n_prefix, "before") : status;
    status = status == TL_OK ? ends(&b, f->suffix, f->n_suffix, &t->suffix, &t->n_suffix, "behind") : status;
    (void)snprintf(t->describe, sizeof t->describe, "%s BPE, %lld tokens, %zu merges",
                   f->byte_level ? "byte-level" : "SentencePiece-style", (long long)t->entries, f->n_merges);
    return status == TL_OK ? tl_tokenizer_index_added(t, error) : status;
}
