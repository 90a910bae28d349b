/* ckpt/format.c: the header of a checkpoint, from the tensors it is about. Writing and reading share it, so that what is
 * read can be held against what would have been written. */
#include "ckpt/format.h"

#include <stdlib.h>
#include <string.h>

const char *tl_ckpt_role_name(tl_ckpt_role role) {
    static const char *const names[] = {"parameter", "master copy", "first state", "second state"};
    return (unsigned)role < TL_CKPT_ROLES ? names[role] : "?";
}

uint64_t tl_ckpt_get(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

void tl_ckpt_put(unsigned char *at, int bytes, uint64_t value) {
    for (int i = 0; i < bytes; i++, value >>= 8)
        at[i] = (unsigned char)(value & 255);
}

uint64_t tl_ckpt_hash(uint64_t hash, const void *data, size_t bytes) {
    static const uint64_t prime = UINT64_C(0x100000001B3);
    const unsigned char *at = data;
    for (; bytes >= 8; at += 8, bytes -= 8)
        hash = (hash ^ tl_ckpt_get(at, 8)) * prime;
    for (; bytes > 0; at++, bytes--)
        hash = (hash ^ *at) * prime;
    return hash;
}

static uint64_t round_up(uint64_t value) { return (value + TL_CKPT_ALIGN - 1) & ~(uint64_t)(TL_CKPT_ALIGN - 1); }

void tl_ckpt_list_begin(tl_ckpt_list *list, const tl_net *net, const tl_optimizer *optimizer, uint64_t header_bytes) {
    *list = (tl_ckpt_list){.optimizer = optimizer, .offset = header_bytes};
    list->count = tl_net_parameters(net, &list->parameters);
}

static const tl_tensor *tensor_of(const tl_ckpt_list *list, int index, int role) {
    switch (role) {
    case TL_CKPT_PARAMETER:
        return list->parameters[index].tensor;
    case TL_CKPT_MASTER:
        return tl_optimizer_master(list->optimizer, index);
    default:
        return tl_optimizer_state(list->optimizer, index, role - TL_CKPT_STATE_0);
    }
}

bool tl_ckpt_list_next(tl_ckpt_list *list, tl_ckpt_entry *entry) {
    for (; list->index < list->count; list->index++, list->role = 0)
        while (list->role < TL_CKPT_ROLES) {
            int role = list->role++;
            const tl_tensor *tensor = tensor_of(list, list->index, role);
            if (!tensor)
                continue;
            uint64_t bytes = (uint64_t)tl_tensor_count(tensor) * (uint64_t)tl_dtype_bytes(tl_tensor_dtype(tensor));
            *entry =
                (tl_ckpt_entry){list->parameters[list->index].name, (tl_ckpt_role)role, tensor, list->offset, bytes};
            list->offset = round_up(list->offset + bytes);
            return true;
        }
    return false;
}

/* role 1, dtype 1, dimensions 1, 0, name's length u32, eight sizes (0 beyond the dimensions), offset, bytes, checksum of
 * the values (filled in by the writer), 16 bytes of 0: 112 in all; then the name. */
static void put_entry(unsigned char *at, const tl_ckpt_entry *e) {
    int ndim = tl_tensor_ndim(e->tensor);
    size_t length = strlen(e->name);
    at[0] = (unsigned char)e->role;
    at[1] = (unsigned char)tl_tensor_dtype(e->tensor);
    at[2] = (unsigned char)ndim;
    tl_ckpt_put(at + 4, 4, length);
    for (int i = 0; i < ndim; i++)
        tl_ckpt_put(at + 8 + 8 * i, 8, (uint64_t)tl_tensor_shape(e->tensor)->dim[i].size);
    tl_ckpt_put(at + 72, 8, e->offset);
    tl_ckpt_put(at + 80, 8, e->bytes);
    memcpy(at + TL_CKPT_ENTRY, e->name, length);
}

static void put_fixed(unsigned char *at, const tl_ckpt_head *h) {
    memcpy(at, TL_CKPT_MAGIC, 8);
    tl_ckpt_put(at + 8, 4, h->version);
    tl_ckpt_put(at + 12, 4, h->tensors);
    tl_ckpt_put(at + 16, 8, h->header_bytes);
    tl_ckpt_put(at + 24, 8, h->file_bytes);
    tl_ckpt_put(at + 36, 4, h->states);
    tl_ckpt_put(at + 40, 8, (uint64_t)h->state.step);
    tl_ckpt_put(at + 48, 8, (uint64_t)h->state.total_steps);
    tl_ckpt_put(at + 56, 8, h->state.data_position);
    tl_ckpt_put(at + 64, 8, h->state.seed_init);
    tl_ckpt_put(at + 72, 8, h->state.seed_data);
    tl_ckpt_put(at + 80, 8, h->state.seed_dropout);
    tl_ckpt_put(at + 88, 8, h->state.dropout_position);
}

unsigned char *tl_ckpt_header_make(const tl_net *net, const tl_optimizer *optimizer, const tl_ckpt_state *state,
                                   tl_ckpt_head *head, tl_error *error) {
    tl_ckpt_list list;
    tl_ckpt_entry e;
    uint64_t size = TL_CKPT_FIXED + TL_CKPT_CHECKSUM;
    uint32_t tensors = 0, states = 0;
    tl_ckpt_list_begin(&list, net, optimizer, 0);
    for (; tl_ckpt_list_next(&list, &e); tensors++) {
        size_t length = strlen(e.name);
        if (length > TL_CKPT_NAME || !tl_tensor_is_contiguous(e.tensor)) {
            tl_fail(error, TL_ERR_UNSUPPORTED,
                    "%.80s: a checkpoint takes names of at most %d bytes and contiguous tensors", e.name, TL_CKPT_NAME);
            return NULL;
        }
        size += TL_CKPT_ENTRY + length;
        if (e.role >= TL_CKPT_STATE_0 && (uint32_t)(e.role - TL_CKPT_STATE_0) + 1 > states)
            states = (uint32_t)(e.role - TL_CKPT_STATE_0) + 1;
    }
    size = round_up(size);
    unsigned char *header = size <= TL_CKPT_LARGEST_HEADER ? calloc(1, (size_t)size) : NULL;
    if (!header) {
        tl_fail(error, TL_ERR_MEMORY, "no memory for a checkpoint's header of %llu bytes", (unsigned long long)size);
        return NULL;
    }
    *head = (tl_ckpt_head){.version = TL_CKPT_VERSION, .tensors = tensors, .header_bytes = size, .states = states};
    head->state = *state;
    unsigned char *at = header + TL_CKPT_FIXED;
    tl_ckpt_list_begin(&list, net, optimizer, size);
    uint64_t end = size;
    while (tl_ckpt_list_next(&list, &e)) {
        put_entry(at, &e);
        at += TL_CKPT_ENTRY + strlen(e.name);
        end = e.offset + e.bytes;
    }
    head->file_bytes = end;
    put_fixed(header, head);
    return header;
}
