/* data/tokens_write.c: files of tokens, written whole or not at all. */
#include "data/tokens.h"

#include <stdio.h>
#include <string.h>

#include "data/replace.h"

enum { BUFFER_IDS = 1 << 15, NPY_HEADER = 128 };

struct tl_token_writer {
    tl_allocator allocator;
    tl_replace file;
    tl_token_form form;
    int width;
    int64_t count;
    unsigned char buffer[4 * BUFFER_IDS];
    char path[]; /* tl_replace borrows it */
};

/* NumPy's header, version 1.0, for one axis: padded with blanks, so that it has the same length for any count. */
static void npy_header(const tl_token_writer *w, unsigned char header[NPY_HEADER]) {
    char text[NPY_HEADER];
    const int n = snprintf(text, sizeof text, "{'descr': '<u%d', 'fortran_order': False, 'shape': (%lld,), }", w->width,
                           (long long)w->count);
    memset(header, ' ', NPY_HEADER);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = NPY_HEADER - 10;
    header[9] = 0;
    memcpy(header + 10, text, (size_t)n);
    header[NPY_HEADER - 1] = '\n';
}

static void llmc_header(const tl_token_writer *w, unsigned char header[TL_LLMC_HEADER]) {
    const uint32_t words[3] = {w->width == 2 ? TL_LLMC_MAGIC_16 : TL_LLMC_MAGIC_32,
                               w->width == 2 ? TL_LLMC_VERSION_16 : TL_LLMC_VERSION_32, (uint32_t)w->count};
    memset(header, 0, TL_LLMC_HEADER);
    memcpy(header, words, sizeof words);
}

/* Of the count so far; the same length at the beginning, where it makes room, and at the end. */
static size_t make_header(const tl_token_writer *w, unsigned char header[TL_LLMC_HEADER]) {
    switch (w->form) {
    case TL_TOKENS_LLMC:
        llmc_header(w, header);
        return TL_LLMC_HEADER;
    case TL_TOKENS_NPY:
        npy_header(w, header);
        return NPY_HEADER;
    default:
        return 0;
    }
}

static void let_go(tl_token_writer *w) {
    const tl_allocator from = w->allocator;
    from.release(from.self, w, sizeof *w + strlen(w->path) + 1, TL_ALLOC_HOST);
}

tl_token_writer *tl_token_writer_new(const char *path, tl_token_form form, int width, const tl_allocator *allocator,
                                     tl_error *error) {
    const tl_allocator *from = allocator ? allocator : tl_allocator_default();
    const size_t length = strlen(path);
    unsigned char header[TL_LLMC_HEADER];
    if (form != TL_TOKENS_RAW && form != TL_TOKENS_LLMC && form != TL_TOKENS_NPY) {
        tl_fail(error, TL_ERR_ARGUMENT, "tokens are written as raw, llmc or npy");
        return NULL;
    }
    if (width != 2 && width != 4) {
        tl_fail(error, TL_ERR_ARGUMENT, "ids of %d bytes; 2 or 4 would work", width);
        return NULL;
    }
    tl_token_writer *w = from->alloc(from->self, sizeof *w + length + 1, 16, TL_ALLOC_HOST);
    if (!w) {
        tl_fail(error, TL_ERR_MEMORY, "no memory to write %s", path);
        return NULL;
    }
    w->allocator = *from;
    w->form = form;
    w->width = width;
    w->count = 0;
    memcpy(w->path, path, length + 1);
    tl_status status = tl_replace_begin(&w->file, w->path, error);
    if (status == TL_OK) {
        status = tl_replace_write(&w->file, header, make_header(w, header), error);
        if (status == TL_OK)
            return w;
        (void)tl_replace_end(&w->file, status, error);
    }
    let_go(w);
    return NULL;
}

static tl_status pack_ids(tl_token_writer *w, const int32_t *ids, int64_t count, tl_error *error) {
    for (int64_t i = 0; i < count; i++) {
        const int32_t id = ids[i];
        const uint16_t two = (uint16_t)(uint32_t)id;
        if (id < 0)
            return tl_fail(error, TL_ERR_ARGUMENT, "%s: id %ld at index %lld is negative", w->path, (long)id,
                           (long long)(w->count + i));
        if (w->width == 2 && id > UINT16_MAX)
            return tl_fail(error, TL_ERR_ARGUMENT,
                           "%s: id %ld at index %lld does not fit uint16, whose last is 65535; uint32 would hold it",
                           w->path, (long)id, (long long)(w->count + i));
        if (w->width == 2)
            memcpy(w->buffer + 2 * i, &two, 2);
        else
            memcpy(w->buffer + 4 * i, &id, 4);
    }
    return TL_OK;
}

tl_status tl_token_writer_put(tl_token_writer *w, const int32_t *ids, int64_t count, tl_error *error) {
    if (w->form == TL_TOKENS_LLMC && count > INT32_MAX - w->count)
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "%s: an llm.c shard counts its tokens in 31 bits, 2147483647 at most; several shards would work",
                       w->path);
    while (count > 0) {
        const int64_t n = count < BUFFER_IDS ? count : BUFFER_IDS;
        tl_status status = pack_ids(w, ids, n, error);
        if (status == TL_OK)
            status = tl_replace_write(&w->file, w->buffer, (uint64_t)n * (uint64_t)w->width, error);
        if (status != TL_OK)
            return status;
        w->count += n;
        ids += n;
        count -= n;
    }
    return TL_OK;
}

int64_t tl_token_writer_count(const tl_token_writer *w) { return w->count; }

tl_status tl_token_writer_end(tl_token_writer *w, tl_status status, tl_error *error) {
    unsigned char header[TL_LLMC_HEADER];
    if (!w)
        return status;
    if (status == TL_OK && w->form != TL_TOKENS_RAW)
        status = tl_replace_patch(&w->file, header, make_header(w, header), 0, error);
    status = tl_replace_end(&w->file, status, error);
    let_go(w);
    return status;
}
