/* tokenizer/lists.c: ids and bytes that grow, and where a character of UTF-8 ends. */
#include "tokenizer/tokenizer.h"

#include <string.h>

bool tl_tokenizer_grow(const tl_allocator *allocator, void **pointer, size_t *capacity, size_t want, size_t size) {
    size_t room = *capacity < 64 ? 64 : *capacity;
    if (want <= *capacity)
        return true;
    while (room < want) {
        if (room > SIZE_MAX / 2)
            return false;
        room *= 2;
    }
    if (room > (size_t)INT64_MAX / size)
        return false;
    void *larger = allocator->alloc(allocator->self, room * size, 16, TL_ALLOC_HOST);
    if (!larger)
        return false;
    if (*pointer) {
        memcpy(larger, *pointer, *capacity * size);
        allocator->release(allocator->self, *pointer, *capacity * size, TL_ALLOC_HOST);
    }
    *pointer = larger;
    *capacity = room;
    return true;
}

static const tl_allocator *or_default(const tl_allocator *allocator) {
    return allocator ? allocator : tl_allocator_default();
}

tl_status tl_token_list_add(tl_token_list *list, const int32_t *ids, size_t count, tl_error *error) {
    void *pointer = list->ids;
    if (count == 0)
        return TL_OK;
    if (count > SIZE_MAX - list->count || !tl_tokenizer_grow(or_default(list->allocator), &pointer, &list->capacity,
                                                             list->count + count, sizeof *list->ids))
        return tl_fail(error, TL_ERR_MEMORY, "no memory for %zu token ids after %zu", count, list->count);
    list->ids = pointer;
    memcpy(list->ids + list->count, ids, count * sizeof *ids);
    list->count += count;
    return TL_OK;
}

void tl_token_list_free(tl_token_list *list) {
    const tl_allocator *allocator = or_default(list->allocator);
    if (list->ids)
        allocator->release(allocator->self, list->ids, list->capacity * sizeof *list->ids, TL_ALLOC_HOST);
    list->ids = NULL;
    list->count = list->capacity = 0;
}

tl_status tl_token_text_add(tl_token_text *text, const char *bytes, size_t count, tl_error *error) {
    void *pointer = text->bytes;
    if (count == 0)
        return TL_OK;
    if (count > SIZE_MAX - text->count ||
        !tl_tokenizer_grow(or_default(text->allocator), &pointer, &text->capacity, text->count + count, 1))
        return tl_fail(error, TL_ERR_MEMORY, "no memory for %zu bytes of text after %zu", count, text->count);
    text->bytes = pointer;
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    return TL_OK;
}

void tl_token_text_free(tl_token_text *text) {
    const tl_allocator *allocator = or_default(text->allocator);
    if (text->bytes)
        allocator->release(allocator->self, text->bytes, text->capacity, TL_ALLOC_HOST);
    text->bytes = NULL;
    text->count = text->capacity = 0;
}

int tl_tokenizer_character(const char *bytes, size_t count) {
    const unsigned char *b = (const unsigned char *)bytes;
    unsigned char low = 0x80, high = 0xBF;
    int length;
    if (b[0] < 0x80)
        return 1;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return 0;
    length = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    /* The second byte's range is narrower behind four first bytes. */
    if (b[0] == 0xE0)
        low = 0xA0;
    else if (b[0] == 0xED)
        high = 0x9F;
    else if (b[0] == 0xF0)
        low = 0x90;
    else if (b[0] == 0xF4)
        high = 0x8F;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= count)
            return -1;
        if (b[i] < low || b[i] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

size_t tl_token_text_whole(const char *bytes, size_t count) {
    for (size_t back = 1; back <= 3 && back <= count; back++) {
        unsigned char byte = (unsigned char)bytes[count - back];
        if (byte >= 0xC0)
            return tl_tokenizer_character(bytes + count - back, back) < 0 ? count - back : count;
        if (byte < 0x80)
            break;
    }
    return count;
}
